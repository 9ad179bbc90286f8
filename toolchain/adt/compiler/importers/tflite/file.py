"""Reader of a .tflite file, its operators' options and inputs, which can give tensors other shapes."""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adt.compiler.importers.shapes import DeclaredShape, RequestedShapes, Shape, distinct_names, fixed_shapes
from adt.errors import ModelError
from adt.host.extras import load, need

DAMAGED = (
    AssertionError, AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError, struct.error,
)  # fmt: skip
"""Exceptions of reading a damaged flatbuffer."""
UNREAD = {
    "FullyConnectedOptions": ("WeightsFormat",),
    "LSTMOptions": ("KernelType",),
    "StridedSliceOptions": ("Offset",),
    "UnidirectionalSequenceLSTMOptions": ("DiagonalRecurrentTensors",),
}
"""Options that must have the schema's default; the converters read all others of their operators.

A test walks the schema. There are others that change nothing here: the tensors state the same, or they choose
between roundings of the interpreter's kernels.
"""


@dataclass(frozen=True)
class TensorFacts:
    """One input or output of the file's main subgraph."""

    name: str
    """The file's; numbered where several have it."""
    index: int
    shape: Shape
    declared: DeclaredShape
    """Shape with open dimensions where the file allows resizing."""
    dtype: str


def read_tflite(path: Path) -> bytes:
    """Return the bytes of a .tflite file that has a subgraph with outputs."""
    need("tflite", "importing a .tflite file")
    data = path.read_bytes()
    tensors(data, path, outputs=True)
    return data


@functools.cache
def _model_class() -> Any:
    """Return the schema's ``Model``, which reads newer files, too, and names each tensor by its index.

    They leave the 8-bit field of an operator's code out, which the schema's own reader asks for every
    code below 127, and put weights behind the flatbuffer, where its reader does not look. TVM's importer
    tells tensors apart by their names, which may be equal in a file.
    """
    import numpy as np
    import tflite

    class OperatorCode(tflite.OperatorCode):  # type: ignore[misc]
        def BuiltinCode(self) -> int:
            offset = self._tab.Offset(10)  # field 3 of OperatorCode: builtin_code
            return int(struct.unpack_from("<i", self._tab.Bytes, self._tab.Pos + offset)[0]) if offset else 0

    class Buffer(tflite.Buffer):  # type: ignore[misc]
        def DataAsNumpy(self) -> Any:
            if self._is_inside():
                return super().DataAsNumpy()
            return np.frombuffer(self._tab.Bytes, np.uint8, self.Size(), self.Offset())

        def DataLength(self) -> int:
            return int(super().DataLength() if self._is_inside() else self.Size())

        def _is_inside(self) -> bool:
            return bool(self.Offset() <= 1)

    class Tensor(tflite.Tensor):  # type: ignore[misc]
        index = 0

        def Name(self) -> bytes:
            return parameter_name(self.index).encode()

    class SubGraph(tflite.SubGraph):  # type: ignore[misc]
        def Tensors(self, j: int) -> Any:
            tensor = _as(Tensor, super().Tensors(j))
            tensor.index = j
            return tensor

    class Model(tflite.Model):  # type: ignore[misc]
        def Subgraphs(self, j: int) -> Any:
            return _as(SubGraph, super().Subgraphs(j))

        def OperatorCodes(self, j: int) -> Any:
            return _as(OperatorCode, super().OperatorCodes(j))

        def Buffers(self, j: int) -> Any:
            return _as(Buffer, super().Buffers(j))

    def _as(kind: Any, table: Any) -> Any:
        result = kind()
        result.Init(table._tab.Bytes, table._tab.Pos)
        return result

    return Model


def model_of(data: bytes) -> Any:
    """Read the file as the schema's ``Model``."""
    model = _model_class()()
    model.Init(data, struct.unpack_from("<I", data)[0])
    return model


def parameter_name(index: int) -> str:
    """Return the name of the tensor *index* of a subgraph in what TVM imports."""
    return f"tensor_{index}"


def tensor_name(tensor: Any) -> str:
    """Return the name that the file gives to *tensor*, of the schema's class."""
    import tflite

    return (tflite.Tensor.Name(tensor) or b"").decode()


def tensors(data: bytes, path: Path, *, outputs: bool = False) -> tuple[TensorFacts, ...]:
    """Return the inputs (or outputs) of the main subgraph, in order."""
    from tvm.relax.frontend.tflite.tflite_frontend import _decode_type

    facts = []
    try:
        subgraph = model_of(data).Subgraphs(0)
        count = subgraph.OutputsLength() if outputs else subgraph.InputsLength()
        if outputs and not count:
            raise ValueError("no outputs")
        for position in range(count):
            index = int(subgraph.Outputs(position) if outputs else subgraph.Inputs(position))
            tensor = subgraph.Tensors(index)
            shape = tuple(int(tensor.Shape(i)) for i in range(tensor.ShapeLength()))
            signature = [int(tensor.ShapeSignature(i)) for i in range(tensor.ShapeSignatureLength())]
            declared = tuple(extent if extent >= 0 else "" for extent in signature) or shape
            dtype = _decode_type(tensor.Type())
            facts.append(TensorFacts(tensor_name(tensor), index, shape, declared, dtype))
    except DAMAGED as error:
        raise ModelError(
            f"{path} is truncated or damaged: no graph can be read from it",
            remedy="Export or download it again.",
            details=f"{type(error).__name__}: {error}",
        ) from error
    names = distinct_names(tensor.name for tensor in facts)
    return tuple(replace(tensor, name=name) for name, tensor in zip(names, facts, strict=True))


def fixed_inputs(data: bytes, path: Path, shapes: RequestedShapes) -> dict[str, Shape]:
    """Return the inputs' shapes: without *shapes* the file's own, else as given and what follows."""
    inputs = tensors(data, path)
    declared = {tensor.name: tensor.declared if shapes else tensor.shape for tensor in inputs}
    return fixed_shapes(declared, shapes)


def has_open_shapes(data: bytes) -> bool:
    """Return True if the writer of the file left extents open, and stated any for them."""
    subgraph = model_of(data).Subgraphs(0)
    signatures = (subgraph.Tensors(i).ShapeSignatureAsNumpy() for i in range(subgraph.TensorsLength()))
    return any((signature < 0).any() for signature in signatures if not isinstance(signature, int))


def with_shapes(data: bytes, path: Path, fixed: Mapping[str, Shape]) -> bytes:
    """Return *data* with the shapes that the interpreter tells for inputs of the shapes *fixed*, in place."""
    import numpy as np

    inputs = tensors(data, path)
    litert = load("ai_edge_litert.interpreter", "tflite", "giving a .tflite file other shapes")
    interpreter = litert.Interpreter(model_content=data, experimental_op_resolver_type=plain_kernels(litert))
    try:
        for tensor in inputs:
            interpreter.resize_tensor_input(tensor.index, list(fixed[tensor.name]), strict=True)
        interpreter.allocate_tensors()
        for detail in interpreter.get_input_details():
            interpreter.set_tensor(detail["index"], np.zeros(detail["shape"], detail["dtype"]))
        interpreter.invoke()  # some shapes are known only then
    except (RuntimeError, ValueError) as error:
        raise ModelError(
            f"{path.name} does not take these input shapes: {str(error).splitlines()[0]}",
            remedy="Keep the extents that the file fixes.",
        ) from error
    shapes = {detail["index"]: detail["shape"].tolist() for detail in interpreter.get_tensor_details()}
    result = bytearray(data)
    subgraph = model_of(data).Subgraphs(0)
    written: dict[int, list[int]] = {}
    for index in range(subgraph.TensorsLength()):
        tensor = subgraph.Tensors(index)
        extents = shapes.get(index, [])
        if not extents or len(extents) != tensor.ShapeLength():
            continue
        start = tensor._tab.Vector(tensor._tab.Offset(4))  # field 0 of Tensor: shape
        if written.setdefault(start, extents) != extents:
            raise ModelError(
                f"two tensors of {path.name} share a shape that these input shapes make different",
                remedy="Convert the model again with these input shapes.",
            )
        struct.pack_into(f"<{len(extents)}i", result, start, *extents)
    return bytes(result)


def plain_kernels(litert: Any) -> Any:
    """Return the interpreter's own kernels: delegates refuse some shapes and hide tensors."""
    return litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES


def unread_option(op: Any) -> str:
    """Return the name of an option of *op* that no converter reads; empty when there is none."""
    import tflite

    for number in ("", "2"):
        table, code = getattr(op, f"BuiltinOptions{number}")(), getattr(op, f"BuiltinOptions{number}Type")()
        if table is None or not code:
            continue
        kinds = vars(getattr(tflite, f"BuiltinOptions{number}"))
        kind = next((name for name, value in kinds.items() if value == code and hasattr(tflite, name)), "")
        if not kind:
            return f"its options are of kind {code}, which the schema of tflite {tflite.__version__} lacks"
        options = getattr(tflite, kind)()
        options.Init(table.Bytes, table.Pos)
        last = max(schema_slots(kind).values(), default=-1)
        if newer := [slot for slot in _slots_in_file(table) if slot > last]:
            return f"option {newer[0]} of {kind} is newer than the schema of tflite {tflite.__version__}"
        for name in UNREAD.get(kind, ()):
            if value := getattr(options, name)():
                return f"{name} of {kind} is {value}, which no converter reads"
    return ""


class _Slots:
    """A table of the flatbuffer that tells which slot is asked for, and has none."""

    def Offset(self, entry: int) -> int:
        self.asked = (entry - 4) // 2
        return 0


def schema_slots(kind: str) -> dict[str, int]:
    """Map the options of *kind*, a class of the schema, to their slots."""
    import tflite

    options, slots = getattr(tflite, kind)(), {}
    options._tab = table = _Slots()
    for name in vars(type(options)):
        if name.startswith("GetRootAs") or name.endswith(("AsNumpy", "IsNone", "BufferHasIdentifier")):
            continue
        if name[0].isupper() and name != "Init" and not hasattr(options, f"{name}Length"):
            getattr(options, name)()
            slots[name.removesuffix("Length")] = table.asked
    return slots


def _slots_in_file(table: Any) -> list[int]:
    """List the slots that have a value in *table*: entries of its vtable, behind its two sizes."""
    (back,) = struct.unpack_from("<i", table.Bytes, table.Pos)
    (size,) = struct.unpack_from("<H", table.Bytes, table.Pos - back)
    return [slot for slot in range(size // 2 - 2) if table.Offset(4 + 2 * slot)]
