"""Accuracy of a model in reduced precision, against float32: both are computed here, on the CPU.

TVM computes half precision on any processor: every operation is rounded to half where the processor has none.
A device's own half units round the same way; it may add in another order.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from adt.compiler.ir.rewriter import Rewriter, bindings_of, input_count, is_flat
from adt.compiler.passes.precision.policy import LARGEST, dtype_of, operator_of
from adt.compiler.targets.llvm import host_target
from adt.errors import InputError
from adt.host.npz import named_arrays
from adt.numerics import Array, cosine, gaps
from adt.options.option import did_you_mean
from adt.package.inputs.random import random_inputs
from adt.package.manifest import TensorSpec, kind
from adt.package.reports import Accuracy, OutputAccuracy, Overflow, far_off

log = logging.getLogger("adt.compile")

DIGITS = 3  # significant digits of a figure: what is stored must not differ between machines
SUMS_TO_ONE = 1e-3  # largest distance of a row of probabilities' sum from 1
MOST_NAMED = 5  # overflowing values that the warning names


@dataclass(frozen=True)
class Samples:
    """Samples that are computed on."""

    description: str
    """Text for people."""
    inputs: tuple[Mapping[str, Array], ...]
    """Arrays by input name, in order, for each sample."""


Model = tuple[tvm.IRModule, Mapping[str, tvm.runtime.Tensor]]
"""A module, and its parameters by name."""


def read_samples(specs: Sequence[TensorSpec], files: Sequence[Path]) -> Samples:
    """Read the samples in *files* (.npz, one sample each), or make a random one."""
    if not files:
        return Samples("random, seed 0", (random_inputs(specs, 0),))
    return Samples(", ".join(file.name for file in files), tuple(_read(file, specs) for file in files))


def _read(file: Path, specs: Sequence[TensorSpec]) -> Mapping[str, Array]:
    arrays, names = named_arrays(file), [spec.name for spec in specs]
    for spec in specs:
        if spec.name not in arrays:
            raise InputError(
                f"{file} has no input {spec.name}.{did_you_mean(spec.name, arrays)}",
                remedy=f"The model's inputs: {', '.join(names)}.",
            )
        array = arrays[spec.name]
        if array.dtype.name != spec.dtype or array.shape != spec.shape:
            raise InputError(
                f"input {spec.name} in {file} is {kind(array)}", remedy=f"The model takes {kind(spec)}."
            )
    return {name: arrays[name] for name in names}


def measure(
    precision: str, single: Model, reduced: Model, outputs: Sequence[TensorSpec], samples: Samples
) -> Accuracy:
    """Compare outputs of the model *reduced* to *precision* with those of the *single* one on *samples*.

    Overflows are looked for where one is far off. Samples have the inputs in the order of ``main``.
    """
    pairs = zip(outputs, _outputs(*reduced, samples), _outputs(*single, samples), strict=True)
    rows = tuple(_compare(spec, got, exact) for spec, got, exact in pairs)
    overflows = _overflows(*single, samples) if any(map(far_off, rows)) else ()
    keep = tuple(_operators_to_keep(reduced[0], overflows))
    return Accuracy(precision, samples.description, len(samples.inputs), rows, overflows, keep)


def warn(report: Accuracy) -> None:
    """Say loudly when *report* is bad, and what to do."""
    bad = False
    for output in report.outputs:
        if output.finite and not output.compared:
            log.warning(
                "%s is NaN or infinite everywhere in float32, too (on %s): nothing is known of its accuracy; "
                "give inputs for which the model gives numbers: --accuracy-inputs FILE.npz",
                output.name,
                report.inputs,
            )
        elif far_off(output):
            bad, how = True, "NaN or infinite where float32 is not"
            if output.finite:
                how = f"far from float32: max abs {output.max_abs:.3g} of {output.magnitude:.3g}"
                how += f", cosine {output.cosine:.4g}"
            log.warning("%s in %s is %s (on %s)", output.name, report.precision, how, report.inputs)
    if not bad:
        return
    if report.overflows:
        shown = [f"{item.op} {item.name} ({item.magnitude:.3g})" for item in report.overflows[:MOST_NAMED]]
        more = len(report.overflows) - MOST_NAMED
        log.warning(
            "values pass 65504, the largest of half precision, first in: %s%s; try --keep-float32 %s",
            ", ".join(shown),
            f" and {more} more" if more > 0 else "",
            ",".join(report.keep),
        )
    elif report.precision == "float16":
        log.warning("no result passes 65504, but sums may on the way: try --precision float16_acc32")
    else:
        log.warning("no result passes 65504; measure on real inputs, too: --accuracy-inputs FILE.npz")


def _outputs(
    module: tvm.IRModule, params: Mapping[str, tvm.runtime.Tensor], samples: Samples
) -> list[tuple[Array, ...]]:
    """Return each output of *module*, for all samples."""
    machine = relax.VirtualMachine(tvm.compile(module, host_target()), tvm.cpu())
    rows = []
    for sample in samples.inputs:
        results = machine["main"](*map(tvm.runtime.tensor, sample.values()), *params.values())
        results = [results] if hasattr(results, "numpy") else list(results)
        rows.append([tensor.numpy() for tensor in results])
    return [*zip(*rows, strict=True)]


def _compare(spec: TensorSpec, got: Sequence[Array], exact: Sequence[Array]) -> OutputAccuracy:
    cosines, largest, magnitude, total, count, finite = [1.0], 0.0, 0.0, 0.0, 0, True
    same_rows, rows = 0, 0
    for a, b in zip(got, exact, strict=True):
        pair = gaps(a, b)
        finite = finite and not bool(np.any(np.isfinite(pair.reference) & ~pair.finite))
        errors = pair.gap[pair.finite]
        largest = max(largest, float(errors.max(initial=0.0)))
        magnitude = max(magnitude, pair.magnitude)
        total, count = total + float(errors.sum()), count + errors.size
        cosines.append(cosine(pair.got[pair.finite], pair.reference[pair.finite]))
        if _scores(b):
            same_rows += int(np.sum(np.argmax(a, axis=-1) == np.argmax(b, axis=-1)))
            rows += b.shape[0]
    return OutputAccuracy(
        name=spec.name,
        dtype=spec.dtype,
        finite=finite,
        compared=count > 0 or not any(array.size for array in exact),
        magnitude=_rounded(magnitude),
        max_abs=_rounded(largest),
        max_rel=_rounded(largest / magnitude) if magnitude else float(largest > 0),
        mean_abs=_rounded(total / count) if count else 0.0,
        cosine=1 - _rounded(1 - min(cosines)),
        top1=same_rows / rows if rows else None,
    )


def _scores(array: Any) -> bool:
    """Return True if *array* is one row of probabilities of classes for each element of a batch."""
    rows = array.dtype.kind == "f" and array.ndim == 2 and array.shape[1] > 1
    return rows and bool(np.all(array >= 0) and np.all(np.abs(array.sum(axis=1) - 1) < SUMS_TO_ONE))


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else value


def _overflows(
    module: tvm.IRModule, params: Mapping[str, tvm.runtime.Tensor], samples: Samples
) -> tuple[Overflow, ...]:
    """Return the float32 values above 65504 on *samples*, in order; none of an entry with control flow."""
    if not is_flat(module):
        return ()
    probe = _Probe(module)
    peaks = _outputs(probe.run(), params, samples)
    # float32's own infinities are another matter
    largest = (float(np.nan_to_num(each, nan=0.0, posinf=0.0).max(initial=0.0)) for each in peaks)
    return tuple(
        Overflow(name, operator, _rounded(peak))
        for (name, operator), peak in zip(probe.operators, largest, strict=True)
        if peak > LARGEST
    )


def _operators_to_keep(reduced: Any, overflows: Sequence[Overflow]) -> list[str]:
    """Return the Relax variables that give or read *overflows* and compute in half precision in *reduced*."""
    bindings = bindings_of(reduced)
    names = {item.name for item in overflows}
    casts = {b.var: b.value.args[0] for b in bindings if operator_of(b.value) == "astype"}
    names_to_keep = []
    for binding in bindings:
        op, name = operator_of(binding.value), str(binding.var.name_hint)
        if not op or binding.var in casts:
            continue
        variables = relax.analysis.free_vars(binding.value)
        half = any(dtype_of(var) == "float16" for var in (binding.var, *variables))
        if half and not names.isdisjoint([name, *(str(casts.get(var, var).name_hint) for var in variables)]):
            names_to_keep.append(name)
    return names_to_keep


class _Probe(Rewriter):
    """A copy of ``main`` that returns the greatest magnitude of each float32 value."""

    def __init__(self, module: tvm.IRModule) -> None:
        super().__init__(module)
        self.operators: list[tuple[str, str]] = []
        """Name of each of these, and its operator, or ``input``."""

    def result(self) -> relax.Expr:
        values = dict.fromkeys(list(self.module["main"].params)[: input_count(self.module)], "input")
        values |= {binding.var: operator_of(binding.value) for binding in bindings_of(self.module)}
        peaks = []
        for variable, name in values.items():
            if name and dtype_of(variable) == "float32" and variable.struct_info.ndim > 0:
                peaks.append(self.builder.emit(relax.op.max(relax.op.abs(self.value_of(variable)))))
                self.operators.append((str(variable.name_hint), name))
        return relax.Tuple(peaks)
