"""MatMulNBits as one function that reads its weights as they are written, in 4 or 8 bits.

Elsewhere they become floats (:mod:`adt.compiler.importers.onnx.rewrites.quantized`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tvm import relax

from adt.compiler.importers.onnx.blockwise import MATMUL_N_BITS, form_of
from adt.compiler.importers.onnx.converters.node import Converter, Node
from adt.compiler.passes.layout.blockwise import product


def blockwise_converters() -> Mapping[str, Converter]:
    """The converter of what :func:`adt.compiler.importers.onnx.blockwise.is_blockwise` takes."""
    return {MATMUL_N_BITS: _matmul_n_bits}


def _matmul_n_bits(node: Node) -> Any:
    """The product, and the bias added."""
    emit, form, columns = node.builder.emit, form_of(node.proto), int(node.attribute("N"))
    weights = [
        emit(relax.op.reshape(node.inputs[place], shape))
        for place, shape in (
            (1, (columns, form.blocks, form.block * form.bits // 8)),
            (2, (columns, form.blocks)),
            (3, (columns, -(-form.blocks * form.bits // 8))),
        )
        if node.has(place)
    ]
    result = node.te(partial(product, form), node.inputs[0], *weights, attributes=form.attributes)
    return emit(relax.op.add(result, node.inputs[5])) if node.has(5) else result
