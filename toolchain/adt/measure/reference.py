"""The right answer: the source model run on this machine by the runtime that its format comes from.

ONNX runs in onnxruntime, TFLite in its interpreter, an exported PyTorch program in
torch, a Keras model in Keras.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from adt.errors import AdtError, InputError, ModelError
from adt.model.importers import formats
from adt.model.importers.extras import load

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

_REFUSED = "refuses the inputs"


def run_reference(model: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run the model file on *inputs* (name to array) on the CPU; return its outputs by name.

    Raises:
        ModelError: the runtime cannot load the model.
        InputError: it refuses the inputs.
        ToolNotFound: the runtime is not installed.
    """
    runs = {
        formats.ONNX: _run_onnx,
        formats.TFLITE: _run_tflite,
        formats.TORCH: _run_torch,
        formats.KERAS: _run_keras,
    }
    return runs[formats.format_of(model)](model, inputs)


def _run_onnx(model: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only: warnings about unused initializers say nothing here
    try:
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except Exception as why:  # onnxruntime's own exception classes have no public base
        raise _no_model("onnxruntime", model, why) from why
    names = [output.name for output in session.get_outputs()]
    try:
        results = session.run(names, dict(inputs))
    except Exception as why:
        raise _no_input("onnxruntime", why) from why
    return dict(zip(names, results, strict=True))


def _run_tflite(model: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    litert = load("ai_edge_litert.interpreter", "tflite", "running a .tflite file as the reference")
    try:
        # Without delegates: XNNPACK rounds otherwise and refuses some shapes.
        kernels = litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        interpreter = litert.Interpreter(str(model), experimental_op_resolver_type=kernels)
        details = interpreter.get_input_details()
    except (RuntimeError, ValueError) as why:
        raise _no_model("the TFLite interpreter", model, why) from why
    try:
        for detail in details:
            interpreter.resize_tensor_input(detail["index"], list(inputs[detail["name"]].shape))
        interpreter.allocate_tensors()
        for detail in details:
            interpreter.set_tensor(detail["index"], inputs[detail["name"]])
        interpreter.invoke()
    except (KeyError, RuntimeError, ValueError) as why:
        raise _no_input("the TFLite interpreter", why) from why
    return {out["name"]: interpreter.get_tensor(out["index"]) for out in interpreter.get_output_details()}


def _run_torch(model: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    torch = load("torch", "torch", "running a PyTorch program as the reference")
    from adt.model.importers.torch import load_program, program_inputs, program_outputs

    program = load_program(model)
    try:
        given = [torch.from_numpy(inputs[spec.name].copy()) for spec in program_inputs(program)]
        with torch.no_grad():
            result = program.module()(*given)
    except AdtError:
        raise
    except Exception as why:  # torch raises RuntimeError, AssertionError, KeyError, …
        raise _no_input("torch", why) from why
    flat = torch.utils._pytree.tree_leaves(result)
    names = program_outputs(program)
    return {name: value.detach().numpy() for name, value in zip(names, flat, strict=True)}


def _run_keras(model: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    from adt.model.importers.keras import load_keras, run_keras

    loaded = load_keras(model)
    try:
        return run_keras(loaded, inputs)
    except AdtError:
        raise
    except Exception as why:  # Keras and its backend raise what they meet
        raise _no_input("Keras", why) from why


def _no_model(runtime: str, model: Path, why: Exception) -> AdtError:
    return ModelError(
        f"{runtime} cannot load {model.name}", remedy="Verify against another model.", details=str(why)
    )


def _no_input(runtime: str, why: Exception) -> AdtError:
    return InputError(f"{runtime} {_REFUSED}", remedy="Check names, shapes and dtypes.", details=str(why))
