"""Room on the device: how much is left, and the error when it is not enough."""

from __future__ import annotations

import re
from shlex import quote

from adt.errors import DeviceFull


def parse_free(text: str) -> int | None:
    """Bytes available, from what ``df -k PATH`` prints; None when it cannot be read."""
    # a long file system name may push the numbers onto a line of their own
    row = re.search(r"\s(\d+)\s+(\d+)\s+(\d+)\s+\d+%", " ".join(text.splitlines()[1:]))
    return int(row[3]) * 1024 if row else None


def size_text(count: int) -> str:
    """*count* bytes, for people."""
    if count < 1024:
        return f"{count} B"
    for unit, name in ((30, "GiB"), (20, "MiB")):
        if count >= 1 << unit:
            return f"{count / (1 << unit):.1f} {name}"
    return f"{count / 1024:.1f} KiB"


def no_room(serial: str, what: str, *, free: int | None) -> DeviceFull:
    """The error for *what* (a sentence part, "mod.so does not fit") on a full device.

    Args:
        free: bytes left; None when the device does not say.
    """
    left = "" if free is None else f" ({size_text(free)} free)"
    return DeviceFull(
        f"device {serial} is full{left}: {what}",
        remedy=f"Make room, then run the same command again: `adt clean --serial {quote(serial)}` removes "
        "old deployments (with `--keep 0` all that are not in use; they are sent again when needed). What "
        "was deployed before is untouched so far.",
    )
