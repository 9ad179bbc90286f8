"""Whether an app's libraries load on devices with pages of 16 KB: Google Play refuses one whose do not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from adt.bundle.audit.binaries import Binary, collect
from adt.bundle.audit.checks import may_have_large_pages
from adt.bundle.audit.destination import ANDROID
from adt.bundle.audit.pages import LARGE_PAGES, obstacle
from adt.errors import BuildError
from adt.integrate.contents import LIBRARIES


def check_large_pages(files: Mapping[str, Path]) -> None:
    """Refuse libraries that pages of 16 KB cannot map, as `adt elf` judges them.

    Args:
        files: by their paths in the APK; only libraries are looked at.

    Raises:
        BuildError: there is one for a machine whose devices may have such pages.
    """
    small = {
        name: reason
        for name, path in files.items()
        if name.startswith(LIBRARIES)
        for binary in collect(path)
        if isinstance(binary, Binary)
        and may_have_large_pages(binary.facts.machine, ANDROID)
        and (reason := obstacle(binary.facts, LARGE_PAGES, bionic=True))
    }
    if small:
        first = next(iter(small))
        raise BuildError(
            f"{first} does not load on devices with pages of 16 KB: {small[first]}"
            + (f"; nor do {len(small) - 1} more" if len(small) > 1 else ""),
            remedy="Build the bundle with NDK r28 or newer, whose libc++_shared.so is for such pages, too: "
            "adt build-target --ndk DIR; then compile the package anew. For devices with pages of 4 KB alone "
            "give --allow-4k.",
            details="\n".join(f"{name}: {reason}" for name, reason in small.items()),
        )
