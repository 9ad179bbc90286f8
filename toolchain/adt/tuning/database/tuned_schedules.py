"""Records of a database that a compile takes schedules from, and the rows of GPUs that were fitted to them.

Schedules are those of one device, for its target. Rows of GPUs are in ``gpus.json`` in the directory.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from adt.compiler.passes.records.key import key_words, target_key, without_textures
from adt.compiler.passes.records.tuning import TunedKernel, Tuning
from adt.compiler.targets import ModelTarget
from adt.compiler.targets.gpu import Gpu
from adt.errors import ConfigError
from adt.host.cache import write_text
from adt.host.contained import read_contained
from adt.limits import parse_json
from adt.package.manifest import PackageLike
from adt.tuning.database.contents import describe
from adt.tuning.database.store import Database, open_database
from adt.tuning.records import Context

log = logging.getLogger("adt.compile")


def tuning_for_target(
    directory: Path, target: ModelTarget, tvm: str, *, tuned_on: str = "", like: PackageLike | None = None
) -> Tuning | None:
    """Find the fastest schedules on record for *target*, of one device; None, with a warning, without any.

    *tuned_on* names a part of device and driver, *like* the device that is compiled for; else any is taken.
    """
    key = target_key(target)
    names = {"cpu": (like.soc, ""), "opencl": (like.gpu, like.opencl_driver)} if like is not None else {}
    device, driver = names.get(target.device, (None, None))  # of CUDA's, nothing is known here
    with open_database(directory) as database:
        contexts = database.contexts()
        matches = tuple(c for c in contexts if (c.target, c.tvm) == (key, tvm))
        if not matches:
            others = f" (it has: {'; '.join(map(describe, contexts))})" if contexts else ""
            what = "%s has no records for %s and TVM %s: no kernel is tuned%s"
            log.warning(what, directory, key_words(key), tvm, others)
            return None
        if tuned_on:
            return _collect(database, _named_context(matches, tuned_on))
        context = _device_context(matches, device, driver, directory)
        return _collect(database, context) if context else None


def _named_context(contexts: Sequence[Context], text: str) -> Context:
    """Choose the one of *contexts* whose device, or device and driver, *text* names."""
    name = text.lower()
    exact = [c for c in contexts if name in (c.device.lower(), c.place.lower())]
    matches = exact or [c for c in contexts if name in c.place.lower()]
    if len(matches) == 1:
        return matches[0]
    raise ConfigError(
        f"the tuning database has records of {len(matches)} devices that {text!r} may mean"
        if matches
        else f"the tuning database has no records of {text!r} for this target and TVM",
        remedy=f"Choose one: --tuned-on {(matches or contexts)[0].place!r}",
        details="\n".join(context.place for context in matches or contexts),
    )


def _device_context(
    contexts: Sequence[Context], device: str | None, driver: str | None, directory: Path
) -> Context | None:
    """Choose the context of a device; of several drivers *driver*, or else the one used last."""
    if device is None:
        if len(contexts) > 1:
            raise ConfigError(
                f"the tuning database {directory} has records of {len(contexts)} devices or drivers"
                " for this target",
                remedy=f"Choose one: --tuned-on {contexts[0].place!r}, or compile for a connected device "
                "with --like SERIAL.",
                details="\n".join(context.place for context in contexts),
            )
        return contexts[0]
    of_device = [context for context in contexts if context.device == device]
    if not of_device:
        log.warning(
            "%s has no records of %s: no kernel is tuned (it has some of %s; --tuned-on takes those)",
            directory,
            device or "this device, which does not say what it is",
            ", ".join(context.place for context in contexts),
        )
        return None
    for context in of_device:
        if driver is None or context.driver == driver:
            return context
    log.warning(
        "the records of %s were taken with driver %s, it has %s now: tuning again may find faster kernels",
        device,
        of_device[0].driver or "unknown",
        driver or "none",
    )
    return of_device[0]


def _collect(database: Database, context: Context) -> Tuning:
    """Collect the records of *context*, and of the same device without textures, for kernels in buffers."""
    contexts = [context]
    twin = without_textures(context.target)
    if twin is not None and (other := dataclasses.replace(context, target=twin)) in database.contexts():
        contexts.append(other)
    kernels: dict[str, TunedKernel] = {}
    emulated = False
    for each in contexts:
        baselines = database.best(each, untuned=True)
        for identity, best in sorted(database.best(each).items()):
            workload = database.workloads[identity]
            untuned = baselines.get(identity)
            kernel = TunedKernel(workload.module, best.trace, best.time, untuned.time if untuned else None)
            kernels.setdefault(identity, kernel)
            emulated = emulated or bool(best.on and best.on.emulated)
    decisions = [[identity, kernel.trace, kernel.faster] for identity, kernel in kernels.items()]
    if emulated:
        log.warning(
            "the records of %s were taken under emulation: what is fastest there is not what is on a device",
            context.place,
        )
    facts = [context.target, context.tvm, context.device, context.driver, emulated, decisions]
    gpu = fitted_gpu(database.directory, context)
    if gpu is not None:
        facts.append(dataclasses.asdict(gpu))
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
    return Tuning(tuple(kernels.values()), digest, context.device, context.driver, emulated, gpu)


GPUS = "gpus.json"
KEY = ("target", "device", "driver")
"""Fields of a context by which a row is found."""
LEAST = {"wave": 1, "work_group": 1, "items": 1, "sums": 1, "local_bytes": 0}
"""The least value of each column of a row."""


def keep_gpu(directory: Path, context: Context, gpu: Gpu) -> None:
    """Store *gpu* as the fitted GPU row for *context*, replacing the previous one."""
    rows = _rows(directory)
    rows.pop(_key(context), None)
    rows[_key(context)] = gpu
    entries = [
        dict(zip(KEY, key, strict=True)) | {"gpu": dataclasses.asdict(row)} for key, row in rows.items()
    ]
    write_text(directory / GPUS, json.dumps(entries, indent=1) + "\n")


def fitted_gpu(directory: Path, context: Context) -> Gpu | None:
    """Return the row fitted to the device of *context*; None: none, or (with a warning) a damaged file."""
    return _rows(directory).get(_key(context))


def _rows(directory: Path) -> dict[tuple[str, ...], Gpu]:
    try:
        entries = parse_json(read_contained(directory, GPUS))
        if not isinstance(entries, list):
            raise ValueError("it is no list")
        return {tuple(str(entry[name]) for name in KEY): _gpu(entry) for entry in entries}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError) as error:
        log.warning("%s is not used: %s; `adt tune --fit` writes it anew", directory / GPUS, error)
        return {}


def _gpu(entry: Any) -> Gpu:
    gpu = Gpu(**entry["gpu"])
    for name, least in LEAST.items():
        if not isinstance(value := getattr(gpu, name), int) or value < least:
            raise ValueError(f"a row has {name} {value!r}, below {least} or no number")
    return gpu


def _key(context: Context) -> tuple[str, ...]:
    return tuple(getattr(context, name) for name in KEY)
