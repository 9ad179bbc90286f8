"""Each kind of node of a decomposed PyTorch program as one of its own, with what torch computes of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from adt.compiler.importers import layers
from adt.host.extras import load

SIMILAR = {
    "_to_copy": "cast", "bitwise_left_shift": "bitshift", "bitwise_right_shift": "bitshift",
    "floor_divide": "floordiv", "fmod": "mod", "linalg_det": "det", "remainder": "mod",
    "topk": layers.UNTIED,
}  # fmt: skip
"""Operators by the name of others that are defined for the same inputs."""
BY_RATIO = ("upsample", "pool")
"""Parts of names of operators that the extents make other ones."""


def kinds_of(program: Any) -> Iterator[layers.Kind]:
    """Yield the nodes of a program; those of equal operators, arguments and types are of one kind."""
    torch = load("torch", "torch", "comparing operators")
    for place, node in enumerate(program.graph.nodes):
        name, operands = getattr(node.target, "__name__", ""), node.all_input_nodes
        if node.op != "call_function" or name == "getitem" or not operands or not node.users:
            continue
        values = [each.meta.get("val") for each in (*operands, *_results(node))]
        shapes = [tuple(getattr(value, "shape", ())) for value in values]
        most = layers.MOST_ELEMENTS if any(part in name for part in BY_RATIO) else 2
        extents = [[(min(extent, most), extent % 2) for extent in shape] for shape in shapes]
        types = [getattr(value, "dtype", None) for value in values]
        arguments = torch.fx.node.map_arg((node.args, node.kwargs), operands.index)
        size = sum(map(math.prod, shapes))
        key = layers.digest_of(name, arguments, types, extents, size > layers.MOST_ELEMENTS)
        yield layers.Kind(key, name, node.name, place, size)


def layers_of(program: Any, kinds: list[layers.Kind]) -> list[layers.Layer]:
    """Return each of *kinds*, of the decomposed *program*, alone."""
    nodes, signature = list(program.graph.nodes), program.graph_signature
    state = {*signature.buffers_to_mutate, *signature.user_inputs_to_mutate}
    return layers.collected(kinds, lambda kind: _alone(nodes[kind.place], state))


def _results(node: Any) -> list[Any]:
    """Return *node*, or those that take the tensors out of what it gives."""
    takers = [user for user in node.users if getattr(user.target, "__name__", "") == "getitem"]
    return takers or [node]


def _alone(node: Any, state: set[str]) -> tuple[Any, list[layers.Case]]:
    """Return a program of *node*, which gives nothing of the model's *state*, and what torch computes."""
    torch = load("torch", "torch", "comparing operators")
    values = {each.name: each.meta.get("val") for each in (*node.all_input_nodes, *_results(node))}
    if not all(isinstance(value, torch.Tensor) for value in values.values()):
        raise ValueError("it computes more than tensors")
    if state & values.keys():
        raise ValueError("it changes the state of the model")
    if "empty" in node.target.__name__:
        raise ValueError("its values are whatever the memory holds")
    is_float = any(value.is_floating_point() for value in values.values())
    if is_float and SIMILAR.get(node.target.__name__.partition(".")[0]) == "mod":
        raise ValueError("a remainder leaps where the quotient is an integer")
    leaves = torch.utils._pytree.tree_leaves((node.args, node.kwargs))
    kept = {leaf for leaf in leaves if isinstance(leaf, int)}
    shapes = {name: tuple(value.shape) for name, value in values.items()}
    return layers.in_short_extents(shapes, kept, partial(_cases, node))


def _cases(node: Any, shapes: Mapping[str, Sequence[int]]) -> tuple[Any, list[layers.Case]]:
    """Return a program of *node*, whose operands have these *shapes*, and what torch computes."""
    torch = load("torch", "torch", "comparing operators")
    graph, taken = torch.fx.Graph(), _results(node)
    copies = {operand: graph.placeholder(operand.name) for operand in node.all_input_nodes}
    inputs = list(copies.values())
    for each in dict.fromkeys((node, *taken)):
        copies[each] = graph.node_copy(each, copies.__getitem__)
    outputs = [copies[each] for each in taken]
    graph.output(tuple(outputs))
    interpreter = torch.fx.Interpreter(
        torch.fx.GraphModule(torch.nn.Module(), graph), garbage_collect_values=False
    )

    def run(arrays: Mapping[str, Any]) -> list[Any]:
        return [value.numpy() for value in interpreter.run(*map(torch.from_numpy, arrays.values()))]

    dtypes = [str(operand.meta["val"].dtype).removeprefix("torch.") for operand in node.all_input_nodes]
    specs = {each.name: (shapes[each.name], dtype) for each, dtype in zip(inputs, dtypes, strict=True)}
    name = node.target.__name__.partition(".")[0]
    indexed = set(next(iter(shapes.values())))
    cases = layers.make_cases(SIMILAR.get(name, name), specs, indexed, run)
    for each, value in interpreter.env.items():
        each.meta["val"] = each.meta["tensor_meta"] = value
    types = torch.export.graph_signature
    given, results = types.InputKind.USER_INPUT, types.OutputKind.USER_OUTPUT
    signature = types.ExportGraphSignature(
        [types.InputSpec(given, types.TensorArgument(each.name), None) for each in inputs],
        [types.OutputSpec(results, types.TensorArgument(each.name), None) for each in outputs],
    )
    return torch.export.ExportedProgram(interpreter.module, graph, signature, {}, {}, []), cases
