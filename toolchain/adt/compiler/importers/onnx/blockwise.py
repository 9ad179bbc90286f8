"""Products by weights of few bits, onnxruntime's MatMulNBits: nodes that are one function, and its shape.

ONNX infers no shapes of another domain's operators, nor of what follows them, and much that is rewritten
needs them. It is told this one's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import onnx
from onnx import defs

from adt.compiler.importers.onnx.graph import Builder, all_nodes, attribute
from adt.compiler.passes.weight_bits import Blockwise

DOMAIN, OPERATOR = "com.microsoft", "MatMulNBits"
MATMUL_N_BITS = f"{DOMAIN}::{OPERATOR}"
INPUTS = ("A", "B", "scales", "zero_points", "g_idx", "bias")
IN_FLOATS = ("session.qdq_matmulnbits_accuracy_level", "1")
"""Entry of onnxruntime's configuration without which it rounds what such weights multiply to 8 bits, where
DequantizeLinear makes floats of them."""
ACCURACY = "accuracy_level"
"""Attribute of MatMulNBits that lets onnxruntime be less exact: at 4 it rounds activations to 8 bits."""
BITS = (4, 8)  # bits of weights that stay as they are


def form_of(node: onnx.NodeProto) -> Blockwise:
    """Return how the weights of *node* are written."""
    return Blockwise(attribute(node, "bits", 4), attribute(node, "block_size"), attribute(node, "K"))


def in_floats(model: onnx.ModelProto) -> onnx.ModelProto:
    """Take :data:`ACCURACY` from the nodes of *model*, by which onnxruntime rounds activations; return it."""
    for node in all_nodes(model.graph):
        if node.op_type == OPERATOR:
            for each in [each for each in node.attribute if each.name == ACCURACY]:
                node.attribute.remove(each)
    return model


def is_blockwise(build: Builder) -> bool:
    """Return True if the node can be a function that reads its weights as they are."""
    _, values, scales, zeros, order, _ = build.operands(6)
    constants = [build.graph.constant(name) for name in (values, scales, zeros) if name]
    if order or any(constant is None for constant in constants):
        return False
    types = [build.dtype, *(str(constant.dtype) for constant in constants if constant is not None)]
    taken = ["float32", "uint8", "float32", "uint8"]
    return types == taken[: len(types)] and form_of(build.node).bits in BITS


@contextlib.contextmanager
def inferred_products() -> Iterator[None]:
    """Let ONNX infer the shape and type of MatMulNBits within the context."""

    def infer(context: Any) -> None:
        data = context.get_input_type(0)
        columns = context.get_attribute("N")
        if data is None or columns is None or not data.tensor_type.HasField("shape"):
            return
        result = onnx.TypeProto()
        result.CopyFrom(data)
        result.tensor_type.shape.dim[-1].Clear()
        result.tensor_type.shape.dim[-1].dim_value = columns.i
        context.set_output_type(0, result)

    parameter, option = defs.OpSchema.FormalParameter, defs.OpSchema.FormalParameterOption
    inputs = [
        parameter(name, f"T{place}", param_option=option.Single if place < 3 else option.Optional)
        for place, name in enumerate(INPUTS)
    ]
    types = [f"tensor({name})" for name in ("float", "float16", "bfloat16", "uint8", "int32")]
    constraints = [(f"T{place}", types, "") for place in range(len(INPUTS))]
    outputs = [parameter("Y", "T0")]
    described = defs.OpSchema(
        OPERATOR, DOMAIN, 1, inputs=inputs, outputs=outputs, type_constraints=constraints, attributes=[]
    )
    described.set_type_and_shape_inference_function(infer)
    defs.register_schema(described)
    try:
        yield
    finally:
        defs.deregister_schema(OPERATOR, 1, DOMAIN)
