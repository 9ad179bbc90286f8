"""A package and a bundle: are they whole, and do they fit each other and the devices that are connected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from adt.bundle.bundle import TargetBundle, cached_bundles, load_bundle
from adt.checkup.check import Area, Check, Question, Scope, Status, failed, ok, warning
from adt.checkup.device import look, ready
from adt.device.deploy.payload import check_device
from adt.device.device import Device
from adt.errors import AdtError, MismatchError
from adt.host import cache
from adt.package.compatibility import check_pair
from adt.package.package import ModelPackage, load_package

WHOLE = "its files are those that"


def check_package(path: Path) -> tuple[ModelPackage | None, Check]:
    """Open the package in *path*, its hashes included."""
    try:
        package = load_package(path)
    except AdtError as error:
        return None, failed("package", error.what, str(path), error.remedy)
    manifest = package.manifest
    target = f"{manifest.target.platform} ({manifest.target.name})"
    summary = f"{manifest.name} for {target}, TVM {manifest.tvm.version}; {WHOLE} mod.json describes"
    return package, ok("package", summary, str(path))


def check_bundle(path: Path, origin: str) -> tuple[TargetBundle | None, Check]:
    """Open the bundle in *path*, its hashes included."""
    try:
        bundle = load_bundle(path)
    except AdtError as error:
        return None, failed("bundle", error.what, f"{path}, {origin}", error.remedy)
    manifest = bundle.manifest
    summary = f"for {manifest.platform}, TVM {manifest.tvm.version}; {WHOLE} bundle.json describes"
    return bundle, ok("bundle", summary, f"{path}, {origin}")


def newest_bundle(package: ModelPackage) -> Path | None:
    """Return the bundle that a verb would take for *package*, else the newest one of its platform."""
    bundles = cached_bundles((package.manifest.target.platform,))
    fitting = (bundle for bundle in bundles if check_fit(package, bundle).status is Status.OK)
    bundle = next(fitting, None) or next(iter(bundles), None)
    return bundle.path if bundle else None


def check_fit(package: ModelPackage, bundle: TargetBundle) -> Check:
    try:
        check_pair(bundle.manifest, package.manifest)
    except MismatchError as error:
        return failed("package and bundle", error.what, remedy=error.remedy)
    known = package.manifest.made.functions and bundle.manifest.functions
    parts = f"platform, module ABI, {'functions, ' if known else ''}tensor alignment, device"
    return ok("package and bundle", f"fit: {parts}", bundle.path.name)


def check_on(serial: str, bundle: TargetBundle, *, needed: bool) -> Check:
    """Check that the bundle runs on a device; it must when the device was named or is the only one."""
    name = f"bundle on {serial}"
    try:
        facts = Device(serial).facts
        check_device(bundle.manifest, facts, serial)
    except MismatchError as error:
        return failed(name, error.what, remedy=error.remedy, needed=needed)
    return ok(name, f"fits {facts.label}", "the device")


def questions(scope: Scope) -> Iterator[Question]:
    """Yield the only question: each part of it needs the one before."""
    if scope.package or scope.bundle or scope.named(Area.PACKAGE):
        yield Question("package", lambda: examine(scope))


def examine(scope: Scope) -> Iterator[Check]:
    """Check what was named with --package and --bundle."""
    if not (scope.package or scope.bundle):
        remedy = "Name it: adt doctor package --package DIR [--bundle DIR]"
        yield failed("package", "nothing to look at", remedy=remedy)
        return
    package = bundle = None
    if scope.package:
        package, check = check_package(scope.package)
        yield check
    path, origin = scope.bundle, "--bundle"
    if path is None and package:
        platform = package.manifest.target.platform
        path, origin = newest_bundle(package), "the newest one built here"
        if path is None:
            remedy = f"adt build-target --for {platform}, or name one with --bundle DIR"
            where = str(cache.cache_dir() / "bundles")
            yield warning("bundle", f"none for {platform} was built here", where, remedy)
    if path:
        bundle, check = check_bundle(path, origin)
        yield check
    if package and bundle:
        yield check_fit(package, bundle)
    if bundle:
        serials = ready(look, scope.serial)
        for serial in serials:
            yield check_on(serial, bundle, needed=len(serials) == 1)
