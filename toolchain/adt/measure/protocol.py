"""Protocol of a benchmark: warm-up and duration."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from adt.errors import ConfigError
from adt.measure.statistics import FEWEST_ROUNDS
from adt.options.resolve import did_you_mean


@dataclass(frozen=True)
class Protocol:
    """Untimed runs, then timed ones; each goes on until both its number and its time are reached."""

    name: str
    warmup_runs: int
    warmup_ms: float
    runs: int
    seconds: float
    rounds: int = 8
    """Rounds of an interleaved comparison, each A B B A."""
    headline: str = "p50"
    """The quantile that stands for the result: ``p50`` or ``p90``."""

    @property
    def key(self) -> str:
        """Return what tells apart measurements that must not be compared: the name, and what was changed."""
        base = PROTOCOLS[self.name]
        changed = [
            f"{field.name}={getattr(self, field.name):g}"
            for field in dataclasses.fields(self)
            if field.name not in ("name", "headline", "rounds")
            and getattr(self, field.name) != getattr(base, field.name)
        ]
        return f"{self.name} ({', '.join(changed)})" if changed else self.name

    @property
    def text(self) -> str:
        """For people."""
        return (
            f"{self.name}: runs ≥ {self.warmup_runs} and {self.warmup_ms:g} ms to warm up, "
            f"then runs ≥ {self.runs} and {self.seconds:g} s"
        )


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("default", warmup_runs=3, warmup_ms=500, runs=50, seconds=3),
        Protocol("quick", warmup_runs=1, warmup_ms=50, runs=10, seconds=0.2, rounds=6),
        Protocol("mlperf", warmup_runs=3, warmup_ms=500, runs=1024, seconds=60, headline="p90"),
    )
}
"""``mlperf`` is as long as MLPerf's single-stream scenario and reports its p90; it is no MLPerf result."""


def protocol_named(
    name: str = "default",
    *,
    runs: int | None = None,
    seconds: float | None = None,
    warmup_runs: int | None = None,
    warmup_ms: float | None = None,
    rounds: int | None = None,
) -> Protocol:
    """Return the protocol *name*, with the given values in place of its own."""
    if name not in PROTOCOLS:
        raise ConfigError(
            f"there is no protocol {name!r}.{did_you_mean(name, PROTOCOLS)}",
            remedy=f"Choose of: {', '.join(PROTOCOLS)}; change one with --runs, --seconds and --warmup-runs.",
        )
    asked = {
        "runs": runs,
        "seconds": seconds,
        "warmup_runs": warmup_runs,
        "warmup_ms": warmup_ms,
        "rounds": rounds,
    }
    changes = {key: value for key, value in asked.items() if value is not None}
    for key, value in changes.items():
        lowest = {"runs": 1, "rounds": FEWEST_ROUNDS}.get(key, 0)
        if not lowest <= value < float("inf"):
            raise ConfigError(
                f"{key.replace('_', '-')} cannot be {value:g}", remedy=f"Give at least {lowest}."
            )
    return dataclasses.replace(PROTOCOLS[name], **changes)  # type: ignore[arg-type]  # named as the fields
