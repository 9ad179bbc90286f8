"""Workloads and records as databases keep them: plain JSON values, and back.

A field that this adt does not know is passed over, so that a later one may add some.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from adt.tuning.records import Context, Failure, MeasuredOn, Record, Workload

Number = (int, float)


def workload_data(workload: Workload) -> dict[str, Any]:
    """*workload* as JSON values."""
    return dict(vars(workload))


def record_data(record: Record) -> dict[str, Any]:
    """*record* as JSON values."""
    return vars(record) | {
        "context": dict(vars(record.context)),
        "seconds": list(record.seconds),
        "failure": dict(vars(record.failure)) if record.failure else None,
        "on": dict(vars(record.on)) if record.on else None,
    }


def workload_of(data: Mapping[str, Any]) -> Workload:
    """What :func:`workload_data` gave.

    Raises:
        ValueError: a field is missing or of another kind.
    """
    return Workload(*(_of(data, name, str) for name in ("id", "structural_hash", "tvm", "module")))


def record_of(data: Mapping[str, Any], contexts: dict[Context, Context]) -> Record:
    """What :func:`record_data` gave.

    Args:
        contexts: those that were met before: equal ones become one object, as there are few of them.

    Raises:
        ValueError: a field is missing or of another kind.
    """
    inside = _of(data, "context", dict)
    context = Context(*(_of(inside, name, str) for name in ("target", "tvm", "device", "driver")))
    seconds = _of(data, "seconds", list)
    if not all(isinstance(value, Number) and isfinite(value) and value >= 0 for value in seconds):
        raise ValueError("`seconds` are no times")
    failure = data.get("failure")
    if (failure is None) == (not seconds):
        raise ValueError("a record has either `seconds` or a `failure`")
    on = data.get("on")
    return Record(
        workload=_of(data, "workload", str),
        context=contexts.setdefault(context, context),
        task=_of(data, "task", str),
        trace=_of(data, "trace", str),
        seconds=tuple(float(value) for value in seconds),
        failure=None if failure is None else _failure(failure),
        on=None if on is None else _measured_on(on),
        run=_of(data, "run", str),
        at=float(_of(data, "at", Number)),
        options=_of(data, "options", dict),
    )


def _failure(data: Any) -> Failure:
    return Failure(_of(data, "kind", str), _of(data, "message", str))


def _measured_on(data: Any) -> MeasuredOn:
    celsius = None if data.get("celsius") is None else float(_of(data, "celsius", Number))
    return MeasuredOn(_of(data, "name", str), _of(data, "label", str), celsius, _of(data, "emulated", bool))


def _of(data: Any, name: str, kind: Any) -> Any:
    value = data.get(name) if isinstance(data, dict) else None
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"`{name}` is missing or of another kind")
    return value
