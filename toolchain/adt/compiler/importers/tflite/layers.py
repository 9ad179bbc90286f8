"""Each kind of operator of a .tflite file, as a file of its own with what the interpreter computes of it."""

from __future__ import annotations

import math
from copy import copy
from functools import partial
from typing import Any

from adt.compiler.importers.layers import MOST_ARGUMENT, SECONDS, Layer, collected, make_cases
from adt.compiler.importers.tflite.file import parameter_name, plain_kernels
from adt.host.extras import load
from adt.host.isolated import isolated

FLOAT = 0
"""The schema's number of float32."""


@isolated("running the operators of {name} one by one", SECONDS)
def layers_of(data: bytes, name: str) -> list[Layer]:
    """Return each kind of operator of the file *name* alone: the smallest of equal options and types.

    Raises:
        ToolNotFound: the interpreter is not installed.
    """
    schema = load("ai_edge_litert.schema_py_generated", "tflite", "comparing operators")
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    codes = {number: text for text, number in vars(schema.BuiltinOperator).items()}
    graph, kinds = model.subgraphs[0], dict[str, tuple[int, str, str, Any]]()
    for position, operator in enumerate(graph.operators):
        code = model.operatorCodes[operator.opcodeIndex]
        kind = codes.get(max(code.builtinCode, code.deprecatedBuiltinCode), "CUSTOM")
        numbers = [int(each) for each in (*operator.inputs, *operator.outputs) if each >= 0]
        tensors = [graph.tensors[number] for number in numbers]
        values = [_value(model, tensor, data) for tensor in tensors]
        sizes = [math.prod(_shape(tensor)) for tensor in tensors]
        parts = zip(values, sizes, strict=True)
        arguments = [value if size <= MOST_ARGUMENT else bool(value) for value, size in parts]
        types = [(each.type, _scales(each)[:2], [min(e, 2) for e in _shape(each)]) for each in tensors]
        options = [each and sorted(vars(each).items()) for each in _options(operator)]
        key = repr((kind, options, arguments, types))
        known = kinds.get(key)
        if known is None or sum(sizes) < known[0]:
            make = partial(_cases, schema, model, operator, kind, dict(zip(numbers, values, strict=True)))
            kinds[key] = (sum(sizes), kind, str(position), make)
    return collected((each[1:] for each in kinds.values()), "the TFLite interpreter")


def _cases(schema: Any, model: Any, operator: Any, kind: str, values: dict[int, bytes]) -> tuple[bytes, Any]:
    import numpy as np

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
    packed = _packed(single)
    interpreter = _interpreter(packed)
    details = zip(graph.inputs, interpreter.get_input_details(), strict=True)
    specs = {parameter_name(n): (each["shape"].tolist(), each["dtype"].__name__) for n, each in details}
    indexed = set(_shape(graph.tensors[int(operator.inputs[0])])) if len(operator.inputs) else set()
    return packed, make_cases(kind, specs, indexed, partial(_computed, interpreter))


def _packed(model: Any) -> bytes:
    builder = load("flatbuffers", "tflite", "comparing operators").Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


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


def _interpreter(data: bytes) -> Any:
    litert = load("ai_edge_litert.interpreter", "tflite", "comparing operators")
    kernels = plain_kernels(litert)
    interpreter = litert.Interpreter(model_content=data, experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    return interpreter


def _computed(interpreter: Any, inputs: dict[str, Any]) -> list[Any]:
    for detail, array in zip(interpreter.get_input_details(), inputs.values(), strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


@isolated("running an operator by itself", SECONDS)
def run_alone(model: bytes, inputs: list[dict[str, Any]]) -> list[list[Any]]:
    """Return the outputs for each of *inputs*."""
    interpreter = _interpreter(model)
    return [_computed(interpreter, each) for each in inputs]
