"""The bundles that were built on this machine, whatever they were built with."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from adt.errors import PackageError
from adt.host.cache import cache_dir
from adt.target.bundle import MANIFEST, TargetBundle, load_bundle

log = logging.getLogger("adt.build")


def newest_with(program: str, platforms: Sequence[str]) -> TargetBundle | None:
    """The bundle in the cache that was built last for the first of *platforms* that has one with *program*.

    For what any bundle of a platform can do; what runs a model goes by
    :func:`adt.target.build.find_bundle`, which knows the present settings.

    Args:
        program: name of a file of the bundle, e.g. ``bin/adt_probe``.
    """
    found: list[tuple[int, float, TargetBundle]] = []
    for bundle in built_bundles():
        if bundle.manifest.platform in platforms and program in bundle.manifest.files:
            rank = list(platforms).index(bundle.manifest.platform)
            found.append((rank, -(bundle.path / MANIFEST).stat().st_mtime, bundle))
    return min(found, key=lambda item: item[:2])[2] if found else None


def built_bundles() -> Iterator[TargetBundle]:
    """All bundles in the cache; those that cannot be read are passed over."""
    for path in (cache_dir() / "bundles").glob(f"*/{MANIFEST}"):
        try:
            yield load_bundle(path.parent, check_hashes=False)
        except PackageError as why:
            log.debug("%s", why)
