"""Fault injection, for tests only: make the virtual device misbehave the way real devices do.

``$ADT_TEST_EMULATOR_FAULTS`` holds a comma-separated list, read when an emulator is started:

``drop_after=BYTES``  the transport is cut after that many bytes of pushed files
``reject``            the key dialog is never answered: the device stays *unauthorized*
``offline``           TCP connects but CNXN is never answered: the device stays *offline*
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from adt.errors import ConfigError

VARIABLE = "ADT_TEST_EMULATOR_FAULTS"


@dataclass(frozen=True)
class Faults:
    """Which faults are injected; the default injects none."""

    drop_after: int = 0
    """Cut the transport after this many pushed bytes; 0 for never."""
    reject: bool = False
    """Ask for authentication and accept no key."""
    offline: bool = False
    """Accept the TCP connection and never answer on it."""

    def any(self) -> bool:
        """Whether any fault is injected."""
        return self != Faults()


def parse(text: str) -> Faults:
    """The faults named in *text*.

    Raises:
        ConfigError: an unknown fault or a bad number.
    """
    found = Faults()
    for word in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = word.partition("=")
        if key == "drop_after" and value.isdigit():
            found = Faults(int(value), found.reject, found.offline)
        elif word == "reject":
            found = Faults(found.drop_after, True, found.offline)
        elif word == "offline":
            found = Faults(found.drop_after, found.reject, True)
        else:
            raise ConfigError(
                f"{VARIABLE} names an unknown fault: {word!r}",
                remedy="Use drop_after=BYTES, reject, offline, separated by commas; unset it for none.",
            )
    return found


def from_environment() -> Faults:
    """The faults that the environment asks for.

    Raises:
        ConfigError: the variable cannot be read.
    """
    return parse(os.environ.get(VARIABLE, ""))
