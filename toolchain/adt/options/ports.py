"""Range of TCP ports, as settings, requests, trackers and servers have it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from adt.errors import ConfigError

LAST_PORT = 65535


@dataclass(frozen=True)
class PortRange:
    """Ports that are tried in their order, both ends included."""

    first: int
    last: int
    insisted: bool = False
    """True if the caller named them: a tracker or server that runs on another port does not do."""

    def __post_init__(self) -> None:
        if self.first > self.last or self.first < 1 or self.last > LAST_PORT:
            named = "an empty range" if self.first > self.last else str(self)
            raise ConfigError(
                f"{named} is not a range of ports", remedy="Give the first and the last one, of 1 to 65535."
            )

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last + 1))

    def __contains__(self, port: int) -> bool:
        return self.first <= port <= self.last

    def __len__(self) -> int:
        return self.last + 1 - self.first

    def __str__(self) -> str:
        return f"{self.first} to {self.last}"

    def chosen(self, first: int | None, last: int | None) -> PortRange:
        """Return the range with the ends that are given; a first one alone takes as many ports as before."""
        if first is None and last is None:
            return self
        if last is None:
            last = min(LAST_PORT, (first or self.first) + len(self) - 1)
        return PortRange(self.first if first is None else first, last, insisted=True)
