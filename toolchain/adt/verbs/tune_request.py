"""Request of `adt tune`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from adt.host.disk import check_directory
from adt.options.option import Flag, MaybePath, Number, Real, Text, Texts, option, python
from adt.options.request import Request
from adt.options.sections import TuneSettings
from adt.verbs.options import INSECURE_NO_DIGEST, LINKED_BUNDLE, TRUST, CompilationOptions, quiet

if TYPE_CHECKING:
    from adt.tuning.results import Status, TuningPlan


class TuneRequest(CompilationOptions, Request):
    """Request of :func:`adt.tune`."""

    bundle: MaybePath = LINKED_BUNDLE
    trials: Number = TuneSettings.trials
    per_task: Flag = TuneSettings.per_task
    early_stopping: Number = TuneSettings.early_stopping
    tuner: Text = TuneSettings.tuner
    cost_model: Text = TuneSettings.cost_model
    number: Number = TuneSettings.number
    repeat: Number = TuneSettings.repeat
    min_repeat_ms: Number = TuneSettings.min_repeat_ms
    timeout: Real = TuneSettings.timeout
    seed: Number = TuneSettings.seed
    builders: Text = TuneSettings.builders
    wait: Real = TuneSettings.wait
    db: MaybePath = option(
        "Directory of the records, made when absent; else compile.db of the settings.",
        default=None,
        check=check_directory,
        metavar="DIR",
    )
    serials: Texts = option(
        "Serials of the devices that measure: a,b,c; else ANDROID_SERIAL, else the only device.",
        "--serial",
        "-s",
        default=(),
        metavar="SERIAL,…",
        offers="serials",
        cli=str,
        separator=",",
    )
    key: str = option("Key of the tracker's devices, instead of --serial.", "--key", "-k", default="")
    tracker: str = option("Tracker for --key; else adt's own.", default="", metavar="HOST:PORT")
    device: str = option(
        "Device that counts where --key has different ones; else the first that answers.",
        default="",
        metavar="NAME[, DRIVER]",
    )
    compare: bool = option("At the end run the model tuned and untuned in turns.", default=False)
    fit: bool = option(
        "At the end fit the model of the GPU to the times, which `adt compile --db` uses.", default=False
    )
    on_plan: Callable[[TuningPlan], None] = python("Called with the plan before it begins.", default=quiet)
    on_status: Callable[[Status], None] = python(
        "Called with its state several times a second, in this thread.", default=quiet
    )
    stop: threading.Event | None = python(
        "When it is set the tuning ends soon, with everything kept.", default=None
    )
    gentle: bool = python(
        "A first SIGINT or SIGTERM while devices measure does the same, instead of raising; for programs "
        "that then look at ``interrupted`` of the result.",
        default=False,
    )
    trust: bool = TRUST
    insecure_no_digest: bool = INSECURE_NO_DIGEST
