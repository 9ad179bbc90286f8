"""Import an ONNX file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from adt.compiler.importers.constants import lift_weights
from adt.compiler.importers.functions import unrunnable
from adt.compiler.importers.imported_model import ImportedModel, detached, distinct_names, imported_model
from adt.compiler.importers.layers import PROCESS, check_layers
from adt.compiler.importers.onnx.blockwise import in_floats
from adt.compiler.importers.onnx.conversion import to_relax, try_conversion
from adt.compiler.importers.onnx.converters import CONVERTERS
from adt.compiler.importers.onnx.converters.blockwise import blockwise_converters
from adt.compiler.importers.onnx.converters.node import Converter
from adt.compiler.importers.onnx.converters.recurrent import recurrent_converters
from adt.compiler.importers.onnx.file import fixed_inputs, input_dtypes, read_onnx, with_fixed_shapes
from adt.compiler.importers.onnx.graph import Graph, all_nodes, op_name, open_shape_origin
from adt.compiler.importers.onnx.layers import layers_of, run_alone
from adt.compiler.importers.onnx.support import (
    never_supported_ops,
    tell_tvm_operators,
    tvm_operators,
    uncomputed_types,
    unsupported_ops,
)
from adt.compiler.importers.op_table import OpRow, after_trial, op_rows, refusal
from adt.compiler.importers.shapes import RequestedShapes, Shape
from adt.compiler.passes.recurrence import RecurrentSteps
from adt.errors import ModelError, UnsupportedOp
from adt.host.disk import disk_errors, memory_file, scratch_directory
from adt.host.isolated import begin, isolated
from adt.limits import MOST_PROTOBUF
from adt.package.manifest import SourceModel, TensorSpec

if TYPE_CHECKING:
    from adt.compiler.importers.onnx.preparation import PreparedModel

SIMPLIFIER = "onnxslim"
"""Module that takes longest to import; it imports onnx and onnxruntime."""

PREPARATION_SECONDS = 3600.0
"""A model whose preparation takes longer never ends: one of 2 GB takes minutes."""


@dataclass(frozen=True)
class PreparedFile:
    """An ONNX file whose prepared model is in another file."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[str, ...]
    table: tuple[OpRow, ...]
    kept: tuple[str, ...]
    """See :attr:`PreparedModel.kept`."""


def import_onnx(
    path: Path,
    shapes: RequestedShapes,
    source: SourceModel,
    steps: RecurrentSteps | None = None,
    *,
    blockwise: bool = False,
    check: bool = False,
) -> ImportedModel:
    """Import an ONNX model with static shapes.

    Args:
        steps, blockwise, check: see :func:`adt.compiler.importers.importer.import_model`.

    Raises:
        ModelError: the file or a shape is wrong, or TVM's importer failed.
        UnsupportedOp: there is no converter for an operator.
        OutOfMemory: onnx or onnxruntime takes more memory than there is for it.
    """
    import onnx

    begin(SIMPLIFIER)
    if check:
        begin("tvm", process=PROCESS)
    with _prepared(path, shapes, loops=steps is not None, blockwise=blockwise) as (file, written):
        assert written is not None
        model = onnx.load(written)
        whole = {**(recurrent_converters(steps) if steps else {}), **blockwise_converters()}
        kept = {op: whole[op] for op in file.kept}
        module = to_relax(model, kept)
        if check:
            check_layers("onnxruntime", partial(layers_of, written), partial(_convert, kept), run_alone)
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


@contextlib.contextmanager
def _prepared(path: Path, shapes: RequestedShapes, **how: bool) -> Iterator[tuple[PreparedFile, Path | None]]:
    """Have :func:`_prepare` describe a file; yield also the model that it wrote, if it did.

    Raises:
        ModelError, UnsupportedOp, OutOfMemory: see :func:`import_onnx`.
    """
    operators = sorted(tvm_operators())
    with scratch_directory("import") as scratch, memory_file("prepared") as out:
        large = scratch / "prepared.onnx"
        file = _prepare(path.absolute(), dict(shapes), operators, out, large, **how)
        written = out if out.stat().st_size else large
        yield file, written if written.exists() else None


def _convert(kept: Mapping[str, Converter], model: bytes) -> tuple[Any, Sequence[Any]]:
    import onnx

    return detached(to_relax(onnx.ModelProto.FromString(model), kept))


@isolated("preparing {path.name}", PREPARATION_SECONDS)
def _prepare(
    path: Path,
    shapes: dict[str, Any],
    operators: list[str],
    out: Path,
    large: Path,
    loops: bool = False,
    blockwise: bool = False,
    explains: bool = False,
) -> PreparedFile:
    """Write to *out*, which needs no disk, what TVM's importer is to convert.

    Args:
        operators: those that it converts.
        large: written instead, with its weights beside it, where protobuf does not write the whole.
        loops, blockwise: see :func:`adt.compiler.importers.onnx.preparation.prepare`.
        explains: refuse no operator; without the shapes that it needs, write nothing, and describe the file's
            own graph.

    Raises:
        ModelError, UnsupportedOp: see :func:`import_onnx`.
        DiskError: there is no room for it.
    """
    import onnx

    from adt.compiler.importers.onnx.preparation import PreparedModel, prepare

    tell_tvm_operators(operators)
    model = read_onnx(path)
    try:
        fixed = fixed_inputs(model, _tuples(shapes))
    except ModelError:
        never = never_supported_ops(model)
        table = op_table(PreparedModel(model, model, {}), never)
        if explains:
            return PreparedFile((), (), table, ())
        if never:  # first what no --shape mends
            raise _unsupported(path, table) from None
        raise
    dtypes = input_dtypes(model)  # nothing runs without them
    prepared = prepare(
        with_fixed_shapes(in_floats(model), fixed), path.name, loops=loops, blockwise=blockwise
    )
    table = op_table(prepared)
    if refusal(table) and not explains:
        raise _unsupported(path, table)
    if prepared.model.ByteSize() <= MOST_PROTOBUF:
        onnx.save(prepared.model, out)
    else:
        with disk_errors("writing temporary files", large, variable="TMPDIR"):
            onnx.save(prepared.model, large, save_as_external_data=True, location="weights")
    inputs = tuple(TensorSpec(name, shape, dtypes[name]) for name, shape in fixed.items())
    outputs = tuple(value.name for value in prepared.model.graph.output)
    return PreparedFile(inputs, outputs, table, tuple(sorted(prepared.kept)))


def _tuples(shapes: dict[str, Any]) -> dict[str, Shape | int]:
    """Return *shapes* as they were before they crossed: JSON has lists."""
    return {name: extents if isinstance(extents, int) else tuple(extents) for name, extents in shapes.items()}


def _unsupported(path: Path, table: tuple[OpRow, ...]) -> UnsupportedOp:
    return UnsupportedOp(
        f"{path.name} uses operators that cannot be imported: {refusal(table)}",
        remedy="Export the model without them (another opset, or the part before them);"
        f" `adt compile {quote(str(path))} --explain` lists every operator.",
    )


def explain_onnx(path: Path, shapes: RequestedShapes) -> tuple[OpRow, ...]:
    """Return the op table of an ONNX file whose import fails: what failed is unsupported, what comes after
    untried.

    Without the shapes that it needs the file's own graph is described, and all that some shape may
    make convertible is untried.

    Raises:
        ModelError: the file cannot be read.
    """
    import onnx

    with _prepared(path, shapes, explains=True) as (file, written):
        if written is None:
            return after_trial(file.table, {}, {row.op for row in file.table})
        conversion = try_conversion(onnx.load(written))
    unsupported = dict(conversion.failures)
    if conversion.module is not None and not unsupported:
        unsupported = unrunnable(conversion.module, file.table)
    return after_trial(file.table, unsupported, conversion.untried)


@isolated("reading {path.name}", PREPARATION_SECONDS)
def onnx_inputs(path: Path, shapes: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each input of an ONNX file.

    Raises:
        ModelError: the file or a shape is wrong.
    """
    return fixed_inputs(read_onnx(path), _tuples(shapes))


def op_table(prepared: PreparedModel, missing: Mapping[str, str] | None = None) -> tuple[OpRow, ...]:
    """Return what became of each operator of the simplified model.

    Args:
        missing: operators that cannot be converted, with a note; None: those of the prepared model.
    """
    ops = [op_name(node) for node in all_nodes(prepared.simplified.graph)]
    if missing is None:
        notes = unsupported_ops(prepared.model) | uncomputed_types(prepared.model)
        missing = {op: note for op, note in notes.items() if op not in prepared.kept}
    hidden = [op for op in missing if op not in ops]  # only in what an operator was rewritten to
    return op_rows(
        [*ops, *hidden],
        prepared.rewritten,
        missing,
        dict.fromkeys((*CONVERTERS, *prepared.kept), "converted by adt"),
    )
