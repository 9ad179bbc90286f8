"""Import a .tflite file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adt.errors import AdtError, ModelError, UnsupportedOp
from adt.model.importers.imported import ImportedModel, imported_model, last_line
from adt.model.importers.op_table import OpRow, op_rows, refusal
from adt.model.importers.shapes import Given
from adt.model.importers.tflite.converters import MENDED, converter_class
from adt.model.importers.tflite.file import fixed_inputs, model_of, read_tflite, tensors, with_shapes
from adt.model.importers.weights import lift_weights
from adt.model.package import SourceModel, TensorSpec


def import_tflite(path: Path, shapes: Given, source: SourceModel) -> ImportedModel:
    """Import a .tflite file; its NHWC layout stays.

    Raises:
        ModelError: the file is damaged, a shape is wrong, or TVM's importer failed.
        UnsupportedOp: there is no converter for an operator.
        ToolNotFound: the extra is missing.
    """
    data = read_tflite(path)
    rows = _op_table(data, path)
    if reason := refusal(rows):
        raise UnsupportedOp(
            f"{path.name} uses operators that cannot be imported: {reason}",
            remedy="Convert the model again without them, or without quantization.",
        )
    fixed = fixed_inputs(data, path, shapes)
    data = with_shapes(data, path, fixed)
    return imported_model(
        lift_weights(_to_relax(data, path)),
        inputs=[TensorSpec(t.name, fixed[t.name], t.dtype) for t in tensors(data, path)],
        output_names=[tensor.name for tensor in tensors(data, path, outputs=True)],
        source=source,
        file=path,
        ops=rows,
    )


def explain_tflite(path: Path) -> tuple[OpRow, ...]:
    """The op table of a .tflite file, without converting it.

    Raises:
        ModelError: the file is damaged.
        ToolNotFound: the extra is missing.
    """
    return _op_table(read_tflite(path), path)


def _to_relax(data: bytes, path: Path) -> Any:
    from tvm.relax.frontend.tflite import from_tflite

    try:
        return from_tflite(model_of(data), op_converter=converter_class())
    except AdtError:
        raise
    except Exception as why:  # the importer asserts and raises plain Python errors
        raise ModelError(
            f"TVM's TFLite importer failed on {path.name}: {type(why).__name__}: {last_line(why)}",
            remedy="The model uses something that this TVM does not import: convert it again without"
            " that, or take its ONNX form.",
        ) from why


def _op_table(data: bytes, path: Path) -> tuple[OpRow, ...]:
    from tvm import relax
    from tvm.relax.frontend.tflite.tflite_frontend import ExprTable

    subgraph = model_of(data).Subgraphs(0)
    converter = converter_class()(model_of(data), subgraph, ExprTable(), relax.BlockBuilder())
    ops: list[str] = []
    unsupported: dict[str, str] = {}
    for index in range(subgraph.OperatorsLength()):
        try:
            ops.append(converter.get_op_code_str(subgraph.Operators(index)))
        except Exception as why:  # NotImplementedError of several kinds: custom or too new
            ops.append(f"operator {index}")
            unsupported[ops[-1]] = last_line(why)
    try:
        if not unsupported:
            unsupported = converter.unsupported()
    except Exception as why:  # tensors with types that the importer does not know
        raise ModelError(
            f"{path.name} cannot be read: {type(why).__name__}: {last_line(why)}",
            remedy="Export or download it again.",
        ) from why
    return op_rows(ops, {}, unsupported, MENDED)
