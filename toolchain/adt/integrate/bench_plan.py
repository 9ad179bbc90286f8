"""``assets/adt/bench.json``: what the app of an APK measures, and how; libadt_activity.so reads it."""

from __future__ import annotations

from dataclasses import dataclass

from adt import __version__
from adt.host import manifest

SCHEMA = "adt.app-bench-plan"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class PlannedModel:
    """One model that is measured."""

    stem: str
    """Of its directory below assets/adt/, and of its result's file."""
    library: str
    """mod.so as the app carries it: ``libdetector_model.so``."""
    entry: str


@dataclass(frozen=True)
class BenchPlan:
    """The file; the activity refuses one that lacks a field or has another."""

    app: str
    """The application's id: ``com.example.vision``."""
    bundle_digests: dict[str, str]
    """sha256 of each bundle's bundle.json, by ABI."""
    models: tuple[PlannedModel, ...]
    device: str = ""
    """``cpu`` or ``opencl``; empty for what each package was compiled for."""
    threads: int = 0
    """CPU threads; 0 for the runtime's choice."""
    affinity: str = ""
    """``big``, ``little``, ``all`` or CPU numbers; empty for the runtime's choice."""
    seed: int = 0
    """Of the made-up inputs."""
    end_to_end: bool = False
    """A timed run copies the inputs in and the outputs out, too."""
    warmup_runs: int = 3
    """Untimed runs, at least …"""
    warmup_ms: int = 500
    """… and for at least so long, milliseconds."""
    runs: int = 50
    """Timed runs, at least …"""
    min_ms: int = 3000
    """… and for at least so long, milliseconds."""
    sample_ms: int = 1000
    """Temperatures and clocks between the runs, at most so often; 0 for never."""
    adt_version: str = __version__
    """adt that made the application."""
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION

    def text(self) -> str:
        """The file's contents."""
        return manifest.dumps(self)
