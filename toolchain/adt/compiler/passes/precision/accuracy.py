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

from adt.compiler.ir.rewriter import bindings_of, is_flat
from adt.compiler.passes.precision.policy import LARGEST, dtype_of, operator_of
from adt.compiler.targets.llvm import host_target
from adt.errors import InputError
from adt.host.npz import named_arrays
from adt.numerics import Array, cosine, gaps
from adt.options.option import did_you_mean
from adt.package.inputs.random import random_inputs
from adt.package.manifest import TensorSpec
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
    """Arrays by input name, for each sample."""


@dataclass(frozen=True)
class ReducedModel:
    """A model in float32 and in reduced precision."""

    precision: str
    module: tvm.IRModule
    """Module in float32."""
    params: Mapping[str, tvm.runtime.Tensor]
    reduced_module: Any
    reduced_params: Mapping[str, Any]


def read_samples(specs: Sequence[TensorSpec], files: Sequence[Path]) -> Samples:
    """Read the samples in *files* (.npz, one sample each), or make a random one."""
    if not files:
        return Samples("random, seed 0", (random_inputs(specs, 0),))
    return Samples(", ".join(file.name for file in files), tuple(_read(file, specs) for file in files))


def _read(file: Path, specs: Sequence[TensorSpec]) -> Mapping[str, Array]:
    arrays = named_arrays(file)
    inputs = {spec.name: spec for spec in specs}
    for name in inputs.keys() - arrays.keys():
        raise InputError(
            f"{file} has no input {name}.{did_you_mean(name, arrays)}",
            remedy=f"The model's inputs: {', '.join(inputs)}.",
        )
    for name, spec in inputs.items():
        array = arrays[name]
        if array.dtype.name != spec.dtype or array.shape != spec.shape:
            raise InputError(
                f"input {name} in {file} is {array.dtype.name}{list(array.shape)}",
                remedy=f"The model takes {spec.dtype}{list(spec.shape)}.",
            )
    return {name: arrays[name] for name in inputs}


def measure(
    model: ReducedModel, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], samples: Samples
) -> Accuracy:
    """Compare both modules' outputs on *samples*; look for overflows where one is far off."""
    exact = [*zip(*_run(model.module, model.params, inputs, samples), strict=True)]
    got = [*zip(*_run(model.reduced_module, model.reduced_params, inputs, samples), strict=True)]
    rows = tuple(_compare(spec, list(a), list(b)) for spec, a, b in zip(outputs, got, exact, strict=True))
    overflows: tuple[Overflow, ...] = ()
    if any(far_off(row) for row in rows):
        overflows = overflows_of(model.module, model.params, inputs, samples.inputs)
    keep = tuple(operators_to_keep(model.reduced_module, overflows))
    return Accuracy(model.precision, samples.description, len(samples.inputs), rows, overflows, keep)


def warn(report: Accuracy) -> None:
    """Say loudly when *report* is bad, and what to do."""
    for output in report.outputs:
        if output.finite and not output.compared:
            log.warning(
                "%s is NaN or infinite everywhere in float32, too (on %s): nothing is known of its accuracy; "
                "give inputs for which the model gives numbers: --accuracy-inputs FILE.npz",
                output.name,
                report.inputs,
            )
        elif far_off(output):
            how = f"max abs {output.max_abs:.3g} of {output.magnitude:.3g}, cosine {output.cosine:.4g}"
            log.warning(
                "%s in %s is %s (on %s)",
                output.name,
                report.precision,
                f"far from float32: {how}" if output.finite else "NaN or infinite where float32 is not",
                report.inputs,
            )
    if not any(far_off(output) for output in report.outputs if output.compared or not output.finite):
        return
    if report.overflows:
        shown = ", ".join(
            f"{item.op} {item.name} ({item.magnitude:.3g})" for item in report.overflows[:MOST_NAMED]
        )
        more = len(report.overflows) - MOST_NAMED
        log.warning(
            "values pass 65504, the largest of half precision, first in: %s%s; try --keep-float32 %s",
            shown,
            f" and {more} more" if more > 0 else "",
            ",".join(report.keep),
        )
    elif report.precision == "float16":
        log.warning("no result passes 65504, but sums may on the way: try --precision float16_acc32")
    else:
        log.warning("no result passes 65504; measure on real inputs, too: --accuracy-inputs FILE.npz")


def _run(
    module: tvm.IRModule,
    params: Mapping[str, tvm.runtime.Tensor],
    inputs: Sequence[TensorSpec],
    samples: Samples,
) -> list[list[Array]]:
    """Return the outputs of *module* for each sample."""
    machine = relax.VirtualMachine(tvm.compile(module, host_target()), tvm.cpu())
    rows = []
    for sample in samples.inputs:
        arrays = [tvm.runtime.tensor(sample[spec.name]) for spec in inputs]
        results = machine["main"](*arrays, *params.values())
        results = [results] if hasattr(results, "numpy") else list(results)
        rows.append([tensor.numpy() for tensor in results])
    return rows


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


def overflows_of(
    module: tvm.IRModule,
    params: Mapping[str, tvm.runtime.Tensor],
    inputs: Sequence[TensorSpec],
    samples: Sequence[Mapping[str, Array]],
) -> tuple[Overflow, ...]:
    """Return the float32 values above 65504 on *samples*, in order; none of an entry with control flow."""
    if not is_flat(module):
        return ()
    probed, names = _probed(module)
    machine = relax.VirtualMachine(tvm.compile(probed, host_target()), tvm.cpu())
    largest = dict.fromkeys(names, 0.0)
    for sample in samples:
        arrays = [tvm.runtime.tensor(sample[spec.name]) for spec in inputs]
        for name, peak in zip(names, machine["main"](*arrays, *params.values()), strict=True):
            seen = float(np.nan_to_num(peak.numpy(), nan=0.0, posinf=0.0))  # float32's own are another matter
            largest[name] = max(largest[name], seen)
    return tuple(
        Overflow(name, names[name], float(f"{peak:.3g}")) for name, peak in largest.items() if peak > LARGEST
    )


def operators_to_keep(reduced: Any, overflows: Sequence[Overflow]) -> list[str]:
    """Return the Relax variables that give or read *overflows* and compute in half precision in *reduced*."""
    bindings = bindings_of(reduced)
    names = {item.name for item in overflows}
    casts = {b.var: b.value.args[0] for b in bindings if operator_of(b.value) == "astype"}
    names_to_keep = []
    for binding in bindings:
        op, name = operator_of(binding.value), str(binding.var.name_hint)
        if not op or binding.var in casts:
            continue
        read = {casts.get(var, var) for var in relax.analysis.free_vars(binding.value)}
        half = any(dtype_of(var) == "float16" for var in relax.analysis.free_vars(binding.value))
        half = half or dtype_of(binding.var) == "float16"
        if half and (name in names or any(str(var.name_hint) in names for var in read)):
            names_to_keep.append(name)
    return names_to_keep


def _probed(module: tvm.IRModule) -> tuple[Any, dict[str, str]]:
    """Return *module* with the greatest magnitude of each float32 value as outputs, and its operator."""
    main = module["main"]
    count = int(main.attrs["num_input"]) if main.attrs and "num_input" in main.attrs else len(main.params)
    values = {str(var.name_hint): (var, "input") for var in list(main.params)[:count]}
    bindings = bindings_of(module)
    values |= {str(b.var.name_hint): (b.var, operator_of(b.value)) for b in bindings}
    others = {gv: func for gv, func in module.functions.items() if gv.name_hint != "main"}
    builder = relax.BlockBuilder(tvm.IRModule(others, module.attrs, global_infos=module.global_infos))
    builder.begin_scope(list(main.params))
    builder._begin_dataflow_block()
    for binding in bindings:
        builder.emit_normalized(binding)
    names, peaks = {}, []
    for name, (var, op) in values.items():
        if op and dtype_of(var) == "float32" and var.struct_info.ndim > 0:
            peaks.append(builder.emit(relax.op.max(relax.op.abs(var))))
            names[name] = op
    result = builder.emit_output(relax.Tuple(peaks))
    body = builder.normalize(relax.SeqExpr([builder._end_block()], result))
    builder.end_scope()
    function = relax.Function(list(main.params), body, result.struct_info, main.is_pure, main.attrs)
    builder.add_func(function, "main")
    return builder.get(), names
