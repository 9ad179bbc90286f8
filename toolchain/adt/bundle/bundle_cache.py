"""The bundles in the cache: list them, take the newest one that fits, remove them.

Whatever they were built with: to use a bundle takes neither its compiler nor the settings of its build.
"""

from __future__ import annotations

import functools
import logging
import shutil
from collections.abc import Callable, Sequence

from adt.bundle.bundle import MANIFEST, TargetBundle, load_bundle
from adt.errors import MismatchError, PackageError, RpcError
from adt.host import cache
from adt.host.disk import disk_errors
from adt.options.resolve import did_you_mean

log = logging.getLogger("adt.bundles")

Check = Callable[[TargetBundle], None]
"""Raises MismatchError or RpcError when a bundle cannot be used."""


def cached_bundles(platforms: Sequence[str] | None = None) -> tuple[TargetBundle, ...]:
    """Return the cache's readable bundles, newest first, of all platforms or in the order of *platforms*."""
    bundles = []
    for path in (cache.cache_dir() / "bundles").glob(f"*/{MANIFEST}"):
        try:
            bundles.append(load_bundle(path.parent, check_hashes=False))
        except PackageError as error:
            log.debug("%s", error)
    bundles.sort(key=lambda bundle: -bundle.built)
    if platforms is None:
        return tuple(bundles)
    rank = list(platforms).index
    fitting = [bundle for bundle in bundles if bundle.manifest.platform in platforms]
    return tuple(sorted(fitting, key=lambda bundle: rank(bundle.manifest.platform)))


def newest_with(program: str, platforms: Sequence[str]) -> TargetBundle | None:
    """Return the newest bundle with the file *program*, of the first of *platforms* that has one."""
    return next((bundle for bundle in cached_bundles(platforms) if program in bundle.manifest.files), None)


def newest_fitting(
    platforms: Sequence[str], check: Check, preferred: TargetBundle | None = None
) -> TargetBundle:
    """Return the newest bundle that passes *check*, of the first of *platforms* that has one; log its name.

    Args:
        preferred: taken before the newest one, if it is for one of the platforms and passes.

    Raises:
        MismatchError: there is none for the platforms.
        MismatchError, RpcError: none passes; what *check* says of the newest one.
    """
    fitting: list[TargetBundle] = []
    errors: list[MismatchError | RpcError] = []
    bundles = cached_bundles(platforms)
    if preferred is not None and preferred.manifest.platform in platforms:
        bundles = (preferred, *(bundle for bundle in bundles if bundle.path != preferred.path))
    for bundle in bundles:
        try:
            check(bundle)
        except (MismatchError, RpcError) as error:
            errors.append(error)
        else:
            fitting.append(bundle)
    if not fitting:
        raise next(iter(errors), None) or MismatchError(
            f"no bundle for {' or '.join(platforms)} was built here",
            remedy=f"adt build-target --for {platforms[0]}, or pass --bundle DIR",
        )
    _log_choice(_choice(fitting, "in use there" if fitting[0] is preferred else "the newest that fits"))
    return load_bundle(fitting[0].path)


def _choice(fitting: Sequence[TargetBundle], reason: str) -> str:
    """Describe the first of *fitting*, and those that differ from it in more than their age."""
    chosen, *others = fitting
    text = f"bundle {chosen.path.name}: {chosen.manifest.summary}"
    by_summary = {bundle.manifest.summary: bundle for bundle in reversed(others)}
    by_summary.pop(chosen.manifest.summary, None)
    if by_summary:
        text += f"; it is {reason}, these fit, too:"
    for summary, bundle in reversed(by_summary.items()):
        text += f"\n  --bundle {bundle.path}  {summary}"
    return text


@functools.cache
def _log_choice(text: str) -> None:
    """Log *text* once, however many devices or steps take the same bundle."""
    log.info("%s", text)


def remove_bundles(names: Sequence[str]) -> tuple[TargetBundle, ...]:
    """Remove the bundles of the cache's directories *names*, and what built them; all of them, or none."""
    bundles = {bundle.path.name: bundle for bundle in cached_bundles()}
    for name in names:
        if name not in bundles:
            raise PackageError(
                f"there is no bundle {name!r}.{did_you_mean(name, bundles)}",
                remedy="`adt bundles` lists them.",
            )
    chosen = tuple(bundles[name] for name in dict.fromkeys(names))
    for bundle in chosen:
        build = cache.cache_dir() / "build" / bundle.path.name
        with cache.lock(build), disk_errors(f"removing {bundle.path}", bundle.path):
            for directory in (bundle.path, build):
                if directory.exists():
                    shutil.rmtree(directory)
    return chosen


def superseded_bundles() -> tuple[TargetBundle, ...]:
    """Return the bundles that a newer one with the same options replaces."""
    newest: set[tuple[str, str]] = set()
    superseded = []
    for bundle in cached_bundles():
        key = bundle.manifest.platform, bundle.manifest.summary
        if key in newest:
            superseded.append(bundle)
        newest.add(key)
    return tuple(superseded)
