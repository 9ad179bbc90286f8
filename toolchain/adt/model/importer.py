"""Read a trained model, fix its input shapes, simplify it, and convert it to Relax."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adt.config.load import did_you_mean
from adt.errors import AdtError, ModelError, UnsupportedOp
from adt.model import store
from adt.model.package import SourceModel, TensorSpec

if TYPE_CHECKING:
    import onnx

log = logging.getLogger("adt.import")

Shape = tuple[int, ...]

MOST_WHOLE_ARGUMENT = 4096
"""Elements up to which a tensor of whole numbers is an argument (sizes, axes, indices), not a weight."""
MOST_FLOAT_ARGUMENT = 16
"""The same for floating point (scales, limits, padding values)."""


@dataclass(frozen=True)
class ImportedModel:
    """A model in Relax, with its parameters detached."""

    module: Any
    """``tvm.IRModule`` with the entry ``main(inputs…, params…)``."""
    params: Mapping[str, Any]
    """Name to ``tvm.runtime.Tensor``, in the order in which they follow the inputs."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    source: SourceModel


def parse_shapes(texts: Sequence[str]) -> dict[str, Shape]:
    """Parse ``name:1,3,224,224`` texts.

    Raises:
        ModelError: a text has another form, or an extent is not positive.
    """
    shapes: dict[str, Shape] = {}
    for text in texts:
        name, colon, extents = text.rpartition(":")
        if not colon or not name or not re.fullmatch(r"\d+(,\d+)*", extents):
            raise ModelError(
                f"--shape {text!r} is not of the form NAME:EXTENT,EXTENT,…",
                remedy="For example: --shape input:1,3,224,224",
            )
        shape = tuple(int(extent) for extent in extents.split(","))
        if 0 in shape:
            raise ModelError(f"--shape {text!r} has an extent of 0", remedy="Every extent is at least 1.")
        shapes[name] = shape
    return shapes


def read_onnx(path: Path) -> onnx.ModelProto:
    """Load an ONNX file with its external data and check that it is one.

    Raises:
        ModelError: it is missing, empty, truncated, of another format, or not a valid graph.
    """
    import onnx
    from google.protobuf.message import DecodeError

    if not path.is_file():
        raise ModelError(f"there is no model file {path}", remedy="Check the path.")
    not_onnx = f"{path} is not an ONNX model, or is truncated"
    remedy = "Export or download it again; adt reads .onnx files."
    try:
        model = onnx.load(str(path))
    except (DecodeError, RuntimeError, ValueError) as why:
        raise ModelError(not_onnx, remedy=remedy, details=str(why)) from why
    except OSError as why:  # external data beside the model
        raise ModelError(
            f"a data file of {path.name} cannot be read: {why}",
            remedy="Keep the model's external data files beside it.",
        ) from why
    if not model.graph.node and not model.graph.output:
        raise ModelError(not_onnx, remedy=remedy)
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as why:
        raise ModelError(f"{path} is not a valid ONNX graph", remedy=remedy, details=str(why)) from why
    return model


def fixed_inputs(model: onnx.ModelProto, shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """The static shape of every graph input.

    A symbolic first dimension that no ``--shape`` fixes is taken for a batch of
    1; any other symbolic dimension must be given.

    Raises:
        ModelError: a name is unknown, the rank or a fixed extent differs, or a dimension stays open.
    """
    initializers = {tensor.name for tensor in model.graph.initializer}
    inputs = {value.name: value for value in model.graph.input if value.name not in initializers}
    for name in shapes:
        if name not in inputs:
            raise ModelError(
                f"the model has no input {name!r}.{did_you_mean(name, inputs)}",
                remedy=f"Its inputs are: {', '.join(inputs)}.",
            )
    fixed: dict[str, Shape] = {}
    for name, value in inputs.items():
        declared = [d.dim_value if d.HasField("dim_value") else 0 for d in value.type.tensor_type.shape.dim]
        given = shapes.get(name)
        shown = ",".join(str(extent or "?") for extent in declared)
        if given is None:
            if declared and declared[0] == 0:
                declared[0] = 1
                log.debug("input %s: batch dimension fixed to 1 (--shape chooses another)", name)
            if 0 in declared:
                raise ModelError(
                    f"input {name!r} has open dimensions: {shown}",
                    remedy=f"Fix them, for example: --shape {name}:"
                    + ",".join(str(extent or 224) for extent in declared),
                )
            fixed[name] = tuple(declared)
        else:
            fits = len(given) == len(declared) and all(
                want in (0, have) for want, have in zip(declared, given, strict=True)
            )
            if declared and not fits:
                raise ModelError(
                    f"--shape {name}:{','.join(map(str, given))} does not fit the model's {shown}",
                    remedy="Keep the rank and the extents that the model fixes ('?' is free).",
                )
            fixed[name] = given
    return fixed


def import_onnx(path: Path, shapes: Mapping[str, Shape]) -> ImportedModel:
    """Import an ONNX model with static shapes.

    Raises:
        ModelError: the file or a shape is wrong, or the graph cannot be simplified.
        UnsupportedOp: TVM's importer has no converter for an operator.
    """
    import onnx

    model = read_onnx(path)
    fixed = fixed_inputs(model, shapes)
    for value in model.graph.input:
        if value.name in fixed:
            dims = value.type.tensor_type.shape.dim
            while len(dims) < len(fixed[value.name]):
                dims.add()
            for dim, extent in zip(dims, fixed[value.name], strict=True):
                dim.dim_value = extent
    simple = _slimmed(model, path)
    _inline_arguments(simple)
    relax = _to_relax(simple)
    dtypes = {
        v.name: onnx.helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type).name
        for v in (*simple.graph.input, *simple.graph.output)
    }
    inputs = tuple(TensorSpec(name, shape, dtypes[name]) for name, shape in fixed.items())
    source = SourceModel(path.name, "onnx", store.model_sha256(path))
    return _described(relax, inputs, [value.name for value in simple.graph.output], source)


def _slimmed(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """Simplify with onnxslim; a model that it cannot simplify is used as it is, and that is said."""
    import onnxslim

    try:
        return onnxslim.slim(model)
    except Exception as why:  # onnxslim raises whatever its passes meet
        log.warning("onnxslim could not simplify %s (%s); importing it as it is", path.name, why)
        return model


def _inline_arguments(model: onnx.ModelProto) -> None:
    """Turn initializers that are arguments rather than weights into Constant nodes, in place.

    The importer needs the value of a split's sizes or a resize's scales while it
    converts; as a parameter of the module it would be unknown until run time.
    """
    from onnx import helper, numpy_helper

    weights: list[onnx.TensorProto] = []
    arguments: list[onnx.TensorProto] = []
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        whole = array.dtype.kind in "iub"
        is_argument = array.size <= (MOST_WHOLE_ARGUMENT if whole else MOST_FLOAT_ARGUMENT)
        (arguments if is_argument else weights).append(tensor)
    returned = {value.name for value in model.graph.output}
    constants = [
        helper.make_node("Constant", [], [tensor.name], value=tensor)
        for tensor in arguments
        if tensor.name not in returned
    ]
    kept = [*weights, *(tensor for tensor in arguments if tensor.name in returned)]
    nodes = [*constants, *model.graph.node]
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.initializer.extend(kept)
    model.graph.node.extend(nodes)
    names = {constant.output[0] for constant in constants}
    inputs = [value for value in model.graph.input if value.name not in names]
    del model.graph.input[:]
    model.graph.input.extend(inputs)


def _to_relax(model: onnx.ModelProto) -> Any:
    import tvm
    from tvm.relax.frontend.onnx import from_onnx

    try:
        return from_onnx(model, keep_params_in_input=True)
    except tvm.error.OpNotImplemented as why:
        names = set(re.findall(r"\w+", str(why).rpartition(":")[2]))
        nodes = [node for node in model.graph.node if node.op_type in names]
        listed = "\n".join(f"{node.op_type}: node {node.name or '(unnamed)'!r}" for node in nodes[:20])
        raise UnsupportedOp(
            f"TVM's ONNX importer has no converter for {', '.join(sorted({n.op_type for n in nodes}))}",
            remedy="Export the model without these operators (another opset, or the part before them).",
            details=listed,
        ) from why
    except AdtError:
        raise
    except Exception as why:  # the importer asserts and raises plain Python errors
        raise ModelError(
            f"TVM's ONNX importer failed: {type(why).__name__}: {_last_line(why)}",
            remedy="Fix every input's shape with --shape; if it persists, the model uses something"
            " that this TVM does not import.",
        ) from why


def _described(
    module: Any, inputs: tuple[TensorSpec, ...], output_names: list[str], source: SourceModel
) -> ImportedModel:
    from tvm.relax.frontend import detach_params

    module, detached = detach_params(module)
    main = module["main"]
    names = [str(parameter.name_hint) for parameter in main.params]
    first = int(main.attrs["num_input"])
    params = dict(zip(names[first:], detached.get("main", []), strict=True))
    by_name = {spec.name: spec for spec in inputs}
    ordered = tuple(_match(name, by_name, index, inputs) for index, name in enumerate(names[:first]))
    returned = main.ret_struct_info
    fields = list(returned.fields) if hasattr(returned, "fields") else [returned]
    outputs = tuple(
        TensorSpec(name, tuple(_extent(e) for e in info.shape.values), str(info.dtype))
        for name, info in zip(output_names, fields, strict=True)
    )
    return ImportedModel(module, params, ordered, outputs, source)


def _match(
    name: str, specs: Mapping[str, TensorSpec], index: int, inputs: Sequence[TensorSpec]
) -> TensorSpec:
    """The spec of the Relax parameter *name*; the importer may have cleaned the ONNX name."""
    return specs[name] if name in specs else inputs[index]


def _extent(extent: Any) -> int | str:
    try:
        return int(extent)
    except (TypeError, ValueError):
        return str(extent)


def _last_line(why: BaseException) -> str:
    lines = [line for line in str(why).splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
