"""The bundles of this machine: which one a verb takes, and list or remove them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from adt.bundle import bundle as bundle_cache
from adt.bundle.bundle import TargetBundle, load_bundle
from adt.device.deploy.payload import check_device
from adt.device.device import Device
from adt.errors import MismatchError, RpcError
from adt.package.compatibility import check_pair
from adt.package.package import ModelPackage

SERVER = "bin/tvm_rpc"


def bundles() -> tuple[TargetBundle, ...]:
    """List every bundle that was built on this machine and is still there, newest first."""
    return bundle_cache.cached_bundles()


def bundles_remove(names: Sequence[str] = (), *, superseded: bool = False) -> tuple[TargetBundle, ...]:
    """Remove bundles from the cache, with the directories that they were built in.

    Args:
        names: of the bundles.
        superseded: also those of which a newer one with the same options is there.

    Returns:
        What was removed.

    Raises:
        PackageError: a name is of none; nothing was removed.
    """
    old = bundle_cache.superseded_bundles() if superseded else ()
    return bundle_cache.remove_bundles([*names, *(bundle.path.name for bundle in old)])


def choose_bundle(
    fitting: Sequence[str] | ModelPackage,
    explicit: Path | None = None,
    *,
    device: Device | None = None,
    server: bool = False,
    preferred: TargetBundle | None = None,
    computes: str = "cpu",
) -> TargetBundle:
    """Choose the bundle *explicit*, or the newest that fits of the first platform that has one.

    *fitting* are the platforms, or the package that it must fit. It must fit *device*, have an RPC *server*
    and the runtime of *computes*; *preferred* is first.
    """
    package = fitting if isinstance(fitting, ModelPackage) else None
    platforms = [fitting.manifest.target.platform] if isinstance(fitting, ModelPackage) else fitting

    def check(bundle: TargetBundle) -> None:
        if device is not None:
            check_device(bundle.manifest, device.facts, device.serial)
        if package is not None:
            check_pair(bundle.manifest, package.manifest)
        if title := bundle.manifest.options.missing_runtime(computes):
            raise MismatchError(
                f"the kernels compute on {title}, the bundle {bundle.path} has no {title} runtime",
                remedy=f"Build it with {title}: adt build-target --for {bundle.manifest.platform} "
                f"--{computes}; or compute on the CPU: --target cpu",
            )
        if server and SERVER not in bundle.manifest.files:
            raise RpcError(
                f"the bundle {bundle.path} has no tvm_rpc",
                remedy=f"Build it with RPC: adt build-target --for {bundle.manifest.platform} --rpc; or do "
                "without, where the verb can: deploy --no-rpc, --via native.",
            )

    if explicit is None:
        return bundle_cache.newest_fitting(platforms, check, preferred)
    bundle = load_bundle(explicit)
    check(bundle)
    return bundle
