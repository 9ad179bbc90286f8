"""Faults that tests inject into a virtual device, and the specifications that name them.

A specification is ``KIND``, ``KIND=VALUE``, and ``@once`` behind either: the fault is
gone after it struck once. This module only reads them; what they do is in
:mod:`adt.virtual.injection` and where it calls for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from adt.errors import ConfigError
from adt.options.resolve import did_you_mean

ONCE = "@once"
BYTES = re.compile(r"([0-9]+)([kmg]?)", re.I)
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


@dataclass(frozen=True)
class Kind:
    """One kind of fault."""

    name: str
    value: str
    """What follows ``=``: ``BYTES``, ``SECONDS`` or ``DIR``; in brackets when it may be left out; empty
    when there is none."""
    effect: str
    """What happens, for the error message and the documentation."""
    state: bool = False
    """Whether it is a state of the device, which has no moment at which it strikes: no ``@once``."""

    @property
    def usage(self) -> str:
        """How it is written."""
        if self.value.startswith("["):
            return f"{self.name}[={self.value[1:]}"
        return f"{self.name}={self.value}" if self.value else self.name


KINDS = {
    kind.name: kind
    for kind in (
        Kind("drop-after", "BYTES", "the connection is cut after that many bytes of streams, both ways"),
        Kind("stall-after", "BYTES", "after that many bytes nothing is answered, and the connection stays"),
        Kind("reboot-after", "BYTES", "after that many bytes the device restarts"),
        Kind("bandwidth", "BYTES", "each direction carries so many bytes a second"),
        Kind("truncate", "[BYTES]", "answers of sync and shell end early (by default half-way) and close"),
        Kind("enospc", "[BYTES]", "pushed files find no space once that many bytes (by default 0) are in"),
        Kind("wrong-hash", "", "a pushed file is stored with one byte changed"),
        Kind("readonly", "DIR", "that directory of the device is mounted read-only", state=True),
        Kind("unauthorized", "[SECONDS]", "the host's key is not accepted (or only after so long)"),
        Kind("offline", "", "connections are taken and the handshake is never answered"),
        Kind("no-shell-v2", "", "shell protocol 2 is not offered"),
    )
}
HANDSHAKE = ("unauthorized", "offline", "no-shell-v2")
"""Kinds that strike when an adb server connects."""


@dataclass(frozen=True)
class Fault:
    """One fault to inject."""

    kind: str
    value: str = ""
    """As it was written."""
    once: bool = False

    def __str__(self) -> str:
        """The specification."""
        return f"{self.kind}{'=' * bool(self.value)}{self.value}{ONCE * self.once}"

    @property
    def amount(self) -> int | None:
        """The value in bytes; None without one."""
        match = BYTES.fullmatch(self.value)
        return int(match[1]) * UNITS[match[2].lower()] if match else None

    @property
    def seconds(self) -> float | None:
        """The value in seconds; None without one."""
        return float(self.value) if self.value else None


def parse(specifications: Iterable[str]) -> tuple[Fault, ...]:
    """The faults named by *specifications*.

    Raises:
        ConfigError: an unknown kind, a value that does not fit it, or one kind twice (several
            ``readonly`` directories are fine).
    """
    found: list[Fault] = []
    for text in specifications:
        fault = _parse_one(text)
        if any(other.kind == fault.kind and not KINDS[fault.kind].state for other in found):
            raise ConfigError(
                f"fault {fault.kind} is given twice", remedy="Give each kind once; see --help for the list."
            )
        found.append(fault)
    return tuple(found)


def _parse_one(text: str) -> Fault:
    words, once, rest = text.strip().partition(ONCE)
    name, equals, value = words.partition("=")
    kind = KINDS.get(name)
    if kind is None or rest:
        raise bad(f"{text!r} is not a fault.{did_you_mean(name, KINDS)}")
    fault = Fault(name, value, bool(once))
    if once and kind.state:
        raise ConfigError(
            f"{text!r}: {name} is a state of the device and cannot strike once",
            remedy=f"Leave {ONCE} away, and clear the fault when it is no longer wanted.",
        )
    if bool(equals) != bool(value) or not (_fits(kind, fault) if value else kind.value[:1] in ("", "[")):
        raise bad(f"{text!r} is not written as {kind.usage}")
    return fault


def _fits(kind: Kind, fault: Fault) -> bool:
    if kind.value.strip("[]") == "BYTES":
        amount = fault.amount
        return amount is not None and (amount > 0 or kind.name != "bandwidth")
    if kind.value.strip("[]") == "SECONDS":
        return re.fullmatch(r"[0-9]+(\.[0-9]+)?", fault.value) is not None
    return kind.value == "DIR" and fault.value.startswith("/")


def bad(what: str) -> ConfigError:
    """An error with every kind and what it does in its details."""
    return ConfigError(
        what,
        remedy=f"Use one of the faults listed here; {ONCE} behind it has it strike once.",
        details="\n".join(f"{kind.usage:<24} {kind.effect}" for kind in KINDS.values()),
    )
