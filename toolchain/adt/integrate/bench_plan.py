"""``assets/adt/bench.json``: what an application measures, and how; libadt_activity.so reads it."""

from __future__ import annotations

from dataclasses import dataclass

from adt import __version__
from adt.errors import ConfigError
from adt.host import manifest
from adt.integrate.model_api import EntryApi, ModelApi, Project

SCHEMA = "adt.app-bench-plan"
SCHEMA_VERSION = 1
BENCH_PLAN = "assets/adt/bench.json"
"""Its path in the APK."""
ACTIVITY_CLASS = "android.app.NativeActivity"
"""Android's own; it loads libadt_activity.so, which the manifest names."""
RESULTS = "adt-bench"
"""Directory below the app's media files."""
ERROR = "error.json"
"""Instead of all results, when the app could not begin."""


@dataclass(frozen=True)
class PlannedExtent:
    """A symbol in an input's shape."""

    symbol: str
    extent: int


@dataclass(frozen=True)
class PlannedModel:
    """One model that is measured."""

    stem: str
    """Name of its directory below assets/adt/, and of its result's file."""
    library: str
    """Name of mod.so as the app carries it: ``libdetector_model.so``."""
    entry: str
    extents: tuple[PlannedExtent, ...] = ()
    """Extents of all symbols in the shapes of the entry's inputs."""
    shared_params: bool = False
    """True if mod.params lies in the directory itself, not in each ABI's below it."""


@dataclass(frozen=True)
class BenchPlan:
    """The file; the activity refuses one that lacks a field or has another."""

    app: str
    """The application's id: ``com.example.vision``."""
    bundle_digests: dict[str, str]
    """Digest of each bundle's bundle.json (sha256), by ABI."""
    models: tuple[PlannedModel, ...]
    """None: the application measures nothing, it is an RPC server."""
    device: str = ""
    """``cpu`` or ``opencl``; empty for what each package was compiled for."""
    threads: int = 0
    """CPU threads; 0 for the runtime's choice."""
    affinity: str = ""
    """``big``, ``little``, ``all`` or CPU numbers; empty for the runtime's choice."""
    seed: int = 0
    """Seed of the made-up inputs."""
    end_to_end: bool = False
    """A timed run copies the inputs in and the outputs out, too."""
    warmup_runs: int = 3
    """Untimed runs, at least …"""
    warmup_ms: int = 500
    """Least duration of the warm-up, in milliseconds."""
    runs: int = 50
    """Timed runs, at least …"""
    min_ms: int = 3000
    """Least duration of the measurement, in milliseconds."""
    sample_ms: int = 1000
    """Temperatures and clocks between the runs, at most so often; 0 for never."""
    adt_version: str = __version__
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION

    def text(self) -> str:
        """Return the file's contents."""
        return manifest.dumps(self)


def planned_models(project: Project, *, extent: int | None = None) -> tuple[PlannedModel, ...]:
    """Return each model with the entry that is measured: ``main``, else its first.

    Args:
        extent: of each symbol in the shapes of that entry's inputs; None: no shape may have one.
    """
    planned = []
    for model in project.packaged:
        entries = model.api.entries
        entry = next((entry for entry in entries if entry.name == "main"), entries[0])
        if extent is None:
            _check_shapes(model.api, entry)
        symbols = {size for tensor in entry.inputs for size in tensor.shape if isinstance(size, str)}
        extents = tuple(PlannedExtent(symbol, extent or 1) for symbol in sorted(symbols))
        library = f"lib{model.api.library}.so"
        planned.append(PlannedModel(model.api.stem, library, entry.name, extents, model.shares_params))
    return tuple(planned)


def _check_shapes(model: ModelApi, entry: EntryApi) -> None:
    for tensor in entry.inputs:
        if not tensor.static:
            shape = ", ".join(map(str, tensor.shape))
            raise ConfigError(
                f"the input {tensor.name!r} of {model.name} has no fixed shape ([{shape}]): the app cannot "
                "make up data for it",
                remedy=f"Compile the model with --shape {tensor.name}:EXTENTS.",
            )
