"""Import an ONNX file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from adt.compiler.importers.constants import lift_weights
from adt.compiler.importers.functions import unrunnable
from adt.compiler.importers.imported_model import ImportedModel, detached, imported_model
from adt.compiler.importers.layers import check_layers
from adt.compiler.importers.onnx.conversion import operators, to_relax, try_conversion
from adt.compiler.importers.onnx.converters.node import Converter
from adt.compiler.importers.onnx.converters.whole import whole_converters
from adt.compiler.importers.onnx.graph import Graph, open_shape_origin
from adt.compiler.importers.onnx.layers import kinds_of, layers_of, reference_of
from adt.compiler.importers.onnx.prepared_file import SIMPLIFIER, prepared_file
from adt.compiler.importers.op_table import OpRow, after_trial
from adt.compiler.importers.shapes import RequestedShapes, distinct_names
from adt.compiler.passes.recurrence import RecurrentSteps
from adt.host.isolated import begin
from adt.package.manifest import SourceModel


def import_onnx(
    path: Path,
    shapes: RequestedShapes,
    source: SourceModel,
    steps: RecurrentSteps | None = None,
    *,
    blockwise: bool = False,
    check: bool = False,
) -> ImportedModel:
    """Import an ONNX model with static shapes; see :func:`adt.compiler.importers.importer.import_model`."""
    begin(SIMPLIFIER)
    with prepared_file(path, shapes, *operators(), loops=steps is not None, blockwise=blockwise) as (
        file,
        written,
    ):
        assert written is not None
        model = onnx.load(written)
        whole = whole_converters(steps)
        kept = {op: whole[op] for op in file.kept}
        kinds = list(kinds_of(model, dict.fromkeys(kept, type(steps).__name__))) if check else []
        module = to_relax(model, kept)
        if check:
            give, convert = partial(layers_of, written), partial(_convert, kept)
            check_layers("onnxruntime", lambda: kinds, give, convert, reference_of)
    if any(node.op_type == "If" for node in model.graph.node):
        module = lift_weights(module)  # TVM leaves those of branches where they are
    return imported_model(
        module,
        inputs={spec.name: spec for spec in file.inputs},
        output_names=distinct_names(file.outputs),
        source=source,
        file=path,
        ops=file.table,
        origin=partial(open_shape_origin, Graph(model, model.graph)),
    )


def _convert(kept: Mapping[str, Converter], model: bytes) -> tuple[Any, Sequence[Any]]:
    return detached(to_relax(onnx.ModelProto.FromString(model), kept))


def explain_onnx(path: Path, shapes: RequestedShapes) -> tuple[OpRow, ...]:
    """Return the op table of an ONNX file whose import fails, with what failed and what was not tried.

    Without the shapes that it needs the file's own graph is described, and all that some shape may
    make convertible is untried.
    """
    with prepared_file(path, shapes, *operators(), explains=True) as (file, written):
        if written is None:
            return after_trial(file.table, {}, {row.op for row in file.table})
        conversion = try_conversion(onnx.load(written))
    unsupported = dict(conversion.failures)
    if conversion.module is not None and not unsupported:
        unsupported = unrunnable(conversion.module, file.table)
    return after_trial(file.table, unsupported, conversion.untried)
