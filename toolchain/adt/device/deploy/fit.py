"""Do a bundle, a package and a device fit each other? Asked before anything is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adt.errors import MismatchError
from adt.package.compatibility import check_cpu, check_pair

if TYPE_CHECKING:
    from adt.bundle.bundle import BundleManifest
    from adt.device.survey import DeviceFacts
    from adt.package.manifest import PackageManifest


def check_device(bundle: BundleManifest, facts: DeviceFacts, serial: str) -> None:
    """Check that *bundle* runs on the device with these *facts*; the remedy names what to build."""
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


def check_fit(
    bundle: BundleManifest, package: PackageManifest | None, facts: DeviceFacts, *, serial: str
) -> None:
    """Check bundle, package and device against each other."""
    check_device(bundle, facts, serial)
    if package is not None:
        check_pair(bundle, package)
        check_cpu(package, facts.cpu_features, f"device {serial}", "--like", serial)
