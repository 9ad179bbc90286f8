"""The code generator for cuDNN and cuBLAS: graphs that the runtimes in ``cmake_presets/src/cuda`` read.

Each layer is a graph of its own: TVM plans the memory between them. Weights are its inputs, which stay
parameters of the model, so that they are on the device once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax

from adt.compiler.ir.nodes import relax_nodes
from adt.compiler.passes.offload.weights import COMPOSITE

TYPES = ("float32", "float16")


@dataclass(frozen=True)
class Layer:
    """Operation that a library computes in one call."""

    operands: Sequence[relax.Expr]
    """Relax's variables."""
    attributes: Mapping[str, Any]


def check_types(title: str, call: relax.Call) -> str:
    """Return why the library *title* does not compute with the tensors of *call*; empty: it does."""
    infos = [argument.struct_info for argument in call.args if not isinstance(argument, relax.ShapeExpr)]
    types = {str(info.dtype) for info in (*infos, call.struct_info)}
    if len(types) > 1 or not types <= set(TYPES):
        return f"{title} computes in one of {' and '.join(TYPES)}, not in {', '.join(sorted(types))}"
    return ""


def register(library: str, layer_of: Callable[[Sequence[Any]], Layer]) -> None:
    """Let TVM hand functions over to *library*; *layer_of* describes the bindings of one match."""

    def generate(functions: Sequence[Any], _options: Any, _names: Any) -> list[Any]:
        create = tvm.get_global_func("adt.JsonModuleCreate")
        return [
            create(f"{library}_json", str(function.attrs["global_symbol"]), _text(function, layer_of), [])
            for function in functions
        ]

    tvm.register_global_func(f"relax.ext.{library}", generate, override=True)


def _text(function: relax.Function, layer_of: Callable[[Sequence[Any]], Layer]) -> str:
    """The graph of *function*, which calls one match, as JSON."""
    (match,) = (node for node in relax_nodes(function.body, relax.Function) if COMPOSITE in node.attrs)
    (call,) = (node for node in relax_nodes(function.body, relax.Call) if isinstance(node.op, relax.Var))
    layer = layer_of([binding for block in match.body.blocks for binding in block.bindings])
    passed = dict(zip(match.params, call.args, strict=True))
    numbers = {parameter: number for number, parameter in enumerate(function.params)}

    def node(kind: str, name: str, info: relax.StructInfo, **more: Any) -> dict[str, Any]:
        shape = [int(extent) for extent in info.shape]
        attributes = {"num_outputs": 1, "dtype": [str(info.dtype)], "shape": [shape]}
        return {"op": kind, "name": name, "attrs": attributes | more}

    nodes = [node("input", str(each.name_hint), each.struct_info) for each in function.params]
    kernel = node("kernel", str(match.attrs[COMPOSITE]), match.ret_struct_info, **layer.attributes)
    kernel["inputs"] = [[numbers[passed[operand]], 0, 0] for operand in layer.operands]
    kernel["attrs"]["num_inputs"] = len(layer.operands)
    return json.dumps(
        {
            "nodes": [*nodes, kernel],
            "arg_nodes": list(range(len(nodes))),
            "heads": [[len(nodes), 0, 0]],
            "node_row_ptr": list(range(len(nodes) + 2)),
        }
    )
