"""The rows of GPUs that were fitted to a database's records: ``gpus.json`` in its directory."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

from adt.compiler.targets.gpu import Gpu
from adt.host.cache import write_text
from adt.host.contained import read_contained
from adt.limits import parse_json
from adt.tuning.records import Context

log = logging.getLogger("adt.tune")

FILE = "gpus.json"
NUMBERS = ("wave", "work_group", "items", "sums")
"""Columns that are above 0 in each row."""


def keep_gpu(directory: Path, context: Context, gpu: Gpu) -> None:
    """Store *gpu* as the fitted GPU row for *context*, replacing the previous one."""
    rows = [row for row in _rows(directory) if not _is_of(row, context)]
    rows.append({**_key(context), "gpu": dataclasses.asdict(gpu)})
    write_text(directory / FILE, json.dumps(rows, indent=1) + "\n")


def fitted_gpu(directory: Path, context: Context) -> Gpu | None:
    """The row of what *context* is of; None: none was fitted, or the file is damaged, which is said."""
    return next((_gpu(row) for row in _rows(directory) if _is_of(row, context)), None)


def _rows(directory: Path) -> list[Any]:
    try:
        rows = parse_json(read_contained(directory, FILE))
        if not isinstance(rows, list):
            raise ValueError("it is no list")
        for row in rows:
            _gpu(row)
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, KeyError) as error:
        log.warning("%s is not used: %s; `adt tune --fit` writes it anew", directory / FILE, error)
        return []
    return rows


def _gpu(row: Any) -> Gpu:
    gpu = Gpu(**row["gpu"])
    if any(not isinstance(getattr(gpu, name), int) or getattr(gpu, name) < 1 for name in NUMBERS):
        raise ValueError(f"a row has a number below 1: {gpu}")
    if not isinstance(gpu.local_bytes, int) or gpu.local_bytes < 0:
        raise ValueError(f"a row has no local memory: {gpu}")
    return gpu


def _key(context: Context) -> dict[str, str]:
    return {"target": context.target, "device": context.device, "driver": context.driver}


def _is_of(row: Any, context: Context) -> bool:
    return all(row.get(name) == value for name, value in _key(context).items())
