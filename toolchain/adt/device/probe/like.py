"""What compiling learns from a probed device: CPU features, and the limits of its OpenCL."""

from __future__ import annotations

from adt.device.probe.facts import Cpu, OpenclDevice, Probe
from adt.model.package import PackageLike

_FEATURES = {
    "asimddp": "+dotprod",
    "asimdhp": "+fullfp16",
    "i8mm": "+i8mm",
    "bf16": "+bf16",
}
"""64-bit Arm: what the kernel calls a feature, and what LLVM does."""


def like(probe: Probe, machine: str) -> PackageLike:
    """What of *probe* a package is compiled for.

    Args:
        machine: ELF machine of the platform; the device may run several.
    """
    device = probe.opencl.device if probe.opencl else None
    return PackageLike(
        device=probe.label,
        soc=probe.soc,
        gpu=probe.gpu.name if probe.gpu else "",
        opencl_driver=(device.driver_version or "") if device else "",
        fp16=device.fp16 if device else None,
        opencl_extensions=device.extensions if device else (),
        opencl_limits=opencl_limits(device) if device else {},
        cpu_features=cpu_features(probe.cpu) if probe.cpu and machine == "AARCH64" else (),
    )


def cpu_features(cpu: Cpu) -> tuple[str, ...]:
    """The LLVM features that every CPU offers, of those that speed models up."""
    return tuple(llvm for name, llvm in _FEATURES.items() if name in cpu.features)


def opencl_limits(device: OpenclDevice) -> dict[str, int]:
    """The limits of *device* as attributes of TVM's opencl target, without what the driver does not tell."""
    sides = (device.image2d_max_width, device.image2d_max_height) if device.images else ()
    limits = {
        "max_num_threads": device.max_work_group_size,
        "max_threads_per_block": device.max_work_group_size,
        "max_shared_memory_per_block": device.local_memory,
        "texture_spatial_limit": min((side for side in sides if side), default=None),
        "texture_depth_limit": device.image_max_array_size if device.images else None,
        # TVM's runtime aligns the rows of images that lie in buffers to the pitch, and its planner to this
        "image_base_address_alignment": device.image_pitch_alignment,
    }
    return {name: value for name, value in limits.items() if value}
