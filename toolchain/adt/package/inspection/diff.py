"""Differences of two packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adt.host.manifest import fields_of
from adt.package.inputs.validation import kind
from adt.package.inspection.inspection import Inspection, load_arrays

APART = ("kernels", "files", "inspection")
"""Fields of mod.json that are compared as kernels, parameters and sizes."""


@dataclass(frozen=True)
class Difference:
    """A value that differs; None: it is not there."""

    name: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Names:
    """Names that came, went, or are still there but differ."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True)
class ParamChange:
    """A parameter that both have and that differs."""

    name: str
    before: str
    """``float32[64, 3, 7, 7]``."""
    after: str
    max_abs: float | None
    """Largest difference of an element; None when shape or dtype differ."""


@dataclass(frozen=True)
class PackageDiff:
    """Everything that differs."""

    fields: tuple[Difference, ...]
    """Differences of mod.json, by dotted name."""
    kernels: Names
    """Functions; ``changed`` where the schedule or the device's source differs."""
    params: Names
    changed_params: tuple[ParamChange, ...]
    sizes: tuple[Difference, ...]
    """Files whose size in bytes differs."""
    memory: tuple[Difference, ...]
    """Planned memory in bytes, where both have recorded it."""
    identical: bool
    """The three files are the same, byte by byte."""

    @property
    def empty(self) -> bool:
        """True if nothing differs."""
        return not (
            self.fields or self.kernels or self.params or self.sizes or self.memory or not self.identical
        )


def compare(before: Inspection, after: Inspection) -> PackageDiff:
    """Compare two packages."""
    kernels = _names(_sources(before), _sources(after))
    params, changed = _params(before, after)
    hashes = [[facts.sha256 for facts in i.package.manifest.files.values()] for i in (before, after)]
    fields = [_fields(i) for i in (before, after)]
    memory = [_memory(i) if i.recorded else {} for i in (before, after)]
    return PackageDiff(
        _changed(fields[0], fields[1]),
        kernels,
        params,
        changed,
        _changed(before.sizes(), after.sizes()),
        _changed(memory[0], memory[1]) if all(memory) else (),
        identical=hashes[0] == hashes[1],
    )


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Difference, ...]:
    names = dict.fromkeys([*before, *after])
    return tuple(
        Difference(name, before.get(name), after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    )


def _fields(inspection: Inspection) -> dict[str, Any]:
    whole = fields_of(inspection.package.manifest)
    return dict(_flat({name: value for name, value in whole.items() if name not in APART}))


def _flat(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        return [row for name, part in value.items() for row in _flat(part, f"{prefix}{name}.")]
    if isinstance(value, list | tuple) and any(isinstance(part, dict) for part in value):
        return [row for index, part in enumerate(value) for row in _flat(part, f"{prefix}{index}.")]
    return [(prefix.removesuffix("."), list(value) if isinstance(value, tuple) else value)]


def _names(before: Mapping[str, Any], after: Mapping[str, Any]) -> Names:
    return Names(
        tuple(name for name in after if name not in before),
        tuple(name for name in before if name not in after),
        tuple(name for name in before if name in after and before[name] != after[name]),
    )


def _sources(inspection: Inspection) -> dict[str, Any]:
    """Collect all that is known of each kernel, to be compared."""
    facts: dict[str, Any] = {
        kernel.name: [kernel.device, kernel.textures, kernel.tuned, ""]
        for kernel in inspection.package.manifest.kernels
    }
    if not inspection.recorded:
        return facts
    scheduled = inspection.tir_functions()
    sources = inspection.sources()
    launched = inspection.by_function()
    for name, known in facts.items():
        known[3] = scheduled.get(name, "") + "".join(sources[kernel] for kernel in launched.get(name, ()))
    return facts


def _memory(inspection: Inspection) -> dict[str, int]:
    graph = inspection.graph
    return {"storages": len(graph.storages), "total": graph.total, "peak": graph.peak} | graph.by_scope()


def _params(before: Inspection, after: Inspection) -> tuple[Names, tuple[ParamChange, ...]]:
    import numpy as np

    arrays = [dict(load_arrays(inspection.package)) for inspection in (before, after)]
    changes = []
    for name, array in arrays[0].items():
        other = arrays[1].get(name)
        if other is None:
            continue
        same_kind = (array.shape, array.dtype) == (other.shape, other.dtype)
        if same_kind and array.tobytes() == other.tobytes():
            continue
        largest = None
        if same_kind and array.size:
            largest = float(np.abs(array.astype("float64") - other.astype("float64")).max())
        changes.append(ParamChange(name, kind(array), kind(other), largest))
    names = Names(
        tuple(name for name in arrays[1] if name not in arrays[0]),
        tuple(name for name in arrays[0] if name not in arrays[1]),
        tuple(change.name for change in changes),
    )
    return names, tuple(changes)
