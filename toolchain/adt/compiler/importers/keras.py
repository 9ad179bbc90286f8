"""Import of a Keras model (``.keras``, ``.h5``): Keras itself writes it as ONNX.

TVM has no importer of Keras. Keras 3 runs on any of its backends; adt's extra takes
torch, so that TensorFlow is not needed.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adt.compiler.importers.frameworks import framework_errors, quiet
from adt.compiler.importers.shapes import DeclaredShape, RequestedShapes, Shape, distinct_names, fixed_shapes
from adt.host.directories import cache_dir
from adt.host.disk import scratch_directory
from adt.host.extras import load, need
from adt.numerics import Array
from adt.package.manifest import SourceModel

if TYPE_CHECKING:
    from adt.compiler.importers.imported_model import ImportedModel


def import_keras(
    path: Path, shapes: RequestedShapes, source: SourceModel, *, check: bool = False
) -> ImportedModel:
    """Import a Keras model through ONNX, whose operators are compared with onnxruntime if *check*."""
    from adt.compiler.importers.onnx.importer import import_onnx
    from adt.compiler.importers.onnx.prepared_file import onnx_inputs

    model = load_keras(path)
    declared: dict[str, DeclaredShape] = {
        name: tuple("" if extent is None else int(extent) for extent in tensor.shape)
        for name, tensor in zip(_names(model.inputs), model.inputs, strict=True)
    }
    fixed = fixed_shapes(declared, shapes)
    with scratch_directory("keras") as directory:
        written = directory / f"{path.stem}.onnx"
        _export(model, fixed, written, path)
        imported = import_onnx(written, {}, source, check=check)
        exported = onnx_inputs(written, {})  # in the order of the signature, none left out
    names = dict(zip(exported, declared, strict=True))
    inputs, unused = (
        tuple(dataclasses.replace(spec, name=names[spec.name]) for spec in specs)
        for specs in (imported.inputs, imported.unused)
    )
    pairs = zip(imported.outputs, _names(model.outputs), strict=True)
    outputs = tuple(dataclasses.replace(spec, name=name) for spec, name in pairs)
    return dataclasses.replace(imported, inputs=inputs, unused=unused, outputs=outputs, quanta={}, file=path)


def load_keras(path: Path) -> Any:
    """Load the model in a ``.keras`` or ``.h5`` file; code in it (Lambda layers) is not run."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    if not Path("~/.keras/keras.json").expanduser().exists():  # else it writes one, with our backend for ever
        os.environ.setdefault("KERAS_HOME", str(cache_dir() / "keras"))
    need("keras", "reading a Keras model")
    keras = load("keras", "keras", "reading a Keras model")
    remedy = "Save it with model.save('model.keras') by Keras 3, without Lambda layers."
    with framework_errors(f"Keras cannot load {path}", remedy):
        return keras.saving.load_model(str(path), compile=False, safe_mode=True)


def run_keras(model: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run a loaded model, and return its outputs by name."""
    import numpy as np

    given = [inputs[name] for name in _names(model.inputs)]
    with quiet():
        result = model(given if len(given) > 1 else given[0], training=False)
    if isinstance(result, dict):
        result = list(result.values())
    results = result if isinstance(result, (list, tuple)) else [result]
    arrays = [np.asarray(value.detach().cpu() if hasattr(value, "detach") else value) for value in results]
    return dict(zip(_names(model.outputs), arrays, strict=True))


def _names(tensors: Iterable[Any]) -> list[str]:
    """Return the names of the layers that give *tensors*, whose own names differ with every load."""
    return distinct_names(tensor._keras_history.operation.name for tensor in tensors)


def _export(model: Any, fixed: Mapping[str, Shape], out: Path, path: Path) -> None:
    import keras

    signature = [
        keras.InputSpec(shape=fixed[name], dtype=tensor.dtype, name=name)
        for name, tensor in zip(_names(model.inputs), model.inputs, strict=True)
    ]
    with framework_errors(
        f"Keras cannot write {path.name} as ONNX", "Convert it to ONNX or TFLite where it was trained."
    ):
        model.export(str(out), format="onnx", verbose=False, input_signature=signature)
