"""``--cpu``: a core, a system on chip and features, translated to LLVM's ``mcpu`` and ``mattr``."""

from __future__ import annotations

import difflib
import logging
import re
from dataclasses import dataclass

from adt.bundle.platforms import PLATFORMS, Platform
from adt.compiler.targets import llvm
from adt.compiler.targets.socs import LLVM_NAMES, SOCS, Soc, soc_named
from adt.errors import ConfigError
from adt.options.option import did_you_mean

log = logging.getLogger("adt.compile")

DECISIVE = {
    "AARCH64": {name: LLVM_NAMES[name] for name in ("asimddp", "asimdhp", "bf16", "i8mm", "sve")},
    "X86_64": {
        "sse4_1": "sse4.1",
        "sse4_2": "sse4.2",
        "abm": "lzcnt",
        "bmi1": "bmi",
        "avx_vnni": "avxvnni",
        **{name: name for name in ("popcnt", "movbe", "bmi2", "avx", "avx2", "fma", "f16c", "gfni")},
        **{f"avx512{name}": f"avx512{name}" for name in ("f", "bw", "cd", "dq", "vl", "ifma", "vbmi")},
        **{f"avx512_{name}": f"avx512{name}" for name in ("vnni", "vbmi2", "bitalg", "vpopcntdq")},
        **{f"avx512_{name}": f"avx512{name}" for name in ("bf16", "fp16")},
    },
}
"""Features that generated code makes use of, by ELF machine: the kernel's name to LLVM's."""
NATIVE = "native"  # this machine's own processor
_SPELLINGS = {
    "AARCH64": {"fp16": "fullfp16", "simd": "neon", "asimd": "neon", "lrcpc": "rcpc", **LLVM_NAMES},
    "ARM": {name: LLVM_NAMES[name] for name in ("asimddp", "asimdhp")}
    | {"asimd": "neon", "vfpv4": "vfp4", "idiv": "hwdiv-arm"},
    "X86_64": {"vnni": "avx512vnni", "sse4_1": "sse4.1", "sse4_2": "sse4.2"},
}
"""Names that compilers and kernels give features, by ELF machine, where LLVM's is another one."""


@dataclass(frozen=True)
class CpuChoice:
    """Processor that code is generated for."""

    core: str = ""
    """LLVM's name; empty: any of the platform's."""
    features: tuple[str, ...] = ()
    """``+name`` or ``-name``, in LLVM's names; a later one wins."""


def cpu_choice(text: str, platform: Platform, api_level: int) -> CpuChoice:
    """Translate *text* for code on *platform*; refuse unknown names and features, and those it cannot have.

    Args:
        text: ``cortex-a76``, ``rk3588``, ``native``, ``+dotprod,+fp16``, or a name followed by
            features: ``cortex-a76,+dotprod,-fp16``. Empty: any processor of the platform.
    """
    words = [word for part in re.split(r",|(?=\+)", text) if (word := part.strip())]
    names = [word for word in words if word[0] not in "+-"]
    if not words:
        return CpuChoice()
    if len(names) > 1 or (names and words[0] != names[0]):
        raise ConfigError(
            f"--cpu {text!r} is not of the form NAME,+FEATURE,-FEATURE,…",
            remedy="One core or system on chip first, then features: --cpu cortex-a76,+dotprod,+fp16",
        )
    triple = platform.llvm_triple(api_level)
    choice = _named(names[0], platform, triple) if names else CpuChoice()
    added = tuple(_feature(word, platform, triple) for word in words[len(names) :])
    return CpuChoice(choice.core, (*choice.features, *added))


def kernel_features(
    core: str, features: tuple[str, ...], platform: Platform, api_level: int
) -> tuple[str, ...]:
    """Return the features that a kernel must report, or code for *core* with *features* ends with SIGILL.

    Only what generated code makes use of: that a kernel leaves, say, atomics out is no reason to refuse.
    What every machine of the platform has is left out; 32-bit Arm is not asked.
    """
    if not (core or features):
        return ()
    triple = platform.llvm_triple(api_level)
    has = llvm.core_features(triple, core, features) - llvm.core_features(triple, "", platform.cpu_features)
    decisive = DECISIVE.get(platform.machine, {})
    return tuple(kernel for kernel, name in decisive.items() if name in has)


def _named(name: str, platform: Platform, triple: str) -> CpuChoice:
    """Return the processor that a core, a system on chip or ``native`` means."""
    if name == NATIVE:
        return _native(platform, triple)
    lower = name.lower()
    if lower in llvm.cores(triple):
        return CpuChoice(lower)
    if soc := soc_named(name):
        return _of_soc(soc, platform, triple)
    cores, arm = llvm.cores(triple), llvm.cores(PLATFORMS["linux-aarch64"].llvm_triple(0))
    fitting = {*cores, *(soc.name for soc in SOCS if soc.code in cores), NATIVE}
    near = difflib.get_close_matches(lower, fitting | {*arm}, n=1)
    raise ConfigError(
        f"no processor {name!r} for {platform.name} is known.{did_you_mean(lower, fitting & {*near})}",
        remedy="Name a core as LLVM does (cortex-a76), a system on chip (snapdragon-865, rk3588; "
        "docs/targets.md lists them), or only features: --cpu +dotprod,+fp16"
        if platform.machine == "AARCH64"
        else "Leave --cpu away, or name the platform of that processor with --for.",
    )


def _of_soc(soc: Soc, platform: Platform, triple: str) -> CpuChoice:
    """Choose code that each core of *soc* runs: the weakest core's, less what the kernel does not offer."""
    if soc.code not in llvm.cores(triple):
        raise ConfigError(
            f"{soc.name} ({soc.code}) does not run code for {platform.name}",
            remedy="Name the platform of the device with --for, or leave --cpu out.",
        )
    has, known = llvm.core_features(triple, soc.code), llvm.features(triple)
    features = tuple(
        ("-" if name in has else "+") + name
        for kernel, name in LLVM_NAMES.items()
        if name in known and (name in has) != (kernel in soc.offers)
    )
    log.debug("%s: code for %s %s (%s)", soc.name, soc.code, " ".join(features), soc.source)
    return CpuChoice(soc.code, features)


def _native(platform: Platform, triple: str) -> CpuChoice:
    """Return this machine's core, and where the processor differs from LLVM's notion of it."""
    if platform.name != "host":
        raise ConfigError(
            f"--cpu native is this machine's processor, and the platform is {platform.name}",
            remedy=f"Name the device's processor (docs/targets.md), or compile for this machine: --for host "
            f"instead of --for {platform.name}.",
        )
    core, offers = llvm.native()
    has, known = llvm.core_features(triple, core), llvm.features(triple)
    missing = [f"-{name}" for name, there in sorted(offers.items()) if not there and name in has]
    more = [f"+{name}" for name, there in sorted(offers.items()) if there and name in known - has]
    return CpuChoice(core, (*missing, *more))


def _feature(word: str, platform: Platform, triple: str) -> str:
    """Spell one ``+name`` or ``-name`` as LLVM does."""
    sign, name = word[0], word[1:].lower()
    spellings = _SPELLINGS.get(platform.machine, {})
    name = spellings.get(name, name)
    known = llvm.features(triple)
    if name not in known:
        # not the tuning switches and core names that LLVM keeps among them
        likely = [other for other in known if not re.match(r"a\d\d|use-|fuse-|no-|slow-|fast-", other)]
        raise ConfigError(
            f"LLVM knows no feature {word[1:]!r} for {platform.name}.{did_you_mean(name, likely)}",
            remedy=f"Among those that it knows: {', '.join(sorted(set(LLVM_NAMES.values()) & known))}"
            if platform.machine == "AARCH64"
            else "Take the names that LLVM's `llc -mattr=help` lists for the processor.",
        )
    return sign + name


def warn_of_sve(text: str, platform: Platform, api_level: int) -> None:
    """Say that a core's vectors of variable length may be switched off where the code is to run."""
    choice = cpu_choice(text, platform, api_level)
    explicit = any(word.startswith("+sve") for word in choice.features)
    if platform.machine != "AARCH64" or not choice.core or explicit or text == NATIVE:
        return
    if "sve" in llvm.core_features(platform.llvm_triple(api_level), choice.core, choice.features):
        log.warning(
            "%s brings SVE, which many phones' kernels keep off: code that uses it ends with SIGILL there; "
            "--cpu %s,-sve leaves it out",
            choice.core,
            text,
        )
