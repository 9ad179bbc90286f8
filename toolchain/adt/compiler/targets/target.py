"""Target of a model: adt's target, processor and platform as TVM's dictionary."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace
from typing import Any

from adt.bundle.platforms import PLATFORMS, Platform, platform_named
from adt.compiler.targets.cpu import NATIVE, cpu_choice, kernel_features, warn_of_sve
from adt.compiler.targets.gpu import Gpu, gpu_of
from adt.compiler.targets.parser import PTX, ParsedTarget, parse_target
from adt.errors import ConfigError
from adt.options.resolve import Resolved
from adt.options.sections import Settings
from adt.package.manifest import PackageLike

log = logging.getLogger("adt.compile")

_GPUS: dict[str, dict[str, Any]] = {
    "opencl": {},
    "adreno": {"device": "adreno", "keys": ["adreno", "opencl", "gpu", "texture"]},
    "adreno-buffer": {"device": "adreno", "keys": ["adreno", "opencl", "gpu"]},
    "mali": {"device": "mali", "keys": ["mali", "opencl", "gpu"]},
}
"""Attribute that tells TVM's schedule rules which GPU it is."""
_CUDA = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 48 << 10, "thread_warp_size": 32}
"""Limits that every architecture of CUDA keeps."""


@dataclass(frozen=True)
class ModelTarget:
    """Target that a model is compiled for."""

    name: str
    """Name of :data:`adt.compiler.targets.parser.NAMES`, with CUDA's architecture (``cuda:sm_87``)."""
    device: str
    """Device of the entry's tensors: ``cpu``, ``opencl`` or ``cuda``."""
    spec: dict[str, Any]
    """TVM's dictionary."""
    vdevices: tuple[str, ...]
    """Device of each of the VM's virtual devices."""
    textures: bool = False
    """Tensors may lie in OpenCL images."""
    cpu_features: tuple[str, ...] = ()
    """Features on top of the platform's that the code may use, in the kernel's names (``asimddp``)."""
    gpu: Gpu | None = None
    """GPU that the schedules of kernels on blocked tensors are made for; None: a CPU."""


def model_target(
    text: str, platform: Platform, api_level: int, like: PackageLike | None = None, *, cpu: str = ""
) -> ModelTarget:
    """Resolve the target *text*, one of adt's names or TVM's string, tag or dictionary (JSON), on *platform*.

    Args:
        like: the device that it is for in particular; None: any.
        cpu: the processor, see :func:`adt.compiler.targets.cpu.cpu_choice`; empty: the target's, or else any
            of the platform, and for this machine its own.
    """
    parsed = parse_target(text)
    _check_platform(parsed, text, platform, api_level)
    if cpu and parsed.cpu and cpu != parsed.cpu:
        raise ConfigError(
            f"the target {text!r} names the processor {parsed.cpu}, --cpu names {cpu}",
            remedy=f"Give one of them: --target {parsed.name} --cpu {cpu}",
        )
    host: dict[str, Any] = {"kind": "llvm", "mtriple": platform.llvm_triple(api_level)}
    usual = NATIVE if platform.name == "host" else ""
    choice = cpu_choice(cpu or parsed.cpu or usual, platform, api_level)
    if choice.core:
        host["mcpu"] = choice.core
    own = like.cpu_features if like else ()
    if features := (*platform.cpu_features, *own, *choice.features):
        host["mattr"] = list({word[1:]: word for word in features}.values())  # of two, the later
    demands = kernel_features(choice.core, features, platform, api_level)
    if platform.float_abi:
        host["mfloat-abi"] = platform.float_abi
    host |= parsed.llvm
    if parsed.name == "cuda":
        return _cuda_target(parsed, host, demands)
    if parsed.name not in _GPUS:
        return ModelTarget(parsed.name, "cpu", host, ("cpu",), cpu_features=demands)
    textures = parsed.name == "adreno"
    limits = {**(like.opencl_limits if like else {}), **parsed.gpu}
    if textures and like and "texture_spatial_limit" not in limits:
        raise ConfigError(
            "the device to compile for reports no images in OpenCL, and textures are images",
            remedy="Keep tensors in buffers: --target adreno-buffer",
        )
    spec = {"kind": "opencl", **_GPUS[parsed.name], "host": host, **limits}
    # Tensors in images have a virtual device of their own, the same GPU once more.
    vdevices = ("opencl",) * (2 if textures else 1)
    name, cores = (like.gpu, like.compute_units) if like else ("", 0)
    scheduled_for = gpu_of(name or "Mali" * (parsed.name == "mali"), limits, cores)
    return ModelTarget(parsed.name, "opencl", spec, vdevices, textures, demands, scheduled_for)


def _cuda_target(parsed: ParsedTarget, host: dict[str, Any], demands: tuple[str, ...]) -> ModelTarget:
    """Return the target of NVIDIA's GPU: machine code for its architecture, or what any driver compiles."""
    name = f"cuda:{parsed.arch}" if parsed.arch else "cuda"
    limits = {**_CUDA, **parsed.gpu}
    spec = {"kind": "cuda", "arch": parsed.arch or PTX, "host": host, **limits}
    return ModelTarget(name, "cuda", spec, ("cuda",), False, demands, gpu_of("NVIDIA", limits))


def _check_platform(parsed: ParsedTarget, text: str, platform: Platform, api_level: int) -> None:
    """Refuse a target whose own words contradict the platform."""
    if parsed.name == "cuda" and not platform.cuda:
        having = ", ".join(name for name, other in PLATFORMS.items() if other.cuda)
        raise ConfigError(
            f"the target {text!r} is for NVIDIA's GPUs, of which there are none on {platform.name}",
            remedy=f"Give --for one of {having}; GPUs of phones run OpenCL: --target adreno, mali or opencl.",
        )
    if not parsed.platform or parsed.platform == platform.name:
        level = re.search(r"android(?:eabi)?(\d+)$", parsed.triple)
        if level and int(level[1]) != api_level:
            raise ConfigError(
                f"the target {text!r} is for API level {level[1]}, the package for {api_level}",
                remedy=f"Give --api-level {level[1]}, or leave the number out of the triple.",
            )
        return
    # The GNU triple for Android's machine is how TVM's guides for phones wrote it.
    theirs = PLATFORMS[parsed.platform]
    if parsed.triple and platform.android and not theirs.android and theirs.machine == platform.machine:
        return
    machine = f"{parsed.triple}, that is {parsed.platform}" if parsed.triple else "this machine's processor"
    raise ConfigError(
        f"the target {text!r} is for {machine}, and the platform is {platform.name}",
        remedy=f"Give --for {parsed.platform}, or the target without it: --target "
        + ("cpu" if parsed.name == "host" else parsed.name),
    )


def settings_and_platform(resolved: Resolved) -> tuple[Settings, Platform]:
    """Return settings and platform, which a target may choose; log its meaning in TVM's words."""
    settings = resolved.settings
    parsed = parse_target(settings.compile.target)
    if parsed.platform and not settings.build.platform:
        settings = replace(settings, build=settings.build.but(platform=parsed.platform))
    platform = platform_named(settings.build.platform)
    if not parsed.plain:
        options = parsed.options
        if parsed.platform:
            options = options.replace(f"--for {parsed.platform}", f"--for {platform.name}")
        ignored = f" (without meaning here: {', '.join(parsed.ignored)})" if parsed.ignored else ""
        log.info("target %s is read as: %s%s", settings.compile.target, options, ignored)
    if cpu := settings.compile.cpu or parsed.cpu:
        warn_of_sve(cpu, platform, settings.build.api_level)
    return settings, platform
