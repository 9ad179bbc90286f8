"""Reader of an ONNX file, its data in other files, and the inputs that its graph declares."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path, PurePosixPath

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message
from onnx import numpy_helper

from adt.compiler.importers.formats import require_file
from adt.compiler.importers.shapes import (
    MOST_SYMBOL,
    DeclaredShape,
    RequestedShapes,
    Shape,
    fixed_shapes,
    fixed_symbols,
    small,
)
from adt.errors import ModelError
from adt.host.contained import UnsafeFile, contained_name, copy_command, open_contained
from adt.limits import MOST_CONSTANT, MOST_ELEMENTS, MOST_MODEL_BYTES

USUAL = "adt.usual."
"""Before an open dimension's symbol in a file's metadata: its extent where none is given."""
OF_ONNXRUNTIME = ("LayerNormalization", "SimplifiedLayerNormalization")
"""Operators that onnxruntime's optimizer writes into ONNX's own domain whatever the opset."""
_MOST_FILE = 1 << 31  # bytes that protobuf reads
_MOST_EXTENTS = 1024  # elements of an initializer that may be a shape
_BLOB = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
"""Name of a file in the cache of a hub: git's digest, or the content's."""
_ADDRESS = "_ORT_MEM_ADDR_"
"""Part of a data file's name: onnxruntime takes the offset for an address in its own memory."""


def read_onnx(path: Path) -> onnx.ModelProto:
    """Load an ONNX file with its external data, sparse constants written out, and check that it is one."""
    model, files = _parsed(path)
    outside = [(tensor, list(tensor.dims)) for parts in files.values() for tensor, _, _ in parts]
    for tensor, _ in outside:  # the checker would open the files by itself; its own copy has at most 2 GiB
        for field in ("dims", "external_data", "data_location"):
            tensor.ClearField(field)
        tensor.raw_data = bytes(16)
    if not model.graph.node and not model.graph.output:
        raise _not_onnx(path)
    try:
        onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError) as error:  # a ValueError over 2 GB
        if not _onnxruntime_takes(model):
            raise ModelError(
                f"{path} is not a valid ONNX graph", remedy="Export or download it again.", details=str(error)
            ) from error
    _write_out_sparse(model)  # of which the checker takes none outside
    for name, parts in files.items():
        with open_data(path, name) as file:
            for tensor, offset, length in parts:
                file.seek(offset)
                tensor.raw_data = file.read(length)
    for tensor, dims in outside:
        tensor.dims[:] = dims
    return model


def data_files(path: Path) -> tuple[str, ...]:
    """Return the names of the data files of an ONNX file, relative to its directory."""
    return tuple(sorted(_parsed(path)[1]))


@contextlib.contextmanager
def open_data(model: Path, name: str) -> Iterator[io.BufferedReader]:
    """Open the data file *name* of the ONNX file *model*, which must be a regular file beside it or below."""
    with contextlib.ExitStack() as stack:
        try:
            if _ADDRESS in name:
                raise UnsafeFile(f"{name[:80]!r} is an address in memory")
            file = stack.enter_context(open_contained(*_blob(model.parent, name), most=MOST_MODEL_BYTES))
        except (OSError, UnsafeFile) as error:
            raise ModelError(
                f"a data file of {model.name} cannot be read: {error}",
                remedy="Keep the model's external data files beside it. To replace links by what they lead "
                f"to: {copy_command(model.parent)}",
            ) from error
        yield file


def _blob(directory: Path, name: str) -> tuple[Path, str]:
    """Return directory and name by which the data file *name* is opened: a blob, where it is a hub's link.

    Exactly the links ``REPOSITORY/snapshots/REVISION/…`` to ``REPOSITORY/blobs/DIGEST``, which is no link,
    are followed: they lead to what came with the model, and never to another file of the user's.
    """
    link = directory.resolve() / contained_name(name)
    if link.is_symlink():
        target = link.readlink()
        for snapshots in link.parents:
            blob = snapshots.parent / "blobs" / target.name
            exact = str(target) == os.path.relpath(blob, link.parent)
            if snapshots.name == "snapshots" and exact and _BLOB.fullmatch(blob.name):
                return snapshots.parent, f"blobs/{blob.name}"
    return directory, name


_Parts = list[tuple[onnx.TensorProto, int, int]]
"""Tensors in one data file, with offset and number of bytes."""


def _parsed(path: Path) -> tuple[onnx.ModelProto, dict[str, _Parts]]:
    """Parse an ONNX file; return also its data files, which are long enough, and what is in them."""
    require_file(path)
    model = onnx.ModelProto()
    files: dict[str, _Parts] = {}
    try:
        if path.stat().st_size > _MOST_FILE:
            raise ValueError("it has more than 2 GiB, which protobuf does not read")
        model.ParseFromString(path.read_bytes())
        for message in _messages(model):
            _check_element_type(message)
            if isinstance(message, onnx.TensorProto) and message.data_location == message.EXTERNAL:
                name, offset, length = _region(message)
                files.setdefault(name, []).append((message, offset, length))
    except (DecodeError, ValueError, OSError, MemoryError) as error:
        raise _not_onnx(path, "" if isinstance(error, DecodeError) else str(error)) from error
    for name, parts in files.items():
        _check_parts(path, name, parts)
    return model, files


def _not_onnx(path: Path, details: str = "") -> ModelError:
    what = f"{path} is not an ONNX model, or is truncated"
    return ModelError(what, remedy="Export or download it again.", details=details)


def _messages(model: Message) -> Iterator[Message]:
    """Yield *model* and every message in it: graphs, functions, nodes, tensors, wherever they are."""
    pending = [model]
    while pending:
        yield (message := pending.pop())
        for field, value in message.ListFields():
            values = (value,) if isinstance(value, str | bytes) or hasattr(value, "ListFields") else value
            if field.type == field.TYPE_MESSAGE:
                pending += values
            elif field.type == field.TYPE_STRING and any(isinstance(text, bytes) for text in values):
                raise ValueError(f"a {field.full_name} is no UTF-8")


def _check_element_type(message: Message) -> None:
    """Check that ONNX has the element type of *message*, where that is a tensor or the type of one."""
    if isinstance(message, onnx.TensorProto):
        element = message.data_type
    elif isinstance(message, onnx.ValueInfoProto):
        element = message.type.tensor_type.elem_type
    else:
        return
    if element not in onnx.TensorProto.DataType.values():
        raise ModelError(
            f"the tensor {message.name[:80]!r} has element type {element}, which onnx"
            f" {onnx.__version__} lacks",
            remedy="Export the model with tensors of other types.",
        )


def _region(tensor: onnx.TensorProto) -> tuple[str, int, int]:
    """Return data file, offset and number of bytes of the external data of *tensor*."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    few = re.fullmatch("(?:U?INT|FLOAT)([24])(?:E2M1)?", tensor.DataType.Name(tensor.data_type))
    bits = int(few[1]) if few else 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    length = -(-math.prod(tensor.dims) * bits // 8)
    offset = entries.get("offset", "0")
    right = re.fullmatch("[0-9]{1,18}", offset) and entries.get("length", str(length)) == str(length)
    if len(entries) != len(tensor.external_data) or not entries.get("location") or not right:
        raise ValueError(f"the tensor {tensor.name[:80]!r} does not tell where its {length} bytes are")
    return str(PurePosixPath(entries["location"])), int(offset), length


def _check_parts(path: Path, name: str, parts: _Parts) -> None:
    """Check that *parts* are in the data file *name*, and have no more bytes than a model may."""
    with open_data(path, name) as file:
        size = os.fstat(file.fileno()).st_size
    outside = any(length < 0 or offset + length > size for _, offset, length in parts)
    if outside or sum(length for _, _, length in parts) > MOST_MODEL_BYTES:
        raise ModelError(
            f"{name}, a data file of {path.name}, is truncated, or belongs to another model",
            remedy="Export or download the model again, with its data files.",
        )


def _write_out_sparse(model: onnx.ModelProto) -> None:
    """Replace sparse constants of *model* by dense ones, which is all that importers know."""
    for message in list(_messages(model)):
        if isinstance(message, onnx.GraphProto):
            message.initializer.extend(map(_dense, message.sparse_initializer))
            message.ClearField("sparse_initializer")
        elif isinstance(message, onnx.AttributeProto) and message.name == "sparse_value":
            message.CopyFrom(onnx.helper.make_attribute("value", _dense(message.sparse_tensor)))


def _dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    """Return *sparse* as a dense tensor of the same name."""
    small({sparse.values.name: tuple(sparse.dims)}, MOST_CONSTANT)
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    places = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), tuple(sparse.dims))
    dense = np.zeros(math.prod(sparse.dims), values.dtype)
    dense[places] = values
    return numpy_helper.from_array(dense.reshape(sparse.dims), sparse.values.name)


def _onnxruntime_takes(model: onnx.ModelProto) -> bool:
    """Return True if the model is valid but for what onnxruntime itself writes.

    That is operators in ONNX's own domain that ONNX lacks (or lacks yet), outputs without a shape, and, in
    files of before 2019, weights that are no inputs.
    """
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


def declared_inputs(model: onnx.ModelProto) -> dict[str, DeclaredShape]:
    """Return the inputs of the graph that are no initializers, with their extents and symbols."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    return {
        value.name: tuple(
            dim.dim_value
            if dim.HasField("dim_value") and dim.dim_value >= 0
            else ("" if len(dim.dim_param) > MOST_SYMBOL else dim.dim_param.strip("?"))
            for dim in value.type.tensor_type.shape.dim
        )
        for value in model.graph.input
        if value.name not in initializers
    }


def fixed_inputs(model: onnx.ModelProto, given: RequestedShapes) -> dict[str, Shape]:
    """Return the static shape of every input; what *given* leaves open has the file's usual extents."""
    declared = declared_inputs(model)
    left = {dim for dims in declared.values() for dim in dims} - fixed_symbols(declared, given).keys()
    usual = {
        symbol: int(prop.value)
        for prop in model.metadata_props
        if (symbol := prop.key.removeprefix(USUAL)) != prop.key
        and symbol in left
        and re.fullmatch("[0-9]{1,18}", prop.value)
    }
    return fixed_shapes(declared, {**given, **usual}, empty=True)


def with_fixed_shapes(model: onnx.ModelProto, fixed: dict[str, Shape]) -> onnx.ModelProto:
    """Return *model* with static input shapes and no others; inputs of no elements become constants."""
    result = deepcopy(model)
    for value in [value for value in result.graph.input if value.name in fixed]:
        shape, tensor = fixed[value.name], value.type.tensor_type
        tensor.shape.ClearField("dim")
        for extent in shape:
            tensor.shape.dim.add().dim_value = extent
        if 0 in shape:
            result.graph.initializer.add(
                name=value.name, data_type=tensor.elem_type, dims=shape, raw_data=b""
            )
            result.graph.input.remove(value)
    del result.graph.value_info[:]
    for value in result.graph.output:
        value.type.tensor_type.ClearField("shape")
    _check_sizes(result)
    return result


def _check_sizes(model: onnx.ModelProto) -> None:
    """Check what nodes of *model* make, as far as shapes tell, before anything computes or folds it.

    Shapes that depend on computed numbers are not inferred: ONNX then takes memory for vectors of any size.
    """
    model = deepcopy(model)
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) > _MOST_EXTENTS:  # a weight, whose numbers say nothing of shapes
            tensor.ClearField("raw_data")
    try:
        typed = onnx.shape_inference.infer_shapes(model)
    except Exception:  # of what the checker lets pass, e.g. operators of other domains, or over 2 GB
        return
    graphs = [message for message in _messages(typed) if isinstance(message, onnx.GraphProto)]
    constants = {tensor.name for graph in graphs for tensor in graph.initializer}
    for node in (node for graph in graphs for node in graph.node):
        if constants.issuperset(filter(None, node.input)):
            constants.update(node.output)
    for value in (value for graph in graphs for value in (*graph.value_info, *graph.output)):
        extents = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        small({value.name: extents}, MOST_CONSTANT if value.name in constants else MOST_ELEMENTS)


def input_dtypes(model: onnx.ModelProto) -> dict[str, str]:
    """Return numpy's name of the element type of each input of the graph, which must be tensors."""
    dtypes = {}
    for value in model.graph.input:
        is_tensor, element = value.type.HasField("tensor_type"), value.type.tensor_type.elem_type
        if not is_tensor or element not in onnx.helper.get_all_tensor_dtypes():
            what = f"has element type {element}" if is_tensor else "is no tensor"
            raise ModelError(
                f"input {value.name!r} {what}; only tensors of a known type can be inputs",
                remedy="Export the model with tensors as its inputs.",
            )
        dtypes[value.name] = onnx.helper.tensor_dtype_to_np_dtype(element).name
    return dtypes
