"""Compile, run and compare batches of operators, and tell whose kernel is whose.

A batch is one model of independent operators, so that some hundred operators need a few
dozen compiles. In what was compiled an operator's calls are those that its output depends on.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import kernel_compile
import numpy as np
from kernel_models import inputs_for, write_model
from kernel_table import CONV, DENSE, Op

from adt.api.place import open_place
from adt.api.requests import RemoteRequest
from adt.compiler.compilation import CompileJob
from adt.device.rtvm import RtvmOptions
from adt.errors import AdtError, DeviceError, MismatchError, NoDevice, PackageError
from adt.host.process import kill_group, start
from adt.measure.profile.assembly import ProfilePlace, assemble
from adt.package.inspection.graph import Graph
from adt.package.inspection.inspection import Inspection
from adt.package.inspection.profile import EVENTS, CallTime, Profile
from adt.package.package import ModelPackage, load_package

COMPILE_SECONDS, RUN_SECONDS = 900.0, 900.0
"""How long a batch may take."""
LIMITS = {"float32": 1e-4, "float16_acc32": 1e-2}
"""Largest difference that is right, as a share of the output's greatest magnitude."""
_MOVED = r"(?:(?:un)?pack_blocks|reshape|transpose)\d*"
PACKING = re.compile(rf"(?:fused_)?{_MOVED}(?:_{_MOVED})*(?:_texture(?:_\d+)?)?")
"""Names of kernels that only change the layout."""


@dataclass(frozen=True)
class Way:
    """One way to compute an operator."""

    name: str
    """``texture``, ``buffer``, ``plain`` or ``clml``."""
    target: str
    offload: str = "none"
    blocks: str = "always"
    """The texture choice."""


TEXTURE = Way("texture", "adreno")
BUFFER = Way("buffer", "adreno-buffer")
PLAIN = Way("plain", "adreno-buffer", blocks="never")
CLML = Way("clml", "adreno-buffer", "clml")
WAYS = (TEXTURE, BUFFER, PLAIN, CLML)


@dataclass(frozen=True)
class Kernel:
    """One call that an operator needs."""

    name: str
    ms: float
    """Mean of the runs, by :attr:`Found.clock`."""
    least_ms: float
    images: int
    """How many of its tensors are images."""


@dataclass(frozen=True)
class Found:
    """What one way made of an operator."""

    error: str = ""
    """Why there is nothing else; empty: there is."""
    kernels: tuple[Kernel, ...] = ()
    """That compute it."""
    packing: tuple[Kernel, ...] = ()
    """That bring its inputs and its output from one layout into the other; inside a network others do not."""
    clock: str = ""
    """``event``: the device's own; ``host``: around each call."""
    difference: float = float("inf")
    """To ONNX Runtime in float32, as a share of the output's greatest magnitude."""
    right: bool = False

    @property
    def ms(self) -> float | None:
        """Milliseconds of the operator's own kernels."""
        return sum(kernel.ms for kernel in self.kernels) if self.kernels else None

    @property
    def in_images(self) -> bool:
        """Its kernels read or write images."""
        return any(kernel.images for kernel in self.kernels)


@dataclass(frozen=True)
class BatchRun:
    """A whole batch's run: by the host's clock, with launches, packing and what is no operator's."""

    way: str
    ops: tuple[str, ...]
    runs_ms: tuple[float, ...]


@dataclass(frozen=True)
class Batch:
    """Operators that become one model, in some ways."""

    ops: tuple[Op, ...]
    ways: tuple[Way, ...]


@dataclass(frozen=True)
class Settings:
    """How everything is compiled and run."""

    jobs: Mapping[str, CompileJob]
    """For each way's name what to compile with; the model is put in."""
    limit: float
    """Of :data:`LIMITS`."""
    processes: int
    """Compilers at once."""
    all_first: bool
    """Everything is compiled, by the driver, too, before the first run is timed: for a GPU of this machine.
    Its driver then compiles for several at once, and nothing disturbs what is timed."""
    runs: int
    warmup: int
    serial: str | None
    bundle: Path | None
    say: Callable[[str], None]


Results = dict[tuple[Op, str], Found]


def measure(
    batches: Iterable[Batch], settings: Settings, scratch: Path
) -> Generator[tuple[Results, BatchRun | None], None, None]:
    """Every operator of *batches* in each of its ways, as they come, and whole runs where there were some.

    What fails as a part of a batch is tried alone, so that only the operator at fault is left out.

    Raises:
        MismatchError, PackageError, DeviceError, NoDevice: nothing can be run there.
    """
    waiting = list(batches)
    done, total = 0, sum(len(batch.ops) * len(batch.ways) for batch in waiting)
    while waiting:
        again: list[Batch] = []
        with contextlib.closing(_compiled(waiting, settings, scratch)) as compiled:
            for batch, place, failed in list(compiled) if settings.all_first else compiled:
                for way in batch.ways:
                    found, run, why = _outcome(batch, way, place, failed.get(way.name, ""), settings)
                    if why and len(batch.ops) > 1:
                        alone = f"its {len(batch.ops)} operators are tried one by one"
                        settings.say(f"{way.name}: {why}: {alone}")
                        again += [Batch((op,), (way,)) for op in batch.ops]
                        continue
                    yield {(op, way.name): one for op, one in zip(batch.ops, found, strict=True)}, run
                    done += len(batch.ops)
                settings.say(f"{done} of {total} done")
                shutil.rmtree(place)
        waiting = again


def _outcome(
    batch: Batch, way: Way, place: Path, why: str, settings: Settings
) -> tuple[list[Found], BatchRun | None, str]:
    """What *way* made of each operator, the whole run, and why there is none.

    Args:
        why: it could not be compiled; empty: it was.
    """
    if not why:
        try:
            return *_run(batch, way, place, settings), ""
        except (MismatchError, PackageError, DeviceError, NoDevice):
            raise  # no operator's fault
        except AdtError as error:
            why = error.what
    return [Found(error=why) for _ in batch.ops], None, why


def _compiled(
    batches: Sequence[Batch], settings: Settings, scratch: Path
) -> Generator[tuple[Batch, Path, dict[str, str]], None, None]:
    """Each batch with its directory and why which way cannot be compiled, as their compilers end."""
    waiting = [(batch, scratch / f"batch{at}") for at, batch in enumerate(batches)]
    todo = [(at, way) for at, (batch, _) in enumerate(waiting) for way in batch.ways]
    left = {at: len(batch.ways) for at, (batch, _) in enumerate(waiting)}
    failed: dict[int, dict[str, str]] = {at: {} for at in left}
    running: dict[tuple[int, Way], tuple[subprocess.Popen[bytes], float]] = {}
    try:
        while todo or running:
            while todo and len(running) < settings.processes:
                at, way = todo.pop(0)
                running[at, way] = _start(*waiting[at], way, settings), time.monotonic()
            for (at, way), (child, began) in list(running.items()):
                late = time.monotonic() - began > COMPILE_SECONDS
                if child.poll() is None and not late:
                    continue
                kill_group(child)
                del running[at, way]
                if late or child.returncode:
                    failed[at][way.name] = _why(waiting[at][1] / way.name, child.returncode, late)
                left[at] -= 1
                if not left[at]:
                    yield *waiting[at], failed[at]
            time.sleep(0.05)
    finally:
        for child, _ in running.values():
            kill_group(child)


def _start(batch: Batch, place: Path, way: Way, settings: Settings) -> subprocess.Popen[bytes]:
    """A compiler of *batch*, by its *way*, in a directory of *place*."""
    model = place / "kernels.onnx"
    if not model.exists():
        place.mkdir()
        write_model(batch.ops, model)
    here = place / way.name
    here.mkdir()
    job = replace(settings.jobs[way.name], model=model)
    task = kernel_compile.Task(job, settings.all_first, settings.bundle)
    (here / kernel_compile.JOB).write_bytes(pickle.dumps(task))
    with (here / "log").open("wb") as log:
        argv = [sys.executable, kernel_compile.__file__, str(here)]
        return start(argv, stdout=log.fileno(), stderr=log.fileno(), env={"PYTHONUNBUFFERED": "1"})


def _why(here: Path, code: int | None, late: bool) -> str:
    if late:
        return f"compiling took longer than {COMPILE_SECONDS:g} s"
    with contextlib.suppress(FileNotFoundError):
        return (here / kernel_compile.SAID).read_text()
    lines = (here / "log").read_text(errors="replace").strip().splitlines()
    return f"the compiler ended with exit code {code}: {lines[-1] if lines else 'it said nothing'}"


@functools.lru_cache(maxsize=1)  # each way's outputs are compared with it
def _reference(place: Path) -> dict[str, np.ndarray]:
    """What ONNX Runtime computes of the batch in *place*."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(place / "kernels.onnx"), providers=["CPUExecutionProvider"])
    inputs = inputs_for([(one.name, one.shape) for one in session.get_inputs()])
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def _run(batch: Batch, way: Way, place: Path, settings: Settings) -> tuple[list[Found], BatchRun]:
    """Run the package of *way*.

    Raises:
        AdtError: it does not run.
    """
    package = load_package(place / way.name / kernel_compile.PACKAGE)
    opened = open_place(package, RemoteRequest(package.path, serial=settings.serial, bundle=settings.bundle))
    entry = package.manifest.entry()
    inputs = inputs_for([(one.name, [int(extent) for extent in one.shape]) for one in entry.inputs])
    options = RtvmOptions(
        device=package.manifest.target.device,
        warmup_runs=settings.warmup,
        run_count=settings.runs,
        profile=settings.runs,
    )
    ran = opened.place.run(options, inputs, timeout=RUN_SECONDS)
    where = ProfilePlace(opened.place.label, ran.emulated, "native")
    profile = assemble(package, "main", ran.report.get("profile"), where)
    found = attributed(batch.ops, package, profile)
    reference = _reference(place)
    for number, one in enumerate(found):
        gap = difference(ran.outputs[f"y{number}"], reference[f"y{number}"])
        found[number] = replace(one, difference=gap, right=gap <= settings.limit)
    times = tuple(float(time) for time in ran.report.get("run_ms") or ())
    return found, BatchRun(way.name, tuple(op.name for op in batch.ops), times)


def attributed(ops: Sequence[Op], package: ModelPackage, profile: Profile) -> list[Found]:
    """The calls of each of the *ops*, whose outputs *package* returns in their order."""
    graph = Inspection(package).graph
    timed = {call.index: call for call in profile.calls if call.index >= 0}
    found = []
    for op, output in zip(ops, graph.outputs, strict=True):
        own, packing = split(op, graph, calls_behind(graph, output))
        clocks = {timed[at].clock for at in own if at in timed}
        found.append(
            Found(
                kernels=tuple(_kernel(timed[at]) for at in own if at in timed),
                packing=tuple(_kernel(timed[at]) for at in packing if at in timed),
                clock=EVENTS if clocks == {EVENTS} else "host",
            )
        )
    return found


def calls_behind(graph: Graph, output: int) -> list[int]:
    """Indices of the calls that the tensor *output* depends on, in the order of execution."""
    makers = {tensor: at for at, call in enumerate(graph.calls) for tensor in call.outputs}
    found: set[int] = set()
    tensors = [output]
    while tensors:
        at = makers.get(tensors.pop())
        if at is not None and at not in found:
            found.add(at)
            tensors += graph.calls[at].inputs
    return sorted(found)


def split(op: Op, graph: Graph, calls: Sequence[int]) -> tuple[list[int], list[int]]:
    """Of an operator's *calls* those that compute it, and those that pack and unpack.

    The convolution before what is none (:func:`kernel_models.write_model`) is neither.
    """
    kernels = [at for at in calls if graph.calls[at].kind != "builtin"]
    packing = [at for at in kernels if PACKING.fullmatch(graph.calls[at].name)]
    own = [at for at in kernels if at not in packing]
    if op.kind not in (CONV, DENSE):
        stem = next((at for at in own if "conv" in graph.calls[at].name), None)
        own = [at for at in own if at != stem]
    return own, packing


def _kernel(call: CallTime) -> Kernel:
    images = sum("texture" in argument.scope for argument in call.arguments)
    return Kernel(call.name, call.mean_us / 1e3, call.min_us / 1e3, images)


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """The greatest difference, as a share of the expected numbers' greatest magnitude; inf: none is known."""
    if found.shape != expected.shape or not np.isfinite(found).all():
        return float("inf")
    have, want = found.astype(np.float64), expected.astype(np.float64)
    return float(np.abs(have - want).max(initial=0.0) / max(np.abs(want).max(initial=0.0), 1e-30))


def processes() -> int:
    """How many compilers at once suit this machine."""
    return max(1, len(os.sched_getaffinity(0)))
