"""Run a package that was compiled for this machine, on its CPU or its OpenCL device, with TVM's wheel.

The model runs in a child process (:mod:`adt.package.host_run.child`): an OpenCL driver
that crashes, hangs or refuses a kernel becomes an error that says so. The child stays
for further runs; after an error the next run starts another one.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from adt.bundle.libraries import titles
from adt.bundle.platforms import PLATFORMS
from adt.errors import MismatchError, RunError, ToolNotFound
from adt.host.child import Child, ChildFailed, ChildHung
from adt.host.process import environment
from adt.numerics import Array
from adt.package.compatibility import check_half, check_own_cpu
from adt.package.files import LIBRARY
from adt.package.host_run.opencl import HostOpenCl, opencl_device
from adt.package.manifest import PackageManifest, check_inputs
from adt.package.package import load_package

NO_OPENCL = "Install a driver: apt-get install pocl-opencl-icd   (OpenCL on the CPU), or your GPU's."
CPU = "this machine's CPU"
MOST_LOADED = 40  # libraries after which another child is started
CHATTER = re.compile(r"Warning: Scope Loaded|^\s*$")
"""Lines that TVM's runtime writes without anything being wrong: one for each constant."""


@dataclass(frozen=True)
class HostRun:
    """One run of a package."""

    package: Path
    inputs: Mapping[str, Array]
    entry: str = "main"


def run_package(package: Path, inputs: Mapping[str, Array], *, timeout: float) -> dict[str, Array]:
    """Run the package in the directory *package* once on this machine; see :func:`run_packages`."""
    return run_packages([HostRun(package, inputs)], timeout=timeout)[0]


def run_packages(runs: Sequence[HostRun], *, timeout: float) -> list[dict[str, Array]]:
    """Run packages one after another in one child process, in *timeout* seconds; each is loaded once.

    Returns the outputs of each run by name; the same package may come several times.
    """
    packages = {run.package: load_package(run.package).manifest for run in runs}
    for manifest in packages.values():
        _check_machine(manifest)
    for run in runs:
        manifest = packages[run.package]
        check_inputs(manifest.name, manifest.entry(run.entry), run.inputs)
    device, plugins = _opencl(packages.values())
    outputs = []
    with _Kept.lock:
        child = _kept(packages)
        end = time.monotonic() + timeout
        try:
            for run in runs:
                manifest = packages[run.package]
                request = _request(run, manifest, device, plugins) | {"last": run is runs[-1]}
                answer = child.ask(request, max(end - time.monotonic(), 0))
                if "error" in answer:
                    raise _failure(answer, manifest, device)
                names = (spec.name for spec in manifest.entry(run.entry).outputs)
                outputs.append(dict(zip(names, answer["outputs"], strict=True)))
        except ChildFailed as failure:
            raise _ended(failure, manifest, device, timeout) from failure
        except BaseException:
            child.kill()  # with what it loaded, and what a driver that failed has become
            raise
    return outputs


class _Kept:
    """The child, which loads TVM once for many runs of this process."""

    lock: ClassVar = threading.RLock()
    child: ClassVar[Child | None] = None
    environment: ClassVar[dict[str, str]] = {}
    """Environment of the child: drivers read it when they are loaded."""
    loaded: ClassVar[dict[Path, tuple[int, ...]]] = {}
    """The libraries that it holds, each with device, inode, time and size: TVM closes none."""


def _kept(packages: Iterable[Path]) -> Child:
    """Return the child of earlier runs, or another one where that could not load *packages* as they are."""
    now = environment()
    stats = {path: path.stat() for path in (package.absolute() / LIBRARY for package in packages)}
    facts = {path: (s.st_dev, s.st_ino, s.st_mtime_ns, s.st_size) for path, s in stats.items()}
    changed = any(
        fact != old and (path == other or fact[:2] == old[:2])
        for path, fact in facts.items()
        for other, old in _Kept.loaded.items()
    )
    if _Kept.child is None or changed or now != _Kept.environment or len(_Kept.loaded) >= MOST_LOADED:
        if _Kept.child is not None:
            _Kept.child.close()
        _Kept.child, _Kept.environment, _Kept.loaded = Child("adt.package.host_run.child"), now, {}
    _Kept.loaded |= facts
    return _Kept.child


def _forget() -> None:
    """Leave the child to the parent, after a fork."""
    _Kept.child, _Kept.lock = None, threading.RLock()


os.register_at_fork(after_in_child=_forget)


def _opencl(packages: Collection[PackageManifest]) -> tuple[HostOpenCl | None, list[Path]]:
    """Find the device and the plugins that the packages need; none for the CPU alone."""
    if not any("opencl" in package.target.vdevices for package in packages):
        return None, []
    from adt.bundle.plugins import opencl_runtime

    device = opencl_device()
    if device is None:
        raise ToolNotFound("this machine has no OpenCL device to run the package on", remedy=NO_OPENCL)
    for package in packages:
        check_half(package, f"{device} of this machine", fp16=device.fp16)
    return device, [opencl_runtime()]


def _request(
    run: HostRun, manifest: PackageManifest, device: HostOpenCl | None, plugins: Sequence[Path]
) -> dict[str, Any]:
    entry = manifest.entry(run.entry)
    return {
        "plugins": [str(plugin) for plugin in plugins],
        "opencl": {"platform": device.platform, "name": device.name} if device else {},
        "package": str(run.package.absolute()),
        "entry": entry.name,
        "params": list(entry.params),
        "images": list(entry.images),
        "vdevices": list(manifest.target.vdevices),
        "inputs": [run.inputs[spec.name] for spec in entry.inputs],
    }


def _check_machine(manifest: PackageManifest) -> None:
    compile_here = partial(manifest.source.compile_command, "--for", "host")
    if manifest.libraries:
        without = compile_here("--target", manifest.target.name, "--offload", "none")
        raise MismatchError(
            f"the package {manifest.name} hands operators to {titles(manifest.libraries)}, which is not here",
            remedy=f"Compile it without: {without}",
        )
    if not manifest.target.for_this_machine:
        raise MismatchError(
            f"the package {manifest.name} is compiled for {manifest.target.platform} "
            f"({manifest.target.machine}), this machine is {PLATFORMS['host'].machine}",
            remedy=f"Compile it for this machine: {compile_here('--target', manifest.target.name)}",
        )
    check_own_cpu(manifest)


def _ended(
    failure: ChildFailed, manifest: PackageManifest, device: HostOpenCl | None, timeout: float
) -> RunError:
    """Describe the end of a child that gave no answer."""
    where = device or CPU
    lines = (line for line in failure.output.splitlines() if not CHATTER.search(line))
    details = "\n".join(lines)[-4000:]
    if isinstance(failure, ChildHung):
        return RunError(
            f"the package {manifest.name} did not end on {where} within {timeout:g} s",
            remedy="Allow more time, or look at the driver: other programs hang, too, where it does.",
            details=details,
        )
    code = failure.code
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return RunError(
        f"running the package {manifest.name} on {where} ended with {how}",
        remedy=_remedy(manifest, device),
        details=details,
    )


def _remedy(manifest: PackageManifest, device: HostOpenCl | None) -> str:
    if device is None:
        return "Compile it again; if it still fails, report the message with the model."
    return (
        f"Try the same on the CPU ({manifest.source.compile_command('--for', 'host', '--target', 'cpu')}): "
        "if it works, it is the driver's fault or the kernels'."
    )


def _failure(answer: Mapping[str, Any], manifest: PackageManifest, device: HostOpenCl | None) -> RunError:
    """Describe what TVM raised in the child."""
    where = device or CPU
    text = str(answer["error"])
    if "OpenCL build error" in text or "CL_BUILD_PROGRAM_FAILURE" in text:
        return RunError(
            f"the OpenCL driver of {where} does not build a kernel of the package {manifest.name}",
            remedy="The driver's build log is below. Compile with --target adreno-buffer or opencl if the "
            "kernel uses textures, and report the kernel.",
            details=text[max(text.find("OpenCL build error"), 0) :][:8000],
        )
    stage = {"load": "cannot be loaded", "device": "finds no device", "start": "cannot be run"}
    lines = [line for line in text.splitlines() if line.strip()]
    return RunError(
        f"the package {manifest.name} {stage.get(str(answer.get('stage')), 'failed')} on {where}: "
        f"{lines[-1].strip() if lines else 'it said nothing'}",
        remedy=_remedy(manifest, device),
        details="\n".join(lines[-30:]),
    )
