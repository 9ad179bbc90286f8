"""Do a bundle, a package and a device fit each other? Asked before anything is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adt.errors import MismatchError
from adt.model.package.compatibility import check_pair

if TYPE_CHECKING:
    from adt.bundle.bundle import BundleManifest
    from adt.device.survey import DeviceFacts
    from adt.model.package.manifest import PackageManifest


def check_device(bundle: BundleManifest, facts: DeviceFacts, serial: str) -> None:
    """Check that *bundle* runs on the device that says *facts*.

    Raises:
        MismatchError: it does not; the remedy names what to build.
    """
    own = facts.platforms[0]
    if bundle.platform not in facts.platforms:
        raise MismatchError(
            f"the bundle is for {bundle.platform}, device {serial} runs {', '.join(facts.platforms)}",
            remedy=f"Build and compile for the device: adt build-target --for {own}; adt compile MODEL "
            f"--for {own}; or choose another device with --serial.",
        )
    level = facts.api_level
    if bundle.api_level is not None and level is not None and bundle.api_level > level:
        raise MismatchError(
            f"the bundle needs Android API level {bundle.api_level}, device {serial} has {level}",
            remedy=f"Build for the device's level: adt build-target --for {bundle.platform} --api-level "
            f"{level}",
        )
    if facts.page_size is not None and bundle.page_alignment < facts.page_size:
        raise MismatchError(
            f"the bundle's files are aligned to pages of {bundle.page_alignment} bytes, device {serial} has "
            f"pages of {facts.page_size}",
            remedy=f"Build it again: adt build-target --for {bundle.platform} (with an NDK whose "
            "libc++_shared.so is aligned to 16 KiB: r28 or newer).",
        )


def check_cpu(package: PackageManifest, facts: DeviceFacts, serial: str) -> None:
    """Check that the CPUs of the device that says *facts* have what the package's code uses.

    Raises:
        MismatchError: they do not: the code would end with SIGILL.
    """
    missing = sorted(set(package.target.cpu_features) - facts.cpu_features)
    again = package.source.compile_command
    if facts.cpu_features and missing:
        raise MismatchError(
            f"the package {package.name} is compiled for CPUs with {', '.join(missing)}, which those of"
            f" device {serial} lack",
            remedy=f"Compile it for the device: {again('--like', serial)}; or for any CPU of the platform, "
            f"without --cpu: {again('--for', package.target.platform)}",
        )


def check_fit(
    bundle: BundleManifest, package: PackageManifest | None, facts: DeviceFacts, *, serial: str
) -> None:
    """Check all three against each other.

    Raises:
        MismatchError: see :func:`check_pair`, :func:`check_device` and :func:`check_cpu`.
    """
    check_device(bundle, facts, serial)
    if package is not None:
        check_pair(bundle, package)
        check_cpu(package, facts, serial)
