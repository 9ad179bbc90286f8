"""Import of a model of any format that adt reads."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from adt.compiler.importers import formats, model_store
from adt.compiler.importers.functions import check_functions, packed_functions, unrunnable
from adt.compiler.importers.imported_model import ImportedModel
from adt.compiler.importers.op_table import OpRow, after_trial
from adt.compiler.importers.shapes import RequestedShapes, Shape
from adt.compiler.passes.recurrence import RecurrentSteps
from adt.errors import AdtError
from adt.package.manifest import SourceModel

log = logging.getLogger("adt.import")


@dataclass(frozen=True)
class Explanation:
    """Explanation of what an import would do with a model."""

    file: str
    format: str
    """``onnx``, ``tflite``, ``torch``, ``keras`` or ``relax``."""
    ops: tuple[OpRow, ...]
    """Result for each operator, failures first; empty when the file cannot be read so far."""
    problem: str
    """Reason why the import fails; empty when it succeeds."""
    remedy: str
    """Remedy of that; empty when it succeeds."""
    options: tuple[str, ...]
    """Options that the command needs in addition for that (``--shape …``); empty when nothing would do."""
    exit_code: int
    """Exit code of compiling; 0 when the import succeeds."""


def import_model(
    model: Path | str,
    shapes: RequestedShapes,
    steps: RecurrentSteps | None = None,
    *,
    blockwise: bool = False,
    check: bool = False,
) -> ImportedModel:
    """Import a model file, or what the Python callable ``module:function`` returns.

    Args:
        steps: how the target computes all steps of a recurrent layer of ONNX in one function, where they
            can be; None: they are unrolled.
        blockwise: weights of 4 or 8 bits with scales for blocks stay so; else they become floats.
        check: compare each operator with the format's own runtime.
    """
    return _import(*_open(model), shapes, steps, check=check, blockwise=blockwise)


def _import(
    path: Path,
    source: SourceModel,
    shapes: RequestedShapes,
    steps: RecurrentSteps | None = None,
    *,
    check: bool = False,
    blockwise: bool = False,
) -> ImportedModel:
    if source.format == formats.TFLITE:
        from adt.compiler.importers.tflite.importer import import_tflite

        return import_tflite(path, shapes, source, check=check)
    if source.format == formats.TORCH:
        from adt.compiler.importers.torch import import_torch

        return import_torch(path, shapes, source, check=check)
    if source.format == formats.KERAS:
        from adt.compiler.importers.keras import import_keras

        return import_keras(path, shapes, source, check=check)
    if source.format == formats.RELAX:
        from adt.compiler.importers.relax import import_relax

        return import_relax(path, shapes, source)
    from adt.compiler.importers.onnx.importer import import_onnx

    return import_onnx(path, shapes, source, steps, blockwise=blockwise, check=check)


def explain_model(model: Path | str, shapes: RequestedShapes) -> Explanation:
    """Return the op table of a model, and whether and why its import fails."""
    path, source = _open(model)
    imported = None
    try:
        imported = _import(path, source, shapes)
        check_functions(imported, packed_functions(imported.module), ())
    except AdtError as error:
        if imported is None:
            ops = _table(path, source.format, shapes)
        else:
            ops = after_trial(imported.ops, unrunnable(imported.module, imported.ops), ())
        return Explanation(
            source.file, source.format, ops, error.what, error.remedy, error.options, error.exit_code
        )
    return Explanation(source.file, source.format, imported.ops, "", "", (), 0)


def _table(path: Path, format: str, shapes: RequestedShapes) -> tuple[OpRow, ...]:
    """Build the op table of a model that cannot be imported, as far as it can be read."""
    try:
        if format == formats.ONNX:
            from adt.compiler.importers.onnx.importer import explain_onnx

            return explain_onnx(path, shapes)
        if format == formats.TFLITE:
            from adt.compiler.importers.tflite.importer import explain_tflite

            return explain_tflite(path)
        if format == formats.TORCH:
            from adt.compiler.importers.torch import explain_torch

            rows = explain_torch(path)
            return after_trial(rows, {}, {row.op for row in rows})  # which of them fail is not known
    except AdtError as error:
        log.debug("there is no op table: %s", error)
    return ()


def _open(model: Path | str) -> tuple[Path, SourceModel]:
    """Return the model's file, and its name, format and digest."""
    if formats.is_callable(model):
        from adt.compiler.importers.torch_program import exported_by

        with exported_by(str(model)) as exported:
            source = SourceModel(exported.name, formats.TORCH, model_store.model_sha256(exported))
            return model_store.keep(exported, source.sha256), source
    path = Path(model)
    format = formats.format_of(path)
    return path, SourceModel(path.name, format, model_store.model_sha256(path))


def declared_inputs(model: Path | str, shapes: RequestedShapes) -> dict[str, Shape]:
    """Return the inputs that a model will have, as far as its file tells without importing it; else empty."""
    path = Path(model)
    format = formats.TORCH if formats.is_callable(model) else formats.format_of(path)
    if format == formats.ONNX:
        from adt.compiler.importers.onnx.prepared_file import onnx_inputs

        return onnx_inputs(path.absolute(), dict(shapes))
    if format == formats.TFLITE:
        from adt.compiler.importers.tflite import file as tflite_file

        return tflite_file.fixed_inputs(tflite_file.read_tflite(path), path, shapes)
    return {}
