"""Check that an app's libraries load on devices with pages of 16 KB: Google Play refuses others."""

from __future__ import annotations

from collections.abc import Iterable

from adt.bundle.audit.binaries import Binary, Unreadable
from adt.bundle.audit.destination import ANDROID, LARGE_PAGES, may_have_large_pages, obstacle
from adt.errors import BuildError


def check_large_pages(libraries: Iterable[Binary | Unreadable]) -> None:
    """Refuse *libraries* that pages of 16 KB cannot map, as `adt elf` judges them."""
    small = {
        binary.name: reason
        for binary in libraries
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
