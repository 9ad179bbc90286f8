"""The right answer: the source model run on this machine by the runtime that its format comes from.

ONNX runs in onnxruntime, TFLite in its interpreter, an exported PyTorch program in torch, a Keras model in
Keras. ``host`` is another kind of answer: what TVM makes of the model for this machine's CPU, in float32, by
plain loops. A fault of the importer is in it, too; one of the device or of what blocks tensors is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from adt.bundle.platforms import PLATFORMS
from adt.compiler.importers import formats, model_store
from adt.compiler.importers.shapes import distinct_names
from adt.compiler.networks.known import named
from adt.errors import AdtError, ConfigError, InputError, ModelError, ToolNotFound
from adt.host.extras import load, require_tvm
from adt.host.isolated import isolated
from adt.host.npz import DamagedNpz, read_npz
from adt.measure import roundings
from adt.numerics import Array
from adt.options.sections import Settings
from adt.package.manifest import check_arrays
from adt.package.package import ModelPackage

RUNTIMES = {
    formats.ONNX: "onnxruntime",
    formats.TFLITE: "tflite",
    formats.TORCH: "torch",
    formats.KERAS: "keras",
}
"""The runtime that each format comes from; what Python made of Relax has none but TVM."""
AUTO, HOST, FILE, MODEL = "auto", "host", "file", "model"
HOST_TIMEOUT = 900.0
"""Seconds for a model on this machine's CPU."""
REFERENCE_SECONDS = 1800.0
"""Seconds that its runtime may take, whose kernels may be plain loops."""


@dataclass(frozen=True)
class Reference:
    name: str
    """``onnxruntime``, …, ``host``, ``file``, or ``model``: another one, which is only nearly the same."""
    what: str
    run: Callable[[Mapping[str, Array]], dict[str, Array]]
    """Inputs by name to outputs by name; raises what :func:`run_reference` does."""
    model: Path | None = None
    """ONNX file that is the package's own, of which onnxruntime tells other right answers."""


def reference_named(
    choice: str,
    package: ModelPackage,
    find_model: Callable[[], Path],
    settings: Settings,
    *,
    trust: bool = False,
) -> Reference:
    """Find the reference that *choice* names, for *package*; *trust*: it may be a model that is code."""
    if choice.endswith(".npz"):
        outputs = read_outputs(Path(choice), package)
        return Reference(FILE, f"the outputs in {choice}", lambda _inputs: outputs)
    if (other := named(Path(choice)) or Path(choice)).is_file():
        model_store.require_trusted(other, trust)
        runtime = RUNTIMES.get(formats.format_of(other))
        if runtime is None:
            raise ConfigError(f"{choice} has no runtime but TVM", remedy="Name a model of another format.")
        copy = model_store.keep(other, model_store.model_sha256(other))  # of files that are checked
        run = partial(_run_in_its_runtime, copy, package)
        return Reference(MODEL, f"{other.name} by {runtime} on this machine", run)
    model = find_model()
    name = RUNTIMES.get(formats.format_of(model), HOST)
    if choice == HOST or (choice, name) == (AUTO, HOST):
        what = "the same model by TVM on this machine's CPU"
        return Reference(HOST, what, partial(_run_on_host, model, package, settings))
    if choice not in (AUTO, name):
        known = choice in RUNTIMES.values()
        raise ConfigError(
            f"{model.name} is a model of {name}, which {choice} does not run"
            if known
            else f"{choice} is no reference",
            remedy=f"Choose auto, {name}, host, an .npz file with the right outputs, or another model.",
        )
    own = model if name == RUNTIMES[formats.ONNX] else None
    return Reference(name, f"{name} on this machine", partial(_run_in_its_runtime, model, package), own)


def with_unused(inputs: Mapping[str, Array], package: ModelPackage) -> dict[str, Array]:
    """Add zeros to *inputs* for those that *package* leaves out, since nothing depends on them."""
    unused = package.manifest.entry().unused
    return {**{spec.name: np.zeros(tuple(map(int, spec.shape)), spec.dtype) for spec in unused}, **inputs}


def _run_in_its_runtime(model: Path, package: ModelPackage, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run *model* with zeros for the inputs that *package* leaves out."""
    try:
        return run_reference(model, with_unused(inputs, package))
    except ToolNotFound as error:
        raise ToolNotFound(
            error.what,
            remedy=f"{error.remedy}   (or compare with TVM on this machine: --reference host)",
            details=error.details,
        ) from error


def read_outputs(path: Path, package: ModelPackage) -> dict[str, Array]:
    """Read the right outputs of *package* from an .npz file; InputError if it does not have them."""
    try:
        outputs = read_npz(path)
    except (FileNotFoundError, DamagedNpz) as error:
        raise InputError(
            f"the reference {path} is not an .npz file of plain arrays: {error}",
            remedy="Write it with numpy.savez(path, output_name=array), or name a runtime: --reference auto.",
        ) from error
    name, specs = package.manifest.name, package.manifest.entry().outputs
    check_arrays("output", f"{name} gives", specs, f"{path} has", outputs)
    return outputs


def _run_on_host(
    model: Path, package: ModelPackage, settings: Settings, inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """Compile *model* as *package* was, but by plain loops in float32 for our kind of CPU; run it."""
    require_tvm()
    from adt.compiler.compilation import CompileJob
    from adt.compiler.compile import cached_package
    from adt.package.host_run.run import run_package

    shapes = tuple(package.manifest.made.settings.get("shapes", ()))
    plain = settings.compile.but(target="cpu", cpu="generic", offload="none", shapes=shapes)
    plain = plain.but(precision="float32", keep_float32=(), half_only=())
    build = settings.build.but(alignment=0)
    job = CompileJob(model, PLATFORMS["host"], replace(settings, compile=plain, build=build), plain=True)
    return run_package(cached_package(job).path, inputs, timeout=HOST_TIMEOUT)


def run_reference(model: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Run the model file on *inputs* (name to array) on the CPU; return its outputs by name."""
    runs = {
        formats.ONNX: _run_onnx,
        formats.TFLITE: _run_tflite,
        formats.TORCH: _run_torch,
        formats.KERAS: _run_keras,
    }
    return runs[formats.format_of(model)](model.absolute(), dict(inputs))


@isolated("running {model.name} in onnxruntime", REFERENCE_SECONDS)
def _run_onnx(model: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    try:
        session = roundings.open_session(model)
    except Exception as error:  # onnxruntime's own exception classes have no public base
        raise _no_model("onnxruntime", model, error) from error
    try:
        return roundings.answer(session, inputs)
    except Exception as error:
        raise _no_input("onnxruntime", error) from error


@isolated("running {model.name} in the TFLite interpreter", REFERENCE_SECONDS)
def _run_tflite(model: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    litert = load("ai_edge_litert.interpreter", "tflite", "running a .tflite file as the reference")
    try:
        # Without delegates: XNNPACK rounds otherwise and refuses some shapes.
        kernels = litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        interpreter = litert.Interpreter(str(model), experimental_op_resolver_type=kernels)
        details = interpreter.get_input_details()
    except (RuntimeError, ValueError) as error:
        raise _no_model("the TFLite interpreter", model, error) from error
    names = distinct_names(detail["name"] for detail in details)
    try:
        given = [(detail, inputs[name]) for name, detail in zip(names, details, strict=True)]
        for detail, array in given:
            interpreter.resize_tensor_input(detail["index"], list(array.shape))
        interpreter.allocate_tensors()
        for detail, array in given:
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
    except (KeyError, RuntimeError, ValueError) as error:
        raise _no_input("the TFLite interpreter", error) from error
    outputs = interpreter.get_output_details()
    names = distinct_names(output["name"] for output in outputs)
    return {n: interpreter.get_tensor(output["index"]) for n, output in zip(names, outputs, strict=True)}


def _run_torch(model: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    torch = load("torch", "torch", "running a PyTorch program as the reference")
    from adt.compiler.importers.torch_program import load_program, program_inputs, program_outputs

    program = load_program(model)
    try:
        tensors = [torch.from_numpy(inputs[spec.name].copy()) for spec in program_inputs(program)]
        with torch.no_grad():
            result = program.module()(*tensors)
    except AdtError:
        raise
    except Exception as error:  # torch raises RuntimeError, AssertionError, KeyError, …
        raise _no_input("torch", error) from error
    flat = torch.utils._pytree.tree_leaves(result)
    names = program_outputs(program)
    return {name: value.detach().numpy() for name, value in zip(names, flat, strict=True)}


def _run_keras(model: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    from adt.compiler.importers.keras import load_keras, run_keras

    loaded = load_keras(model)
    try:
        return run_keras(loaded, inputs)
    except AdtError:
        raise
    except Exception as error:  # Keras and its backend raise what they meet
        raise _no_input("Keras", error) from error


def _no_model(runtime: str, model: Path, error: Exception) -> AdtError:
    return ModelError(
        f"{runtime} cannot load {model.name}", remedy="Verify against another model.", details=str(error)
    )


def _no_input(runtime: str, error: Exception) -> AdtError:
    remedy = "Check names, shapes and dtypes."
    return InputError(f"{runtime} refuses the inputs", remedy=remedy, details=str(error))
