"""A run of a scheduled kernel for a CPU beside the kernel as it was: here, in a process of its own.

A record may come from anybody, and TVM proves only part of what its steps do. Instructions of a processor are
left out of the schedule, for TVM has compared them with what they replace, and this machine may have others.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import tvm
from tvm.tirx import IntImm

from adt.compiler.passes.records.arguments import (
    Argument,
    arguments,
    array_of,
    download,
    sample_data,
    unwritten_data,
    upload,
)
from adt.compiler.passes.records.schedule_limits import iterations
from adt.errors import last_line
from adt.host.child import Child, ChildFailed, ChildHung, serve
from adt.numerics import MAX_CHANGED, REORDERED, gaps, relative_difference, steps_allowed

log = logging.getLogger("adt.compile")

MOST_ITERATIONS = 1 << 32
"""Iterations of a kernel that is run; one without a schedule does some 10⁹ in a second."""
SECONDS = 120.0
"""Limit for one build or run."""
HALF = ("float16", "bfloat16")


class Trials:
    """Trials of kernels for a CPU, built and run one after another in a child."""

    def __init__(self, target: Mapping[str, Any]) -> None:
        """Prepare the child that builds for *target*, TVM's of the CPU."""
        self._target = dict(target)
        self._child = Child("adt.compiler.passes.records.trial")

    def fault(self, module: Any, scheduled: Any, portable: Any) -> str:
        """Explain why *scheduled* is no schedule of the workload *module*.

        Empty if it is built and computes the same, or if the numbers cannot be seen here: shapes are open,
        there are too many iterations, or LLVM does not build *portable*, without the CPU's instructions.
        """
        if reason := self._build(scheduled, self._target, "emitted"):
            return f"it is not built: {reason}"
        if iterations(module["main"]) > MOST_ITERATIONS or not is_static(module["main"]):
            return ""
        for each, use in ((module, "reference"), (portable, "loaded")):
            if reason := self._build(each, {"kind": "llvm"}, use):
                log.debug("a schedule is not compared: %s", reason)
                return ""
        return self._ask({})

    def _build(self, module: Any, target: dict[str, Any], use: str) -> str:
        return self._ask({use: str(tvm.ir.save_json(module)), "target": json.dumps(target)})

    def _ask(self, request: dict[str, str]) -> str:
        try:
            return str(self._child.ask(request, SECONDS))
        except ChildFailed as failure:
            return f"its process {'gives ' * isinstance(failure, ChildHung)}{failure}"

    def close(self) -> None:
        """End the process."""
        self._child.close()


def without_instructions(trace: str) -> str:
    """Remove the steps from *trace* that put a processor's instructions in place of loops."""
    steps, decisions = json.loads(trace)
    kept = [number for number, step in enumerate(steps) if step[0] != "Tensorize"]
    places = {number: place for place, number in enumerate(kept)}
    decided = [[places[number], decision] for number, decision in decisions if number in places]
    return json.dumps([[steps[number] for number in kept], decided])


def is_static(function: Any) -> bool:
    """Return True if the shapes of all arguments of the PrimFunc *function* are known."""
    return all(
        (buffer := function.buffer_map.get(parameter)) is not None
        and all(isinstance(extent, IntImm) for extent in buffer.shape)
        for parameter in function.params
    )


class _Runner:
    """Answerer of :class:`Trials`: an empty text, or what is wrong."""

    def __init__(self) -> None:
        self._kernel: Any = None
        self._arguments: tuple[Argument, ...] = ()
        self._reference: list[Any] = []

    def __call__(self, request: dict[str, str]) -> str:
        try:
            return self._answer(**request)
        except Exception as error:  # TVM's errors have many classes
            return last_line(error)

    def _answer(self, reference: str = "", loaded: str = "", emitted: str = "", target: str = "") -> str:
        if not (text := reference or loaded or emitted):
            rows = zip(self._arguments, _run(self._kernel, self._arguments), self._reference, strict=True)
            return next(filter(None, (_difference(argument.dtype, *pair) for argument, *pair in rows)), "")
        module = tvm.ir.load_json(text)
        built = tvm.compile(module, target=tvm.target.Target(json.loads(target)))
        if emitted:
            built.mod.inspect_source("asm")  # only now does LLVM choose instructions
            return ""
        self._kernel, self._arguments = built["main"], arguments(module["main"])
        if reference:
            self._reference = _run(self._kernel, self._arguments)
        return ""


def _run(kernel: Any, each: tuple[Argument, ...]) -> list[Any]:
    """Return all arguments after a call, also those that are not computed, which must stay."""
    signs = np.random.default_rng(len(each))
    tensors = []
    for seed, argument in enumerate(each):
        last = argument is each[-1]
        data = unwritten_data(argument) if last else sample_data(argument, seed)
        if not last and argument.dtype in HALF:  # sums of positive numbers would lose what is added last
            negative = signs.integers(0, 2, len(data) // 2).astype(np.uint16) << 15
            data = (np.frombuffer(data, np.uint16) | negative).tobytes()
        tensors.append(upload(argument, tvm.cpu(), data))
    kernel(*tensors)
    pairs = zip(each, tensors, strict=True)
    return [array_of(argument.dtype, download(argument, tensor)) for argument, tensor in pairs]


def _difference(dtype: str, got: Any, reference: Any) -> str:
    if dtype not in REORDERED:
        share = gaps(got, reference).changed(steps_allowed(dtype))
        return f"it computes other numbers: {share:.2%} differ" if share > MAX_CHANGED else ""
    gap = relative_difference(got, reference)
    return f"it computes other numbers: off by {gap:.2g} of the largest" if gap > REORDERED[dtype] else ""


if __name__ == "__main__":
    serve(_Runner())
