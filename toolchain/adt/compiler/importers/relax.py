"""Import of a Relax module that Python made: a ``tvm.IRModule``, with its parameters' values.

It is written to a file first and so goes the way of every model: the file's digest is in the package's key,
the cache keeps it, and ``adt verify`` compares with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from adt.compiler.importers import model_store
from adt.compiler.importers.constants import lift_weights
from adt.compiler.importers.imported_model import ImportedModel, imported_model
from adt.compiler.importers.op_table import op_rows
from adt.compiler.importers.shapes import (
    DeclaredShape,
    RequestedShapes,
    distinct_names,
    fixed_shapes,
    fixed_symbols,
)
from adt.compiler.ir.nodes import extents, relax_nodes
from adt.errors import ModelError, last_line
from adt.host.cache import file_sha256
from adt.host.disk import scratch_directory
from adt.host.extras import require_tvm
from adt.host.npz import DamagedNpz, npz_bytes, read_npz
from adt.numerics import Array
from adt.options.option import did_you_mean
from adt.package.manifest import SourceModel, TensorSpec

MODULE = "relax"  # name of the module's text in the file, an .npz; parameters have their numbers


def module_file(module: Any, values: Mapping[str, Any]) -> Path:
    """Return a file with the ``tvm.IRModule`` *module*, in the cache of models.

    *values* are arrays (numpy's or TVM's) by the names of parameters of ``main``; all its other parameters
    are inputs. What the importers of TVM keep in the module counts, too.
    """
    require_tvm()
    if not isinstance(module, tvm.IRModule):
        raise ModelError(
            f"a {type(module).__name__} is no model",
            remedy="Give a path, an address, module:function, or a tvm.IRModule.",
        )
    main, arrays = _detached(_main(module), values)
    stored = tvm.IRModule(dict(module.functions.items()), global_infos=module.global_infos)
    stored[module.get_global_var("main")] = main
    text = tvm.ir.save_json(stored).encode()

    contents = {MODULE: np.frombuffer(text, np.uint8)} | {str(n): array for n, array in enumerate(arrays)}
    with scratch_directory("relax") as scratch:
        file = scratch / "model.relax"
        file.write_bytes(npz_bytes(contents))
        return model_store.keep(file, file_sha256(file))


def _main(module: Any) -> Any:
    """Return the function ``main`` of *module*."""
    functions = {str(variable.name_hint): function for variable, function in module.functions.items()}
    main = functions.get("main")
    if not isinstance(main, relax.Function):
        names = sorted(name for name, function in functions.items() if isinstance(function, relax.Function))
        raise ModelError(
            f"the module has no Relax function main; its Relax functions: {', '.join(names) or 'none'}",
            remedy="Call the function that the package is to run main; kernels without a model are compiled "
            "by adt.compile_kernel.",
        )
    try:
        relax.analysis.well_formed(module)
    except Exception as error:  # TVM's, of several classes
        raise ModelError(
            f"the module is not well-formed: {last_line(error)}",
            remedy="Mend what tvm.relax.analysis.well_formed(module) finds.",
        ) from error
    return main


def _detached(main: Any, values: Mapping[str, Any]) -> tuple[Any, list[Array]]:
    """Return *main* with inputs first, and the values of the parameters that follow."""
    attributes = main.attrs or {}
    names = [str(parameter.name_hint) for parameter in main.params]
    if len(set(names)) != len(names):
        raise ModelError("two parameters of main have one name", remedy="Give each a name of its own.")
    inputs = int(attributes.get("num_input", len(names)))
    known = dict(zip(names[inputs:], attributes.get("params", []), strict=False)) | dict(values)
    if others := [name for name in known if name not in names]:
        what = f"main has no parameter {others[0]}.{did_you_mean(others[0], names)}"
        raise ModelError(what, remedy=f"Its parameters: {', '.join(names)}.")
    if missing := [name for name in names[inputs:] if name not in known]:
        raise ModelError(
            f"{', '.join(missing)} of main are no inputs (its num_input is {inputs}), and have no values",
            remedy="Add them: params={name: array}.",
        )
    ordered = sorted(main.params, key=lambda parameter: str(parameter.name_hint) in known)
    specs = [_spec(parameter) for parameter in ordered]
    arrays = [_value(spec, known[spec.name]) for spec in specs if spec.name in known]
    main = main.without_attr("params").with_attr("num_input", len(specs) - len(arrays))
    return relax.Function(ordered, main.body, main.ret_struct_info, main.is_pure, main.attrs), arrays


def _spec(parameter: Any) -> TensorSpec:
    """Return name, shape (open dimensions by their symbols) and dtype of a parameter."""
    info = parameter.struct_info
    values = getattr(getattr(info, "shape", None), "values", None)
    if values is None or not info.dtype:
        raise ModelError(
            f"the parameter {parameter.name_hint} of main is {info}, no tensor whose dimensions are known",
            remedy='Annotate it: R.Tensor((1, 3, 224, 224), "float32"); a symbol may stand for an extent.',
        )
    return TensorSpec(str(parameter.name_hint), extents(values), str(info.dtype))


def _value(spec: TensorSpec, value: Any) -> Array:
    """Return *value* as an array that fits *spec*."""
    array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    if (array.dtype.name, array.shape) != (spec.dtype, spec.shape):
        raise ModelError(
            f"the value of {spec.name} is {array.dtype.name}{list(array.shape)}, and main takes "
            f"{spec.dtype}{list(spec.shape)}",
            remedy=f'Convert it: array.astype("{spec.dtype}"); its shape must be fixed and the same.',
        )
    return array


def import_relax(path: Path, shapes: RequestedShapes, source: SourceModel) -> ImportedModel:
    """Import what :func:`module_file` wrote."""
    try:
        arrays = read_npz(path)
        module = tvm.ir.load_json(arrays[MODULE].tobytes().decode())
    except (DamagedNpz, KeyError, ValueError, RuntimeError, TypeError) as error:
        what = f"{path} is damaged: {last_line(error)}"
        raise ModelError(what, remedy="Compile the module again in Python.") from error
    main = module["main"]
    specs = [_spec(parameter) for parameter in main.params[: int(main.attrs["num_input"])]]
    declared: dict[str, DeclaredShape] = {spec.name: spec.shape for spec in specs}
    fixed = fixed_shapes(declared, shapes)
    if symbols := fixed_symbols(declared, shapes):
        module = relax.transform.BindSymbolicVars(dict(symbols), "main")(module)
    passes = [relax.transform.InlinePrivateFunctions(), relax.transform.ConvertToDataflow(1)]
    module = tvm.transform.Sequential([*passes, relax.transform.Normalize()])(module)
    values = [tvm.runtime.tensor(arrays[str(number)]) for number in range(len(arrays) - 1)]
    module["main"] = module["main"].with_attr("params", values)
    outputs = len(getattr(module["main"].ret_struct_info, "fields", [None]))
    calls = relax_nodes(module["main"], relax.Call)
    ops = [str(call.op.name) for call in calls if hasattr(call.op, "name")]
    return imported_model(
        lift_weights(module),
        inputs={spec.name: TensorSpec(spec.name, fixed[spec.name], spec.dtype) for spec in specs},
        output_names=distinct_names(["output"] * outputs),
        source=source,
        file=path,
        ops=op_rows(ops, {}, {}, {}),
        origin=lambda _: "what makes it so",
    )
