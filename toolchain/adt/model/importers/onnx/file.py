"""Read an ONNX file and the inputs that its graph declares."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING

from adt.errors import ModelError
from adt.model.importers.shapes import DeclaredShape, RequestedShapes, Shape, fixed_shapes, fixed_symbols

if TYPE_CHECKING:
    import onnx
    from google.protobuf.message import Message

USUAL = "adt.usual."
"""Before an open dimension's symbol in a file's metadata: its extent where none is given."""
OF_ONNXRUNTIME = ("LayerNormalization", "SimplifiedLayerNormalization")
"""Operators that onnxruntime's optimizer writes into ONNX's own domain whatever the opset."""


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
    remedy = "Export or download it again."
    try:
        model = onnx.load(str(path))
        _check_texts(model)
    except (DecodeError, RuntimeError, ValueError, OverflowError, MemoryError, TypeError) as error:
        raise ModelError(not_onnx, remedy=remedy, details=str(error)) from error
    except OSError as error:  # external data beside the model
        raise ModelError(
            f"a data file of {path.name} cannot be read: {error}",
            remedy="Keep the model's external data files beside it.",
        ) from error
    except onnx.checker.ValidationError as error:  # external data outside the model's directory, or missing
        raise ModelError(
            f"a data file of {path.name} cannot be read",
            remedy="Keep the model's external data files beside it.",
            details=str(error),
        ) from error
    if not model.graph.node and not model.graph.output:
        raise ModelError(not_onnx, remedy=remedy)
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        if not _onnxruntime_takes(model):
            raise ModelError(
                f"{path} is not a valid ONNX graph", remedy=remedy, details=str(error)
            ) from error
    return model


def _check_texts(message: Message) -> None:
    """Check every text of *message*: protobuf gives bytes for those that cannot be decoded.

    Raises:
        ValueError: one is no UTF-8.
    """
    for field, value in message.ListFields():
        values = (value,) if isinstance(value, str | bytes) or hasattr(value, "ListFields") else value
        if field.type == field.TYPE_MESSAGE:
            for part in values:
                _check_texts(part)
        elif field.type == field.TYPE_STRING and any(isinstance(text, bytes) for text in values):
            raise ValueError(f"a {field.full_name} is no UTF-8")


def _onnxruntime_takes(model: onnx.ModelProto) -> bool:
    """Whether the model is valid but for what onnxruntime itself writes.

    That is operators in ONNX's own domain that ONNX does not have (or not yet), outputs without a shape, and
    in files of before 2019 weights that are no inputs.
    """
    import onnx

    lenient = deepcopy(model)
    lenient.ir_version = max(model.ir_version, 4)
    for node in lenient.graph.node:
        if node.op_type in OF_ONNXRUNTIME and node.domain in ("", "ai.onnx"):
            node.domain = "com.microsoft"
    if not any(each.domain == "com.microsoft" for each in lenient.opset_import):
        lenient.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    for value in lenient.graph.output:
        if not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(lenient)
    except (onnx.checker.ValidationError, ValueError):  # a ValueError over 2 GB
        return False
    return True


def external_data(path: Path) -> tuple[str, ...]:
    """Relative paths of the data files that an ONNX file keeps outside itself."""
    import onnx
    from onnx.external_data_helper import ExternalDataInfo, uses_external_data

    graph = onnx.load(str(path), load_external_data=False).graph
    return tuple(sorted({ExternalDataInfo(t).location for t in graph.initializer if uses_external_data(t)}))


def declared_inputs(model: onnx.ModelProto) -> dict[str, DeclaredShape]:
    """Inputs of the graph that are no initializers, with their extents and symbols."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    return {
        value.name: tuple(
            dim.dim_value if dim.dim_value > 0 else dim.dim_param.strip("?")
            for dim in value.type.tensor_type.shape.dim
        )
        for value in model.graph.input
        if value.name not in initializers
    }


def fixed_inputs(model: onnx.ModelProto, given: RequestedShapes) -> dict[str, Shape]:
    """The static shape of every input; open dimensions that *given* leaves have the file's usual extents.

    Raises:
        ModelError: see :func:`adt.model.importers.shapes.fixed_shapes`.
    """
    declared = declared_inputs(model)
    fixed = fixed_symbols(declared, given)
    usual = {
        prop.key.removeprefix(USUAL): int(prop.value)
        for prop in model.metadata_props
        if prop.key.startswith(USUAL) and prop.value.isdecimal()
    }
    symbols = {dim for dims in declared.values() for dim in dims}
    left = {symbol: extent for symbol, extent in usual.items() if symbol in symbols and symbol not in fixed}
    return fixed_shapes(declared, {**given, **left})


def with_fixed_shapes(model: onnx.ModelProto, fixed: dict[str, Shape]) -> onnx.ModelProto:
    """*model* with static input shapes, and without the stale shapes of everything else."""

    result = deepcopy(model)
    for value in result.graph.input:
        if value.name in fixed:
            dims = value.type.tensor_type.shape.dim
            del dims[:]
            for extent in fixed[value.name]:
                dims.add().dim_value = extent
    del result.graph.value_info[:]
    for value in result.graph.output:
        value.type.tensor_type.ClearField("shape")
    return result


def input_dtypes(model: onnx.ModelProto) -> dict[str, str]:
    """numpy's name of the element type of each input of the graph.

    Raises:
        ModelError: an input is no tensor, or one of no element type.
    """
    import onnx

    dtypes = {}
    for value in model.graph.input:
        kind, element = value.type.WhichOneof("value"), value.type.tensor_type.elem_type
        if kind != "tensor_type" or element not in onnx.helper.get_all_tensor_dtypes():
            what = f"has element type {element}" if kind == "tensor_type" else "is no tensor"
            raise ModelError(
                f"input {value.name!r} {what}; only tensors of a known type can be inputs",
                remedy="Export the model with tensors as its inputs.",
            )
        dtypes[value.name] = onnx.helper.tensor_dtype_to_np_dtype(element).name
    return dtypes
