"""ImportedModel: what every importer makes, and how a Relax module becomes one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tvm.relax.frontend import detach_params

from adt.compiler.importers.element_types import with_kernels_of_their_types
from adt.compiler.importers.op_table import OpRow
from adt.compiler.importers.value_ranges import (
    check_constant_indices,
    output_quanta,
    with_bounded_reads,
    with_ranges,
)
from adt.compiler.ir.nodes import extents
from adt.compiler.ir.rewriter import fold_shape_values
from adt.errors import ModelError
from adt.package.manifest import SourceModel, TensorSpec

log = logging.getLogger("adt.import")


@dataclass(frozen=True)
class ImportedModel:
    """A model in Relax, with its parameters detached."""

    module: Any
    """``tvm.IRModule`` with the entry ``main(inputs…, params…)``."""
    params: Mapping[str, Any]
    """Name to ``tvm.runtime.Tensor``, in the order in which they follow the inputs."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    unused: tuple[TensorSpec, ...]
    """Inputs of the model that nothing depends on; ``main`` does not take them."""
    source: SourceModel
    file: Path
    """The file that was read; for a callable, the program that was exported from it, in the cache."""
    ops: tuple[OpRow, ...] = ()
    """Result for each operator."""
    quanta: Mapping[str, float] = field(default_factory=dict)
    """Float outputs that are dequantized integers → one step of the integers."""
    suspects: tuple[str, ...] = ()
    """Operators that TVM's own passes could not compile alone, with the names of nodes and its reasons."""


def detached(module: Any) -> tuple[Any, Sequence[Any]]:
    """Give *module*, as an importer leaves it, its last form, and the values of its parameters apart."""
    module, params = detach_params(with_kernels_of_their_types(fold_shape_values(module)))
    return module, params.get("main", [])


def imported_model(
    module: Any,
    *,
    inputs: Mapping[str, TensorSpec],
    output_names: Sequence[str],
    source: SourceModel,
    file: Path,
    ops: tuple[OpRow, ...],
    suspects: tuple[str, ...] = (),
    origin: Callable[[str], str] = lambda _: "the operator that makes it so (NonZero, NonMaxSuppression, …)",
) -> ImportedModel:
    """Describe *module*, whose ``main`` has ``num_input`` inputs and carries its parameters' values.

    *inputs* maps names of parameters of ``main`` to the model's inputs. *origin* tells which operator makes
    an output's shape depend on the data.
    """
    module, values = detached(module)
    main = module["main"]
    names = [str(parameter.name_hint) for parameter in main.params]
    first = int(main.attrs["num_input"])
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ModelError(
            f"several inputs or weights of {file.name} are called {', '.join(twice)}",
            remedy="Export the model again, with a name for each.",
        )
    params = dict(zip(names[first:], values, strict=True))
    unused = tuple(spec for name, spec in inputs.items() if name not in names[:first])
    for spec in unused:
        log.warning("no output of %s depends on %s: the package does not take it", file.name, spec.name)
    pairs = zip(output_names, getattr(main.ret_struct_info, "fields", [main.ret_struct_info]), strict=True)
    outputs = tuple(_output(name, info, file.name, origin) for name, info in pairs)
    check_constant_indices(module, params)
    ranged = with_ranges([inputs[name] for name in names[:first]], module)
    quanta = output_quanta(main, output_names)
    module = with_bounded_reads(module)
    return ImportedModel(module, params, ranged, outputs, unused, source, file, ops, quanta, suspects)


def _output(name: str, info: Any, model: str, origin: Callable[[str], str]) -> TensorSpec:
    values = getattr(getattr(info, "shape", None), "values", None)
    if values is None:
        raise ModelError(
            f"the shape of output {name!r} of {model} depends on the input's values",
            remedy=f"Cut the model before {origin(name)}, or make what it depends on a constant.",
        )
    shape = extents(values)
    if 0 in shape:
        raise ModelError(
            f"output {name!r} of {model} has no elements: its shape is {','.join(map(str, shape))}",
            remedy="Remove it from the outputs (onnx.utils.extract_model): there is nothing to compute.",
        )
    return TensorSpec(name, shape, str(info.dtype))
