"""Request of `adt tune`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from adt.host.disk import check_directory
from adt.options.option import (
    Directory,
    Flag,
    MaybePath,
    Number,
    PathTo,
    Real,
    Shapes,
    Text,
    Texts,
    option,
    python,
)
from adt.options.request import Request
from adt.options.sections import BuildSettings, CompileSettings, TuneSettings
from adt.verbs import options as shared
from adt.verbs.options import INSECURE_NO_DIGEST, LINKED_BUNDLE, TRUST, quiet

if TYPE_CHECKING:
    from adt.tuning.results import Status, TuningPlan


class TuneRequest(Request):
    """Request of :func:`adt.tune`."""

    model: PathTo = option(shared.MODEL, kw_only=False)
    params: Mapping[str, Any] | None = shared.PARAMS
    platform: Text = BuildSettings.platform
    ndk: Directory = BuildSettings.ndk
    api_level: Number = BuildSettings.api_level
    target: Text = CompileSettings.target
    cpu: Text = CompileSettings.cpu
    opt_level: Number = CompileSettings.opt_level
    shapes: Shapes = CompileSettings.shapes
    precision: Text = CompileSettings.precision
    keep_float32: Texts = CompileSettings.keep_float32
    half_only: Texts = CompileSettings.half_only
    offload: Text = CompileSettings.offload
    tf32: Flag = CompileSettings.tf32
    texture_choice: Text = CompileSettings.texture_choice
    bundle: MaybePath = LINKED_BUNDLE
    like: str | None = shared.LIKE
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
