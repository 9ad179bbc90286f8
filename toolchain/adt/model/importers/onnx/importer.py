"""Import an ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from adt.errors import ModelError, UnsupportedOp
from adt.model.functions import unrunnable
from adt.model.importers.constants import lift_weights
from adt.model.importers.imported_model import ImportedModel, distinct_names, imported_model
from adt.model.importers.onnx.conversion import to_relax, try_conversion
from adt.model.importers.onnx.converters import CONVERTERS
from adt.model.importers.onnx.converters.blockwise import blockwise_converters
from adt.model.importers.onnx.converters.recurrent import recurrent_converters
from adt.model.importers.onnx.file import fixed_inputs, input_dtypes, read_onnx, with_fixed_shapes
from adt.model.importers.onnx.graph import Graph, all_nodes, op_name, open_shape_origin
from adt.model.importers.onnx.preparation import PreparedModel, prepare
from adt.model.importers.onnx.support import never_supported_ops, unsupported_ops
from adt.model.importers.op_table import OpRow, after_trial, op_rows, refusal
from adt.model.importers.shapes import RequestedShapes
from adt.model.package.manifest import SourceModel, TensorSpec
from adt.model.passes.recurrence import RecurrentSteps


def import_onnx(
    path: Path,
    shapes: RequestedShapes,
    source: SourceModel,
    steps: RecurrentSteps | None = None,
    *,
    blockwise: bool = False,
) -> ImportedModel:
    """Import an ONNX model with static shapes.

    Args:
        steps, blockwise: see :func:`adt.model.importers.importer.import_model`.

    Raises:
        ModelError: the file or a shape is wrong, or TVM's importer failed.
        UnsupportedOp: there is no converter for an operator.
    """
    model = read_onnx(path)
    try:
        fixed = fixed_inputs(model, shapes)
    except ModelError:
        if never := never_supported_ops(model):  # first what no --shape mends
            raise _unsupported(path, op_table(PreparedModel(model, model, {}), never)) from None
        raise
    dtypes = input_dtypes(model)
    prepared = prepare(
        with_fixed_shapes(model, fixed), path.name, loops=steps is not None, blockwise=blockwise
    )
    table = op_table(prepared)
    if refusal(table):
        raise _unsupported(path, table)
    whole = {**(recurrent_converters(steps) if steps else {}), **blockwise_converters()}
    module = to_relax(prepared.model, {op: whole[op] for op in prepared.kept})
    if any(node.op_type == "If" for node in prepared.model.graph.node):
        module = lift_weights(module)  # TVM leaves those of branches where they are
    return imported_model(
        module,
        inputs={name: TensorSpec(name, shape, dtypes[name]) for name, shape in fixed.items()},
        output_names=distinct_names(value.name for value in prepared.model.graph.output),
        source=source,
        file=path,
        ops=table,
        origin=partial(open_shape_origin, Graph(prepared.model, prepared.model.graph)),
    )


def _unsupported(path: Path, table: tuple[OpRow, ...]) -> UnsupportedOp:
    return UnsupportedOp(
        f"{path.name} uses operators that cannot be imported: {refusal(table)}",
        remedy="Export the model without them (another opset, or the part before them);"
        " `adt compile MODEL --explain` lists every operator.",
    )


def explain_onnx(path: Path, shapes: RequestedShapes) -> tuple[OpRow, ...]:
    """The op table of an ONNX file whose import fails: what failed is unsupported, what comes after untried.

    Without the shapes that it needs the file's own graph is described, and all that some shape may
    make convertible is untried.

    Raises:
        ModelError: the file cannot be read.
    """
    model = read_onnx(path)
    try:
        fixed = fixed_inputs(model, shapes)
    except ModelError:
        table = op_table(PreparedModel(model, model, {}), never_supported_ops(model))
        return after_trial(table, {}, {row.op for row in table})
    prepared = prepare(with_fixed_shapes(model, fixed), path.name)
    table = op_table(prepared)
    conversion = try_conversion(prepared.model)
    unsupported = dict(conversion.failures)
    if conversion.module is not None and not unsupported:
        unsupported = unrunnable(conversion.module, table)
    return after_trial(table, unsupported, conversion.untried)


def op_table(prepared: PreparedModel, missing: Mapping[str, str] | None = None) -> tuple[OpRow, ...]:
    """What became of each operator of the simplified model.

    Args:
        missing: operators that cannot be converted, with a note; None: those of the prepared model.
    """
    ops = [op_name(node) for node in all_nodes(prepared.simplified.graph)]
    if missing is None:
        missing = {
            op: note for op, note in unsupported_ops(prepared.model).items() if op not in prepared.kept
        }
    hidden = [op for op in missing if op not in ops]  # only in what an operator was rewritten to
    return op_rows(
        [*ops, *hidden],
        prepared.rewritten,
        missing,
        dict.fromkeys((*CONVERTERS, *prepared.kept), "converted by adt"),
    )
