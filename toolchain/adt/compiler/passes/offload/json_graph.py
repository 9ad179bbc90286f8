"""The graphs in TVM's JSON that adt's runtimes of libraries read (``cmake_presets/src``), and those of CUDA.

Each layer of cuDNN and cuBLAS is a graph of its own: TVM plans the memory between them. Weights are its
inputs, which stay parameters of the model, so that they are on the device once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tvm
from tvm import relax

from adt.compiler.ir.nodes import relax_nodes
from adt.compiler.passes.offload.weights import COMPOSITE

Layer = tuple[Sequence[relax.Var], Mapping[str, Any]]
"""Operation that a library computes in one call: its operands and attributes."""


def node(kind: str, name: str, info: relax.TensorStructInfo, **attributes: Any) -> dict[str, Any]:
    """Make the node of a graph that gives a tensor of the type *info*."""
    common = {"num_outputs": 1, "dtype": [str(info.dtype)], "shape": [[int(extent) for extent in info.shape]]}
    return {"op": kind, "name": name, "attrs": common | attributes}


def feed(kernel: dict[str, Any], operands: Sequence[int]) -> None:
    """Make the nodes *operands* the inputs of the node *kernel*."""
    kernel["inputs"] = [[number, 0, 0] for number in operands]
    kernel["attrs"]["num_inputs"] = len(operands)


def graph_text(nodes: Sequence[Mapping[str, Any]], arguments: Sequence[int], heads: Sequence[int]) -> str:
    """Return the graph of *nodes*, each after those that it reads, as JSON."""
    return json.dumps(
        {
            "nodes": nodes,
            "arg_nodes": arguments,
            "heads": [[head, 0, 0] for head in heads],
            "node_row_ptr": list(range(len(nodes) + 1)),
        }
    )


Write = Callable[[relax.Function, Mapping[relax.Constant, str]], tuple[str, list[str]]]
"""Writer of a function's graph as JSON, and of the constants in it, all of which have names."""


def register(library: str, write: Write) -> None:
    """Let TVM hand functions over to *library*, as *write* gives them."""

    def generate(functions: Sequence[Any], _options: Any, names: Any) -> list[Any]:
        create = tvm.get_global_func("adt.JsonModuleCreate")
        return [
            create(f"{library}_json", str(function.attrs["global_symbol"]), *write(function, names))
            for function in functions
        ]

    tvm.register_global_func(f"relax.ext.{library}", generate, override=True)


def write_layer(
    function: relax.Function, _names: Any, layer_of: Callable[[Sequence[Any]], Layer]
) -> tuple[str, list[str]]:
    """Write the graph of *function*, which calls one match; *layer_of* describes the match's bindings."""
    (match,) = (node for node in relax_nodes(function.body, relax.Function) if COMPOSITE in node.attrs)
    (call,) = (node for node in relax_nodes(function.body, relax.Call) if isinstance(node.op, relax.Var))
    operands, attributes = layer_of([each for block in match.body.blocks for each in block.bindings])
    passed = dict(zip(match.params, call.args, strict=True))
    numbers = {parameter: number for number, parameter in enumerate(function.params)}

    nodes = [node("input", str(each.name_hint), each.struct_info) for each in function.params]
    kernel = node("kernel", str(match.attrs[COMPOSITE]), match.ret_struct_info, **attributes)
    feed(kernel, [numbers[passed[operand]] for operand in operands])
    return graph_text([*nodes, kernel], list(range(len(nodes))), [len(nodes)]), []
