"""Each kind of operator of a .tflite file, as a file of its own with what the interpreter computes of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import copy
from functools import partial
from typing import Any

import numpy as np

from adt.compiler.importers import layers
from adt.compiler.importers.tflite.file import parameter_name, plain_kernels
from adt.host.extras import load
from adt.host.isolated import isolated

FLOAT, WHOLE = 0, (2, 4, 6)
"""The schema's numbers of float32, and of integers that are arguments: int32, int64, bool."""


def kinds_of(data: bytes) -> Iterator[layers.Kind]:
    """Yield the operators of a file; those of equal options and types are of one kind."""
    schema, model = _model(data)
    codes = {number: text for text, number in vars(schema.BuiltinOperator).items()}
    graph = model.subgraphs[0]
    for place, operator in enumerate(graph.operators):
        code = model.operatorCodes[operator.opcodeIndex]
        kind = codes.get(max(code.builtinCode, code.deprecatedBuiltinCode), "CUSTOM")
        tensors = [graph.tensors[number] for number in _numbers(operator)]
        values = [_argument(model, tensor, data) for tensor in tensors]
        scales = [_scales(each) for each in tensors]
        steps = [(len(each[:2]), scales.index(each)) for each in scales]
        types = [(t.type, _is_asymmetric(t), [min(extent, 2) for extent in _shape(t)]) for t in tensors]
        options = [each and sorted(vars(each).items()) for each in _options(operator)]
        size = sum(math.prod(_shape(each)) for each in tensors)
        key = layers.digest_of(kind, options, values, steps, types)
        yield layers.Kind(key, kind, str(place), place, size)


@isolated("running the operators of {name} one by one", layers.SECONDS)
def layers_of(data: bytes, name: str, kinds: list[layers.Kind]) -> list[layers.Layer]:
    """Return each of *kinds*, of the file *name*, alone."""
    schema, model = _model(data)
    return layers.collected(kinds, partial(_cases, schema, model, data))


def _model(data: bytes) -> tuple[Any, Any]:
    schema = load("ai_edge_litert.schema_py_generated", "tflite", "comparing operators")
    return schema, schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))


def _numbers(operator: Any) -> list[int]:
    return [int(each) for each in (*operator.inputs, *operator.outputs) if each >= 0]


def _is_asymmetric(tensor: Any) -> bool:
    zeros = tensor.quantization and tensor.quantization.zeroPoint
    return zeros is not None and any(zeros)


def _argument(model: Any, tensor: Any, data: bytes) -> Any:
    """Return the value of a constant that makes an operator another one, else whether it is one."""
    value, whole = _value(model, tensor, data), tensor.type in WHOLE and not _scales(tensor)
    return value if whole and math.prod(_shape(tensor)) <= layers.MOST_ARGUMENT else bool(value)


def _cases(schema: Any, model: Any, data: bytes, kind: layers.Kind) -> tuple[bytes, list[layers.Case]]:
    operator = model.subgraphs[0].operators[kind.place]
    values = {n: _value(model, model.subgraphs[0].tensors[n], data) for n in _numbers(operator)}
    single, graph = copy(model), copy(model.subgraphs[0])
    graph.tensors, tensors = list(map(copy, graph.tensors)), graph.tensors
    if any("subgraph" in name.lower() for each in _options(operator) if each for name in vars(each)):
        raise ValueError("it calls other graphs")
    if any(tensors[number].isVariable for number in values):
        raise ValueError("it has a state")
    if {tensors[number].type for number, value in values.items() if not value} == {FLOAT} and any(
        value and _scales(tensors[number]) for number, value in values.items()
    ):
        raise ValueError("the interpreter rounds its input to the type of the weights")
    buffers = [schema.BufferT()]
    for number, tensor in enumerate(graph.tensors):
        tensor.name, tensor.shapeSignature, tensor.buffer = b"%d" % number, None, 0
        if value := values.get(number):
            tensor.buffer = len(buffers)
            buffers.append(schema.BufferT())
            buffers[-1].data = np.frombuffer(value, np.uint8)
    given = dict.fromkeys(int(each) for each in operator.inputs if each >= 0)
    graph.inputs = [number for number in given if not values[number]]
    graph.outputs, graph.operators = list(operator.outputs), [operator]
    single.subgraphs, single.buffers, single.metadata, single.signatureDefs = [graph], buffers, None, None
    builder = load("flatbuffers", "tflite", "comparing operators").Builder(1024)
    builder.Finish(single.Pack(builder), b"TFL3")
    packed = bytes(builder.Output())
    litert = load("ai_edge_litert.interpreter", "tflite", "comparing operators")
    kernels = plain_kernels(litert)
    interpreter = litert.Interpreter(model_content=packed, experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    details = dict(zip(map(parameter_name, graph.inputs), interpreter.get_input_details(), strict=True))

    def run(inputs: dict[str, Any]) -> list[Any]:
        for name, array in inputs.items():
            interpreter.set_tensor(details[name]["index"], array)
        interpreter.invoke()
        return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]

    specs = {name: (each["shape"].tolist(), each["dtype"].__name__) for name, each in details.items()}
    indexed = set(_shape(graph.tensors[int(operator.inputs[0])])) if len(operator.inputs) else set()
    return packed, layers.make_cases(kind.operator, specs, indexed, run)


def _options(operator: Any) -> tuple[Any, Any]:
    return operator.builtinOptions, operator.builtinOptions2


def _shape(tensor: Any) -> list[int]:
    return [] if tensor.shape is None else list(map(int, tensor.shape))


def _scales(tensor: Any) -> list[float]:
    return list(scale) if tensor.quantization and (scale := tensor.quantization.scale) is not None else []


def _value(model: Any, tensor: Any, data: bytes) -> bytes:
    """Return the bytes of a constant, which newer writers put behind the flatbuffer; else none."""
    buffer = model.buffers[tensor.buffer]
    if buffer.offset > 1:
        return data[buffer.offset : buffer.offset + buffer.size]
    return b"" if buffer.data is None else bytes(buffer.data)
