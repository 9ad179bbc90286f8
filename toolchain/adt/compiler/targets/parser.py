"""Parser of a target's text: adt's names, TVM's classic strings, its tags and its dictionaries.

TVM 0.25 itself takes tags and dictionaries only. The strings of earlier versions (``opencl -device=adreno``,
``llvm -mtriple=aarch64-linux-gnu -mattr=+neon``, tvmc's ``opencl, llvm``) are what its tutorials still show.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from adt.bundle.platforms import HOST_MACHINE, PLATFORMS
from adt.errors import ConfigError
from adt.limits import parse_json
from adt.options.option import did_you_mean

NAMES = {
    "cpu": "the platform's processor",
    "opencl": "any GPU with OpenCL, tensors in buffers",
    "adreno": "Adreno GPUs, tensors in textures where that is right",
    "adreno-buffer": "Adreno GPUs, tensors in buffers",
    "mali": "Mali GPUs",
    "cuda": "NVIDIA GPUs; cuda:ARCH or cuda:CHIP has machine code for one architecture",
    "host": "this machine's own processor, with all that it offers",
}
"""Targets of adt, and what each is for."""
_LISTS = ("keys", "mattr", "libs", "cl-opt")
_LLVM = (
    "mtriple", "mcpu", "mattr", "mfloat-abi", "mabi", "num-cores", "vector-width", "opt-level", "cl-opt",
    "fast-math", "fast-math-nnan", "fast-math-ninf", "fast-math-nsz", "fast-math-arcp", "fast-math-contract",
    "fast-math-reassoc",
)  # fmt: skip
_GPU = ("max_num_threads", "max_threads_per_block", "max_shared_memory_per_block", "thread_warp_size")
_OPENCL = (
    *_GPU, "texture_spatial_limit", "texture_depth_limit", "max_function_args",
    "image_base_address_alignment",
)  # fmt: skip
_CUDA = ("arch", *_GPU, "registers_per_block", "l2_cache_size_bytes")
_KNOWN = {"llvm": _LLVM, "opencl": _OPENCL, "cuda": _CUDA}
_COMMON = ("kind", "device", "keys", "host", "tag", "model", "libs")
_FORMER = ("link-params", "runtime", "system-lib", "executor", "interface-api", "unpacked-api", "jit")
_IDLE = ("model", "libs", "tag", "mabi", *_FORMER)  # options that change nothing that adt compiles
_KINDS = ("llvm", "opencl", "clml", "vulkan", "cuda", "rocm", "metal", "hexagon", "webgpu", "nvptx", "c")
"""Kinds of TVM 0.25, and tvmc's ``clml``."""
_ARCHES = {"aarch64": "AARCH64", "arm64": "AARCH64", "x86_64": "X86_64", "amd64": "X86_64", "arm": "ARM"}
CLML = "--target adreno --offload clml"
CHIPS = {
    chip: architecture
    for architecture, chips in {
        "sm_53": ("jetson-tx1", "jetson-nano"),
        "sm_60": ("p100",),
        "sm_61": ("gtx-10", "p4", "p40"),
        "sm_62": ("jetson-tx2",),
        "sm_70": ("v100",),
        "sm_72": ("jetson-xavier",),
        "sm_75": ("gtx-16", "rtx-20", "t4"),
        "sm_80": ("a100", "a30"),
        "sm_86": ("rtx-30", "rtx-a", "a2", "a10", "a16", "a40"),
        "sm_87": ("jetson-orin",),
        "sm_89": ("rtx-40", "l4", "l40", "l40s"),
        "sm_90": ("h100", "h200", "gh200"),
        "sm_100": ("b200", "gb200"),
        "sm_103": ("b300", "gb300"),
        "sm_110": ("jetson-thor",),
        "sm_120": ("rtx-50", "rtx-pro"),
        "sm_121": ("dgx-spark",),
    }.items()
    for chip in chips
}
"""NVIDIA's boards and series of cards, to the architecture of their machine code (as in NVIDIA's list,
https://developer.nvidia.com/cuda-gpus). Code runs on GPUs of its architecture's generation (the number
without its last digit) from that digit on. Thor's is CUDA 13's name; 12.8 and 12.9 call it sm_101."""
PTX = "sm_53"
"""The oldest that computes in half precision: what drivers compile for their GPU is written for it."""


@dataclass(frozen=True)
class ParsedTarget:
    """Target that a text asks for, whichever way it is written."""

    name: str
    """One of NAMES."""
    triple: str = ""
    """The machine's triple, when the text has one."""
    platform: str = ""
    """The platform that the triple, or ``host``, stands for; empty: the text says nothing of it."""
    cpu: str = ""
    """The processor, as ``--cpu`` takes it."""
    gpu: Mapping[str, Any] = field(default_factory=dict)
    """Attributes of TVM's opencl or cuda target."""
    arch: str = ""
    """CUDA's architecture (``sm_87``); empty: the driver compiles for its GPU."""
    llvm: Mapping[str, Any] = field(default_factory=dict)
    """Further attributes of TVM's llvm target."""
    ignored: tuple[str, ...] = ()
    """Options of it that have no meaning here."""
    plain: bool = False
    """It is adt's own name, without more."""

    @property
    def options(self) -> str:
        """Options of ``adt compile``."""
        words = [f"--for {self.platform}"] if self.platform and self.name != "host" else []
        words.append(f"--target {self.name}" + f":{self.arch}" * bool(self.arch))
        if self.cpu:
            words.append(f"--cpu {self.cpu}")
        more = [f"{key}={value}" for key, value in {**self.gpu, **self.llvm}.items()]
        return " ".join(words) + (f" with {', '.join(more)}" if more else "")


def parse_target(text: str) -> ParsedTarget:
    """Parse *text*, a target in any of its spellings."""
    text = text.strip()
    if text in NAMES:
        return ParsedTarget(text, platform="host" if text == "host" else "", plain=True)
    if text.startswith("cuda:"):
        return ParsedTarget("cuda", arch=architecture(text.removeprefix("cuda:")), plain=True)
    if text.startswith("{"):
        return _interpret(_from_json(text), text)
    if "/" in text.split(" ")[0]:
        return _interpret(_from_tag(text), text)
    kind = re.split(r"[\s,]", text, maxsplit=1)[0]
    if kind not in _KINDS:
        raise ConfigError(
            f"unknown target {text!r}.{did_you_mean(text, NAMES)}",
            remedy=f"Choose one of: {', '.join(NAMES)}; or give TVM's string, tag or dictionary.",
        )
    return _interpret(_from_classic(text), text, classic=True)


def _from_json(text: str) -> dict[str, Any]:
    remedy = 'For example: --target \'{"kind": "opencl", "device": "mali"}\''
    try:
        spec = parse_json(text)
    except ValueError as error:
        raise ConfigError(f"the target {text!r} is not JSON: {error}", remedy=remedy) from error
    if not isinstance(spec.get("kind"), str):
        raise ConfigError(f"the target {text!r} has no kind", remedy=remedy)
    return dict(spec)


def _from_tag(text: str) -> dict[str, Any]:
    import tvm

    tags = tvm.target.list_tags() or {}
    if text not in tags:
        raise ConfigError(
            f"TVM has no target tag {text!r}.{did_you_mean(text, map(str, tags))}",
            remedy=f"Choose one of adt's targets: {', '.join(NAMES)}.",
        )
    plain: dict[str, Any] = json.loads(str(tags[text]))
    usual = json.loads(str(tvm.target.Target({"kind": plain["kind"]})))
    # the dictionary is complete: less what TVM adds to each anyway, which is no wish of the tag's
    own = {key: value for key, value in plain.items() if not key.startswith("feature.")}
    return {key: value for key, value in own.items() if key == "kind" or usual.get(key) != value}


def _from_classic(text: str) -> dict[str, Any]:
    """Parse TVM's string, or tvmc's list of them, into a dictionary."""
    comma = r",\s+" if "-" in text else r",\s*"  # without a space it belongs to an option's value
    parts = [_parse_kind(part, text) for part in re.split(rf"{comma}(?=(?:{'|'.join(_KINDS)})\b)", text)]
    first, *others = parts
    if any(part["kind"] == "clml" for part in parts):
        raise _offload_error(text)
    for other in others:
        if other["kind"] != "llvm" or first["kind"] not in ("opencl", "cuda"):
            raise ConfigError(
                f"the target {text!r} names several devices",
                remedy="A package computes on one: give its target alone, for example --target opencl.",
            )
        first.setdefault("host", other)
    return first


def _parse_kind(text: str, whole: str) -> dict[str, Any]:
    """Parse one kind with its options; those of llvm in another kind's string are its host's."""
    try:
        kind, *words = shlex.split(text) or [""]
    except ValueError as error:
        what = f"the target {whole!r} cannot be read: {error}"
        raise ConfigError(what, remedy="Close its quotes.") from error
    spec: dict[str, Any] = {"kind": kind}
    host: dict[str, Any] = {}
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            raise ConfigError(
                f"the target {whole!r} has a word that is no option: {word!r}",
                remedy="Options are written -name=value, as in: opencl -device=mali",
            )
        name, equals, value = word.lstrip("-").partition("=")
        if not equals and words and not words[0].startswith("-"):
            value = words.pop(0)
        name = "mtriple" if name == "target" else name
        if name == "host":
            host |= _parse_kind(value, whole)
        elif kind != "llvm" and name in _LLVM:
            host |= {"kind": "llvm", name: _typed(name, value)}
        else:
            spec[name] = _typed(name, value)
    return spec | ({"host": host} if host else {})


def _typed(name: str, value: str) -> Any:
    if name in _LISTS:
        return _list(value)
    if re.fullmatch("[0-9]{1,18}", value):
        return int(value)
    return {"": True, "true": True, "false": False}.get(value.lower(), value)


def _list(value: Any) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else value
    return [word for part in parts if (word := str(part).strip())]


def _interpret(spec: Mapping[str, Any], text: str, *, classic: bool = False) -> ParsedTarget:
    """Interpret a target dictionary; in a *classic* string, ``-device=adreno`` alone means textures."""
    kind = spec["kind"]
    if kind == "clml":
        raise _offload_error(text)
    if kind == "vulkan":
        raise ConfigError(
            f"the target {text!r} is for Vulkan, and the TVM wheel generates no code for it",
            remedy="GPUs of phones run OpenCL: --target adreno, mali or opencl.",
        )
    if kind not in _KNOWN:
        raise ConfigError(
            f"the target {text!r} is for {kind}, which adt does not compile for",
            remedy=f"Choose one of: {', '.join(NAMES)}.",
        )
    known = (*_COMMON, *_FORMER, *_KNOWN[kind])
    if unknown := [name for name in spec if name not in known]:
        raise ConfigError(
            f"the target {text!r} has an unknown option {unknown[0]!r}.{did_you_mean(unknown[0], known)}",
            remedy=f"Those of {kind} are: {', '.join(name for name in known if name not in _IDLE)}.",
        )
    if kind == "llvm":
        return _cpu(spec, text, "cpu")
    keys = _list(spec.get("keys", ()))
    device = str(spec.get("device", ""))
    if "clml" in keys:
        raise _offload_error(text)
    name = kind
    if kind == "opencl" and (device == "adreno" or "adreno" in keys):
        name = "adreno" if "texture" in keys or (classic and not keys) else "adreno-buffer"
    elif kind == "opencl" and (device in ("mali", "bifrost") or "mali" in keys):
        name = "mali"
    gpu = {key: _whole(key, spec[key], text) for key in spec if key in _KNOWN[kind] and key != "arch"}
    host = spec.get("host", {"kind": "llvm"})
    if isinstance(host, str):
        host = _parse_kind(host, text)
    if not isinstance(host, Mapping) or host.get("kind", "llvm") != "llvm":
        raise ConfigError(
            f"the target {text!r} has a host that is not llvm",
            remedy="The host is the processor beside the GPU: --host=llvm",
        )
    cpu = _cpu(host, text, name)
    ignored = (*cpu.ignored, *_ignored(spec))
    if name in ("opencl", "cuda") and device:
        ignored = (*ignored, f"device={device}")
    arch = architecture(str(spec["arch"])) if "arch" in spec else ""
    return replace(cpu, gpu=gpu, arch=arch, ignored=ignored)


def _cpu(spec: Mapping[str, Any], text: str, name: str) -> ParsedTarget:
    """Parse the part that LLVM compiles."""
    triple = str(spec.get("mtriple", ""))
    cpu = ",".join([*filter(None, [str(spec.get("mcpu", ""))]), *_list(spec.get("mattr", ()))])
    platform = platform_of(triple, text) if triple else ""
    abi, usual = spec.get("mfloat-abi"), PLATFORMS[platform].float_abi if platform else ""
    if abi and usual and abi != usual:
        raise ConfigError(
            f"the target {text!r} passes floats {abi}, {platform} passes them {usual}",
            remedy="Leave -mfloat-abi out.",
        )
    further = set(_LLVM) - {"mtriple", "mcpu", "mattr", "mfloat-abi", "mabi"}
    more = {key: value for key, value in spec.items() if key in further}
    return ParsedTarget(name, triple, platform, cpu, llvm=more, ignored=_ignored(spec))


def _ignored(spec: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{key}={value}" for key, value in spec.items() if key in _IDLE and value not in ("", []))


def _whole(name: str, value: object, text: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(
            f"the target {text!r}: {name} is {value!r}, which is no integer above 0",
            remedy=f"For example: -{name}=256",
        )
    return value


def platform_of(triple: str, text: str) -> str:
    """Return adt's platform for a machine's triple."""
    arch, _, rest = triple.partition("-")
    machine = _ARCHES.get(arch, "ARM" if arch.startswith(("armv7", "armv8l", "thumbv7")) else "")
    android = "android" in rest
    soft = machine == "ARM" and not android and not rest.endswith("hf")  # floats in integer registers
    if (android or "linux-gnu" in rest) and not soft:
        for platform in PLATFORMS.values():  # this machine is the last
            if (platform.machine, platform.android) == (machine, android):
                return platform.name
    raise ConfigError(
        f"the target {text!r} is for {triple}, which adt does not compile for (this machine: {HOST_MACHINE})",
        remedy=f"Choose a platform with --for: {', '.join(PLATFORMS)}.",
    )


def _offload_error(text: str) -> ConfigError:
    return ConfigError(
        f"the target {text!r} hands layers to CLML, which is not the target's business here",
        remedy=f"Write it as: {CLML}",
    )


def architecture(text: str) -> str:
    """Return the architecture that people call *text*: ``sm_87``, ``8.7``, ``jetson-orin``, ``rtx-3080``."""
    plain = re.sub(r"[\s_]+", "-", text.strip().lower())
    if match := re.fullmatch(r"(?:sm-)?(\d{1,2})\.?(\d)", plain):
        return f"sm_{match[1]}{match[2]}"
    series = re.sub(r"^(rtx|gtx)-?(\d\d)\d\d(-?(ti|super))*$", r"\1-\2", plain)
    series = re.sub(r"^rtx-?(a|pro)-?\d{4}$", r"rtx-\1", series)
    if series in CHIPS:
        return CHIPS[series]
    raise ConfigError(
        f"CUDA has no architecture or chip {text!r}.{did_you_mean(plain, CHIPS)}",
        remedy=f"Give one as sm_87, or a chip: {', '.join(CHIPS)}.",
    )
