"""Import of a .tflite file."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tvm import relax
from tvm.relax.frontend.tflite import from_tflite
from tvm.relax.frontend.tflite.tflite_frontend import ExprTable

from adt.compiler.importers.constants import lift_weights
from adt.compiler.importers.frameworks import framework_errors
from adt.compiler.importers.imported_model import ImportedModel, detached, imported_model
from adt.compiler.importers.layers import check_layers
from adt.compiler.importers.op_table import OpRow, after_trial, op_rows, refusal
from adt.compiler.importers.shapes import RequestedShapes, Shape
from adt.compiler.importers.tflite.converters import MENDED, Converter, Refusal, notes
from adt.compiler.importers.tflite.file import (
    fixed_inputs,
    has_open_shapes,
    model_of,
    parameter_name,
    read_tflite,
    tensors,
    with_shapes,
)
from adt.compiler.importers.tflite.layers import kinds_of, layers_of
from adt.errors import AdtError, ModelError, UnsupportedOp, last_line
from adt.package.manifest import SourceModel, TensorSpec


def import_tflite(
    path: Path, shapes: RequestedShapes, source: SourceModel, *, check: bool = False
) -> ImportedModel:
    """Import a .tflite file; its NHWC layout stays."""
    data = read_tflite(path)
    rows = _op_table(data, path)
    if refusal(rows):
        raise _unsupported(path, data, rows)
    fixed = fixed_inputs(data, path, shapes)
    if any(tensor.shape != fixed[tensor.name] for tensor in tensors(data, path)):
        data = with_shapes(data, path, fixed)
    module = lift_weights(_to_relax(data, path, fixed, rows))
    find, give = partial(kinds_of, data), partial(layers_of, data, path.name)
    suspects = check_layers("the TFLite interpreter", find, give, _convert) if check else ()
    return imported_model(
        module,
        inputs={
            parameter_name(tensor.index): TensorSpec(tensor.name, fixed[tensor.name], tensor.dtype)
            for tensor in tensors(data, path)
        },
        output_names=[tensor.name for tensor in tensors(data, path, outputs=True)],
        source=source,
        file=path,
        ops=rows,
        suspects=suspects,
    )


def _convert(layer: bytes) -> tuple[Any, Sequence[Any]]:
    refused: list[Refusal] = []
    module = _from_tflite(layer, refused)
    if refused:
        raise ValueError(next(iter(notes(refused).values())))
    return detached(lift_weights(module))


def explain_tflite(path: Path) -> tuple[OpRow, ...]:
    """Return the op table of a .tflite file whose import fails; all operators, in the file's own shapes."""
    data = read_tflite(path)
    rows = _op_table(data, path)
    refused: list[Refusal] = []
    if not refusal(rows):
        with contextlib.suppress(Exception):  # ends with what the last operator raised
            _from_tflite(data, refused)
    return after_trial(rows, notes(refused), () if refused else {row.op for row in rows})


def _unsupported(path: Path, data: bytes, rows: tuple[OpRow, ...]) -> UnsupportedOp:
    advice = "Convert the model again without them, or without quantization; or take its ONNX form."
    if has_open_shapes(data):
        advice = f"Give the extents that the file leaves open with --shape. {advice}"
    what = f"{path.name} uses operators that cannot be imported: {refusal(rows)}"
    return UnsupportedOp(what, remedy=advice)


def _from_tflite(data: bytes, refused: list[Refusal]) -> Any:
    return from_tflite(model_of(data), op_converter=partial(Converter, refused=refused))


def _to_relax(data: bytes, path: Path, fixed: Mapping[str, Shape], rows: tuple[OpRow, ...]) -> Any:
    """Convert the file; where its writer left extents open, and stated wrong ones, with the interpreter's."""
    refused: list[Refusal] = []
    try:
        module = _from_tflite(data, refused)
    except AdtError:
        raise
    except Exception as error:  # the importer asserts and raises plain Python errors
        if not refused:
            raise ModelError(
                f"TVM's TFLite importer failed on {path.name}: {type(error).__name__}: {last_line(error)}",
                remedy="Convert the model again, or take its ONNX form.",
            ) from error
    if any(each.differs for each in refused) and has_open_shapes(data):
        inferred = data
        with contextlib.suppress(AdtError):
            inferred = with_shapes(data, path, fixed)
        if inferred != data:
            return _to_relax(inferred, path, fixed, rows)
    if refused:
        raise _unsupported(path, data, after_trial(rows, notes(refused), ()))
    return module


def _op_table(data: bytes, path: Path) -> tuple[OpRow, ...]:
    subgraph = model_of(data).Subgraphs(0)
    converter = Converter(model_of(data), subgraph, ExprTable(), relax.BlockBuilder())
    ops: list[str] = []
    unsupported: dict[str, str] = {}
    # damaged, or tensors of types that the importer does not know
    with framework_errors(f"{path.name} cannot be read", "Export or download it again."):
        for index in range(subgraph.OperatorsLength()):
            operator = subgraph.Operators(index)
            try:
                ops.append(converter.get_op_code_str(operator))
            except Exception as error:  # NotImplementedError of several kinds: custom or too new
                ops.append(f"operator {index}")
                unsupported[ops[-1]] = last_line(error)
        unsupported = unsupported or converter.unsupported()
    return op_rows(ops, {}, unsupported, MENDED)
