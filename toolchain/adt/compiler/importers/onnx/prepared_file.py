"""An ONNX file, read and prepared for TVM's importer in a process of its own, without TVM."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import onnx

from adt.compiler.importers.onnx.blockwise import in_floats
from adt.compiler.importers.onnx.file import fixed_inputs, input_dtypes, read_onnx, with_fixed_shapes
from adt.compiler.importers.onnx.graph import all_nodes, op_name
from adt.compiler.importers.onnx.preparation import PreparedModel, inlined, prepare
from adt.compiler.importers.onnx.support import (
    known_operators,
    never_supported_ops,
    random_ops,
    tell_operators,
    uncomputed_types,
    unsupported_ops,
)
from adt.compiler.importers.op_table import OpRow, op_rows, refusal
from adt.compiler.importers.shapes import RequestedShapes, Shape
from adt.errors import ModelError, UnsupportedOp
from adt.host.disk import disk_errors, memory_file, scratch_directory
from adt.host.isolated import isolated
from adt.limits import MOST_PROTOBUF
from adt.package.manifest import TensorSpec

SIMPLIFIER = "onnxslim"  # module that takes longest to import; it imports onnx and onnxruntime

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


@contextlib.contextmanager
def prepared_file(
    path: Path, shapes: RequestedShapes, **how: bool
) -> Iterator[tuple[PreparedFile, Path | None]]:
    """Have :func:`_prepare` describe a file; yield also the model that it wrote, if it did."""
    with scratch_directory("import") as scratch, memory_file("prepared") as out:
        large = scratch / "prepared.onnx"
        by_tvm, by_adt = map(sorted, known_operators())
        file = _prepare(path.absolute(), dict(shapes), by_tvm, by_adt, out, large, **how)
        written = out if out.stat().st_size else large
        yield file, written if written.exists() else None


@isolated("preparing {path.name}", PREPARATION_SECONDS)
def _prepare(
    path: Path,
    shapes: dict[str, Any],
    by_tvm: list[str],
    by_adt: list[str],
    out: Path,
    large: Path,
    loops: bool = False,
    blockwise: bool = False,
    explains: bool = False,
) -> PreparedFile:
    """Write to *out*, which needs no disk, what TVM's importer is to convert.

    Where protobuf does not write the whole, *large* is written, with its weights beside it. If it *explains*,
    no operator is refused; without the shapes that it needs, the file's own graph is described, and nothing
    written.
    """
    tell_operators(by_tvm, by_adt)
    model = inlined(read_onnx(path), path.name)
    random = random_ops(model)
    plain = PreparedModel(model, model, {})
    try:
        fixed = fixed_inputs(model, _tuples(shapes))
    except ModelError:
        never = random | never_supported_ops(model)
        if explains:
            return PreparedFile((), (), op_table(plain, never), ())
        if never:  # first what no --shape mends
            raise _unsupported(path, op_table(plain, never)) from None
        raise
    if random and not explains:
        raise _unsupported(path, op_table(plain, random))
    dtypes = input_dtypes(model)  # nothing runs without them
    static = with_fixed_shapes(in_floats(model), fixed)
    prepared = prepare(static, path.name, loops=loops, blockwise=blockwise)
    table = op_table(prepared, unsupported_ops(prepared.model) | uncomputed_types(prepared.model) | random)
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


@isolated("reading {path.name}", PREPARATION_SECONDS)
def onnx_inputs(path: Path, shapes: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each input of an ONNX file."""
    return fixed_inputs(read_onnx(path), _tuples(shapes))


def op_table(prepared: PreparedModel, missing: Mapping[str, str]) -> tuple[OpRow, ...]:
    """Return what became of each operator of the simplified model; *missing* ones cannot be converted."""
    missing = {op: note for op, note in missing.items() if op not in prepared.kept}
    ops = [op_name(node) for node in all_nodes(prepared.simplified.graph)]
    ops += missing.keys() - set(ops)  # only in what an operator was rewritten to
    _, by_adt = known_operators()
    ours = dict.fromkeys((*by_adt, *prepared.kept), "converted by adt")
    return op_rows(ops, prepared.rewritten, missing, ours)
