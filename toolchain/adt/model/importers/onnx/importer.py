"""Import an ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from adt.errors import ModelError, UnsupportedOp
from adt.model.importers.imported import ImportedModel, imported_model
from adt.model.importers.onnx.convert import CONVERTED_HERE, to_relax
from adt.model.importers.onnx.file import declared_inputs, input_dtypes, read_onnx, with_fixed_shapes
from adt.model.importers.onnx.graph import all_nodes, op_name
from adt.model.importers.onnx.prepare import Prepared, prepare
from adt.model.importers.onnx.support import unsupported_ops
from adt.model.importers.op_table import UNSUPPORTED, OpRow, op_rows
from adt.model.importers.shapes import Shape, fixed_shapes
from adt.model.importers.weights import lift_weights
from adt.model.package import SourceModel, TensorSpec


def import_onnx(path: Path, shapes: Mapping[str, Shape], source: SourceModel) -> ImportedModel:
    """Import an ONNX model with static shapes.

    Raises:
        ModelError: the file or a shape is wrong, or TVM's importer failed.
        UnsupportedOp: there is no converter for an operator.
    """
    model = read_onnx(path)
    fixed = fixed_shapes(declared_inputs(model), shapes)
    dtypes = input_dtypes(model)
    prepared = prepare(with_fixed_shapes(model, fixed), path.name)
    table = op_table(prepared)
    if missing := [row for row in table if row.status == UNSUPPORTED]:
        raise UnsupportedOp(
            f"{path.name} uses operators that cannot be imported: {', '.join(row.op for row in missing)}",
            remedy="Export the model without them (another opset, or the part before them);"
            " `adt compile MODEL --explain` lists every operator.",
            details="\n".join(f"{row.op}: {row.note}" for row in missing),
        )
    module = to_relax(prepared.model)
    if any(node.op_type == "If" for node in prepared.model.graph.node):
        module = lift_weights(module)  # TVM leaves those of branches where they are
    return imported_model(
        module,
        inputs=[TensorSpec(name, shape, dtypes[name]) for name, shape in fixed.items()],
        output_names=[value.name for value in model.graph.output],
        source=source,
        file=path,
        ops=table,
    )


def explain_onnx(path: Path, shapes: Mapping[str, Shape]) -> tuple[OpRow, ...]:
    """The op table of an ONNX file, without converting it; of the file's own graph when shapes are missing.

    Raises:
        ModelError: the file cannot be read.
    """
    model = read_onnx(path)
    try:
        fixed = fixed_shapes(declared_inputs(model), shapes)
    except ModelError:
        return op_table(Prepared(model, model, {}))
    return op_table(prepare(with_fixed_shapes(model, fixed), path.name))


def op_table(prepared: Prepared) -> tuple[OpRow, ...]:
    """What became of each operator of the simplified model."""
    ops = [op_name(node) for node in all_nodes(prepared.simplified.graph)]
    missing = unsupported_ops(prepared.model)
    hidden = [op for op in missing if op not in ops]  # only in what an operator was rewritten to
    return op_rows([*ops, *hidden], prepared.rewritten, missing, CONVERTED_HERE)
