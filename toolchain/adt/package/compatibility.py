"""Checks, before anything is sent, of whether a bundle, a package and the CPUs fit each other."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from adt.bundle.libraries import join_libraries
from adt.errors import MismatchError

if TYPE_CHECKING:
    from adt.bundle.bundle import BundleManifest
    from adt.package.manifest import PackageManifest


def check_pair(bundle: BundleManifest, package: PackageManifest) -> None:
    """Check that *package* runs on the runtime in *bundle*."""
    name, target, platform = package.name, package.target, bundle.platform
    rebuild = f"adt build-target --for {platform}"
    recompile = package.source.compile_command("--for", platform)
    if (target.platform, target.machine) != (platform, bundle.machine):
        raise MismatchError(
            f"the package {name} is compiled for {target.platform} ({target.machine}), the bundle is for "
            f"{platform} ({bundle.machine})",
            remedy=f"Compile the model for the bundle: {recompile}; or build a bundle for the package: adt "
            f"build-target --for {target.platform}",
        )
    if missing := sorted(set(package.tvm.context_symbols) - set(bundle.context_symbols)):
        raise MismatchError(
            f"the package {name} comes from TVM {package.tvm.version} and needs {', '.join(missing)}, which "
            f"the bundle's runner (TVM {bundle.tvm.version}) does not supply",
            remedy=f"Build the bundle from the source of TVM {package.tvm.version}: {rebuild}; or compile "
            f"the model with TVM {bundle.tvm.version}: {recompile}",
        )
    calls = package.made.functions if bundle.functions else ()
    if lacking := [function for function in calls if function not in bundle.functions]:
        raise MismatchError(
            f"the package {name} calls {', '.join(lacking)}, which the bundle's runtime does not have",
            remedy=f"Compile the model again with this adt: {recompile}; or build the bundle from the source"
            f" of TVM {package.tvm.version}: {rebuild}",
        )
    if package.alignment > bundle.options.alignment:
        raise MismatchError(
            f"the package {name} assumes tensors aligned to {package.alignment} bytes, the bundle's runtime "
            f"aligns to {bundle.options.alignment}",
            remedy=f"Build the bundle with that alignment: {rebuild} --alignment {package.alignment}; or "
            f"compile the model again for this bundle: {recompile}",
        )
    if title := bundle.options.missing_runtime(target.device):
        raise MismatchError(
            f"the package {name} computes on {title}, the bundle has no {title} runtime",
            remedy=f"Build the bundle with it: {rebuild} --{target.device}; or compile for the CPU: "
            f"{recompile} --target cpu",
        )
    for library in package.libraries:
        if library not in bundle.options.libraries:
            others = tuple(other for other in package.libraries if other != library)
            raise MismatchError(
                f"the package {name} hands operators to {library.title}, the bundle has no {library.title} "
                "runtime",
                remedy=f"Build the bundle with it: {rebuild} {library.build_option}; or compile without: "
                f"{recompile} --target {target.name} --offload {join_libraries(others)}",
            )


def check_cpu(package: PackageManifest, offers: frozenset[str], where: str, *options: str) -> None:
    """Check that CPUs have what the package's code uses, which would end with SIGILL otherwise.

    They *offer* features in the kernel's names (empty: not known); *options* make ``adt compile`` fit them.
    """
    again = package.source.compile_command
    if missing := _missing(package.target.cpu_features, offers):
        raise MismatchError(
            f"the package {package.name} is compiled for CPUs with {', '.join(missing)}, which those of"
            f" {where} lack",
            remedy=f"Compile it for these: {again(*options)}; or for any CPU of the platform: "
            f"{again('--for', package.target.platform, '--cpu', 'generic')}",
        )


def check_tuned_cpu(uses: Sequence[str], offers: frozenset[str], where: str) -> None:
    """Check that CPUs which measure kernels have the features that the code *uses*, against SIGILL."""
    if missing := _missing(uses, offers):
        raise MismatchError(
            f"the kernels are for CPUs with {', '.join(missing)}, which those of {where} lack",
            remedy="Tune where there are such: --serial SERIAL or --key KEY; or for these: leave --cpu away, "
            "or say --cpu native on this machine.",
        )


def _missing(uses: Sequence[str], offers: frozenset[str]) -> list[str]:
    """Return what of *uses* CPUs that offer *offers* lack; nothing where that is not known."""
    return sorted(set(uses) - offers) if offers else []


def check_own_cpu(package: PackageManifest) -> None:
    """Check that the CPUs of this machine have what the package's code uses."""
    check_cpu(package, own_features(), "this machine", "--for", "host")


def check_half(package: PackageManifest, device: str, *, fp16: bool) -> None:
    """Check that a *device* has cl_khr_fp16 if the package needs it: its driver would refuse the kernels."""
    if fp16 or not package.needs_half:
        return
    target = package.target
    again = package.source.compile_command("--for", target.platform, "--target")
    if package.precision == "float32":
        what = "as the model itself does"
        remedy = f"Compile it for the CPU: {again} cpu; or export the model in float32."
    else:
        what = f"({package.precision})"
        remedy = f"Compile it in float32: {again} {target.name} --precision float32"
    raise MismatchError(
        f"the package {package.name} computes in half precision {what}, which {device} does not: its OpenCL "
        "lacks cl_khr_fp16",
        remedy=remedy,
    )


def common_features(cpuinfo: str, machine: str) -> frozenset[str]:
    """Return the features that all CPUs of /proc/cpuinfo have, in the kernel's names (``asimddp``, ``avx2``).

    An emulated *machine* (``uname -m``) may show the lines of the one that emulates it.
    """
    key = "flags" if machine.endswith("86") or machine == "x86_64" else "Features"
    rows = re.findall(rf"^{key}\s*:(.*)$", cpuinfo, re.MULTILINE)
    features = [frozenset(row.split()) for row in rows]
    return frozenset.intersection(*features) if features else frozenset()


def own_features() -> frozenset[str]:
    """Return the features of every CPU of this machine."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    return common_features(text, platform.machine())
