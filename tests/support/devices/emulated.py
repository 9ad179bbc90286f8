"""Packages in rtvm on this machine and on Arm processors that qemu emulates, one process each, without a device."""

import functools
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import adt
from adt.bundle.bundle import TargetBundle
from adt.host.directories import cache_dir
from adt.package.package import load_package

EMULATORS = {
    "linux-aarch64": ("qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu"),
    "linux-armhf": ("qemu-arm-static", "-L", "/usr/arm-linux-gnueabihf"),
}
"""Platform to the command that runs its programs; the host's run by themselves."""


@functools.cache
def rtvm_of(platform: str, *, xnnpack: bool, cache: Path) -> Path:
    """Return rtvm of the bundle in *cache*, which is asked for once: to see that it is current takes a while."""
    bundle = adt.build_target(platform=platform, xnnpack=xnnpack).bundle
    assert isinstance(bundle, TargetBundle)
    return bundle.path / "bin/rtvm"


def outputs_of(
    package: Path, inputs: Mapping[str, np.ndarray], *, processor: str = "max", timeout: float | None = None
) -> dict[str, np.ndarray]:
    """Return the package's outputs on its platform, if that is not the host's on an emulated *processor*
    (qemu's name).

    Raises:
        AssertionError: rtvm failed.
        subprocess.TimeoutExpired: it took longer than *timeout* seconds.
    """
    manifest = load_package(package).manifest
    platform = manifest.target.platform
    rtvm = rtvm_of(platform, xnnpack="xnnpack" in manifest.offload, cache=cache_dir())
    with tempfile.TemporaryDirectory() as place:
        in_file, computed = Path(place, "in.npz"), Path(place, "out.npz")
        np.savez(in_file, **dict(inputs))
        words = [rtvm, "--model", package, "--input", in_file, "--output", computed]
        emulator = (*EMULATORS[platform], "-cpu", processor) if platform in EMULATORS else ()
        command = [*emulator, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
        assert done.returncode == 0, f"{done.returncode}: {done.stderr}"
        with np.load(computed) as outputs:
            return dict(outputs)
