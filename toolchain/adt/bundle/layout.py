"""Hand bundles over: a copy of one, or the libraries of several as an app's ``jniLibs/``."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from adt.bundle.bundle import MANIFEST, TargetBundle
from adt.errors import ConfigError
from adt.host import cache

LAYOUTS = ("bundle", "jni")


def check_layout(layout: str) -> None:
    """Raise ConfigError for a layout that is none of LAYOUTS, before anything is built."""
    if layout not in LAYOUTS:
        raise ConfigError(f"unknown layout {layout!r}", remedy=f"Choose one of: {', '.join(LAYOUTS)}.")


def export(bundles: Sequence[TargetBundle], out: Path, layout: str) -> None:
    """Write *bundles* to the directory *out*, which appears complete or not at all.

    ``bundle``: one bundle is *out* itself; several are its subdirectories, by ABI.
    ``jni``: ``jniLibs/<abi>/*.so``, ``include/`` and ``<abi>.bundle.json``, what an app is built from.

    Raises:
        PackageError: *out* exists and was not written by this function; it is left alone.
    """
    check_layout(layout)
    cache.leave_alone(out, _ours, "a bundle")
    with cache.fresh_dir(out) as directory:
        for bundle in bundles:
            abi = bundle.manifest.abi
            if layout == "jni":
                libraries = directory / "jniLibs" / abi
                libraries.mkdir(parents=True)
                for name in (name for name in sorted(bundle.manifest.files) if name.startswith("lib/")):
                    shutil.copy2(bundle.file(name), libraries)
                for header in bundle.manifest.headers:  # the same for each ABI
                    (directory / header).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(bundle.file(header), directory / header)
                shutil.copy2(bundle.path / MANIFEST, directory / f"{abi}.{MANIFEST}")
            else:
                place = directory if len(bundles) == 1 else directory / abi
                for name in (*bundle.manifest.all_files, MANIFEST):
                    (place / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(bundle.file(name), place / name)


def _ours(out: Path) -> bool:
    """Return True if *out* has the manifest of a bundle where :func:`export` puts it."""
    return any(next(out.glob(pattern), None) for pattern in (MANIFEST, f"*/{MANIFEST}", f"*.{MANIFEST}"))
