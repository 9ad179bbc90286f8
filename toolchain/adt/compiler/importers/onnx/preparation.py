"""Rewrites of an ONNX model for TVM's importer; what running both does not confirm is dropped."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import defs, helper, inliner

from adt.compiler.importers.onnx.blockwise import MATMUL_N_BITS, inferred_products, is_blockwise
from adt.compiler.importers.onnx.comparison import Runner
from adt.compiler.importers.onnx.graph import (
    Builder,
    Graph,
    all_nodes,
    drop_unused,
    op_name,
    opset,
    subgraphs,
    with_inputs,
)
from adt.compiler.importers.onnx.known_values import fold_known
from adt.compiler.importers.onnx.rewrites import REWRITES
from adt.compiler.importers.onnx.rewrites.recurrent import is_loop
from adt.compiler.importers.onnx.support import convertible, unsupported_ops
from adt.compiler.importers.onnx.upgrade import POOLS, correct_extents, correct_windows, upgraded
from adt.compiler.importers.op_table import named_nodes
from adt.compiler.passes.recurrence import GATES
from adt.host.disk import library_files, scratch_directory

log = logging.getLogger("adt.import")

LEAST_OPSET = 11
"""Older models are brought to UPGRADED: TVM's importer misreads Slice, Resize and TopK of before."""
UPGRADED = 13
MOST_ROUNDS = 4
"""Most rounds: what an operator is written out with (a loop's body) may need rewriting itself."""
QUANTIZING = re.compile("(Dynamic)?Q(uantize|Linear|Gemm|Attention)")  # operators that round to quanta
MOST_PASSES = 64
"""Rewriting one operator gives the types of what follows it, or leaves others to be rewritten."""
MOST_OBSERVED = 64  # rewritten nodes whose own output is compared, besides the model's outputs


@dataclass(frozen=True)
class PreparedModel:
    """A model as it goes to TVM's importer."""

    model: onnx.ModelProto
    simplified: onnx.ModelProto
    """Before its operators were rewritten; what the op table counts."""
    rewritten: Mapping[str, str]
    """Operator to what became of it, for those that were rewritten."""
    kept: frozenset[str] = frozenset()
    """Operators that become one function each: recurrent ones, and products by weights of few bits."""


@inferred_products()
def prepare(
    model: onnx.ModelProto, name: str, *, loops: bool = False, blockwise: bool = False
) -> PreparedModel:
    """Simplify *model* (with static input shapes) and rewrite what TVM's importer cannot take.

    A step is left out, with a warning, unless the model computes the same with it on random inputs; where
    nothing can run the model, none is. *loops* leaves recurrent operators as they are where they can be one
    function of all steps, *blockwise* products by weights of few bits.
    """
    model = inlined(model, name)
    runner = Runner(model)
    if runner.reason:
        log.warning("nothing here can run %s to confirm what is rewritten in it: %s", name, runner.reason)
    model = _upgraded(model, runner, name)
    corrected = _with_extents(model)
    if corrected is not model:
        model, runner = corrected, Runner(corrected)  # onnxruntime folds the extents that ONNX infers
    simplified = _simplified(model, runner, name)
    if simplified is not model:
        runner = Runner(simplified)
    model, notes = simplified, dict[str, str]()
    kept = frozenset(map(op_name, all_nodes(simplified.graph))) & GATES.keys() if loops else frozenset[str]()
    kept -= _hindered(simplified, kept, is_loop)
    if blockwise:
        kept |= {MATMUL_N_BITS} - _hindered(simplified, {MATMUL_N_BITS}, is_blockwise)
    for _ in range(MOST_ROUNDS):
        written, expanded = _function_bodies(model, runner, name)
        if expanded:
            model = _simplified(written, runner, name)
            runner = Runner(model)
        model, rewritten = _rewritten(model, runner, kept)
        if any("::" in op for op in rewritten):  # no shapes were known behind other domains' operators
            model = _with_extents(model)
            model = _simplified(model, Runner(model), name)
        notes = expanded | rewritten | notes
        # what a loop becomes is rewritten as all other nodes are
        is_done = not unsupported_ops(model) and rewritten.keys().isdisjoint(("Loop", "Scan"))
        if is_done or not (expanded or rewritten):
            break
        runner = Runner(model)
    typed = _typed(model)
    drop_unused(typed)  # weights that stay in blocks of 4 bits become no floats
    if fold_known(typed, uncomputed=True):
        typed = _typed(typed)
    return PreparedModel(typed, simplified, notes, kept)


def _hindered(model: onnx.ModelProto, ops: Collection[str], can: Callable[[Builder], bool]) -> frozenset[str]:
    """Return those of *ops* with a node in *model* that cannot be a function of its own."""
    graph, main = Graph(model, model.graph), {node.name for node in model.graph.node}
    nodes = (node for node in all_nodes(model.graph) if op_name(node) in ops)
    return frozenset(op_name(n) for n in nodes if n.name not in main or not can(Builder(graph, n)))


def inlined(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """Return *model* with its own functions written out (exporters of today write some)."""
    if not model.functions:
        return model
    try:
        return inliner.inline_local_functions(model, convert_version=True)
    except Exception as error:  # the inliner raises what its C++ side throws
        log.warning("the functions in %s could not be inlined: %s", name, error)
        return model


def _upgraded(model: onnx.ModelProto, runner: Runner, name: str) -> onnx.ModelProto:
    """Convert *model* to a later opset when its own is too old for TVM's importer."""
    if opset(model) >= LEAST_OPSET:
        return model
    try:
        later = upgraded(model, UPGRADED)
    except Exception as error:  # the converter raises what its C++ side throws
        log.warning("%s of opset %d could not be upgraded: %s", name, opset(model), error)
        return model
    if reason := runner.difference(later):
        log.warning("%s upgraded to opset %d is not used: %s", name, UPGRADED, reason)
        return model
    log.debug("%s upgraded from opset %d to %d", name, opset(model), UPGRADED)
    return later


def _with_extents(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return *model* with onnxruntime's extents of its Resizes and pools, and shapes after them."""
    if not any(node.op_type in ("Resize", *POOLS) for node in model.graph.node):
        return model
    typed, changed = _typed(model), False
    for _ in range(len(typed.graph.node)):
        graph = Graph(typed, typed.graph)
        if not correct_extents(graph) and not correct_windows(graph):
            break
        typed, changed = _typed(_with_inferred_shapes(typed)), True
    return typed if changed else model


def _simplified(model: onnx.ModelProto, runner: Runner, name: str) -> onnx.ModelProto:
    """Simplify *model* by onnxslim, or by its static shapes alone where that fails or is something else."""
    import onnxslim

    try:
        with scratch_directory("simplify") as scratch, library_files(scratch):
            slim = onnxslim.slim(deepcopy(model))
    except Exception as error:  # onnxslim raises whatever its passes meet
        log.warning("onnxslim could not simplify %s (%s); importing it as it is", name, error)
        return _folded(model)
    if reason := runner.difference(slim):
        log.warning("what onnxslim made of %s is not used: %s", name, reason)
        return _folded(model)
    return _with_inferred_shapes(slim)


def _folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace what the static shapes of *model* tell by constants."""
    folded = _typed(model)
    for _ in range(MOST_PASSES):
        if not fold_known(folded):
            break
        folded = _typed(folded)
    return folded


def _with_inferred_shapes(slim: onnx.ModelProto) -> onnx.ModelProto:
    """Give *slim* the shapes that ONNX infers, where it does: others may be wrong.

    onnxslim's are wrong for a Resize with axes; ONNX's own for Attention's scores with past keys, until it is
    rewritten.
    """

    plain = deepcopy(slim)
    del plain.graph.value_info[:]
    for value in plain.graph.output:
        value.type.tensor_type.ClearField("shape")
    graph = _typed(plain).graph
    inferred = {value.name: value.type for value in (*graph.value_info, *graph.output)}
    for value in (*slim.graph.value_info, *slim.graph.output):
        kind = inferred.get(value.name)
        if kind is not None and kind.tensor_type.HasField("shape"):
            value.type.CopyFrom(kind)
    return slim


def _function_bodies(
    model: onnx.ModelProto, runner: Runner, name: str
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Write out operators of *model* that ONNX defines by others and TVM has no converter for; note each."""
    notes: dict[str, str] = {}
    refused: set[tuple[str, str]] = set()
    while functions := set(_functions(model)) - refused:
        for function in sorted(functions):  # what one is written out with may be another
            domain, op = function
            try:
                complete = _complete(model, domain, op)
                inlined = inliner.inline_selected_functions(
                    complete, [function], inline_schema_functions=True
                )
                reason = runner.difference(inlined)
            except Exception as error:  # see inlined
                reason = str(error)
            if reason or function in _functions(inlined):
                log.warning("%s in %s is not written out as ONNX defines it: %s", op, name, reason)
                refused.add(function)
            else:
                model = inlined
                notes[op if domain == "" else f"{domain}::{op}"] = "its definition by other operators"
    return model, notes


def _complete(model: onnx.ModelProto, domain: str, op: str) -> onnx.ModelProto:
    """Copy *model* with default attributes of *op* and types of all tensors, which the inliner asks for."""
    copy = deepcopy(model)
    for node in all_nodes(copy.graph):
        if (node.domain, node.op_type) == (domain, op) and (schema := _schema(copy, node)):
            present = {attribute.name for attribute in node.attribute}
            defaults = {name: each.default_value for name, each in schema.attributes.items()}
            node.attribute.extend(
                value for name, value in defaults.items() if name not in present and value.name
            )
    typed = _typed(copy)
    typed.graph.value_info.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in typed.graph.initializer
    )
    typed.graph.value_info.append(helper.make_tensor_value_info("", onnx.TensorProto.FLOAT, None))
    return typed


def _schema(model: onnx.ModelProto, node: onnx.NodeProto) -> onnx.defs.OpSchema | None:
    """Return ONNX's description of *node*'s operator, of the version that *model* asks for."""
    version = next((o.version for o in model.opset_import if o.domain == node.domain), 1)
    try:
        return defs.get_schema(node.op_type, version, node.domain)
    except defs.SchemaError:
        return None


def _functions(model: onnx.ModelProto) -> Iterator[tuple[str, str]]:
    """Yield domain and name of the operators of *model* that must and can be inlined."""
    for node in all_nodes(model.graph):
        if op_name(node) in REWRITES or convertible(node.domain, node.op_type):
            continue
        schema = _schema(model, node)
        if schema and (schema.has_function or schema.has_context_dependent_function):
            yield node.domain, node.op_type


def _rewritten(
    model: onnx.ModelProto, runner: Runner, kept: Collection[str]
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Rewrite operators of *model* but *kept* where that is confirmed; tell for each what was done."""
    allowed = REWRITES.keys() - kept
    changed, done = _apply(model, allowed)
    if not done:
        return model, {}
    if reason := _difference(model, changed, done, runner):
        log.debug("the rewrites together: %s", reason)
        for op in list(done):
            alone, single = _apply(model, {op})
            if reason := _difference(model, alone, single, runner):
                log.warning("the rewriting of %s is not used: %s", op, reason)
                allowed.discard(op)
        changed, done = _apply(model, allowed)
        if done and (reason := _difference(model, changed, done, runner)):
            log.warning("no rewriting is used: together they compute something else: %s", reason)
            return model, {}
    notes = {
        op: f"to {REWRITES[op].into}: {REWRITES[op].reason}; {named_nodes(node.name for node in nodes)}"
        for op, nodes in done.items()
    }
    return changed, notes


def _difference(
    model: onnx.ModelProto, changed: onnx.ModelProto, done: Mapping[str, list[onnx.NodeProto]], runner: Runner
) -> str:
    """Return what *changed* computes otherwise than *model*; empty when it computes the same.

    Where a model quantizes within, a value on the edge of two quanta may become the other one, and all that
    follows differs by more than rounding. There each rewritten node is compared by itself, on what it gets in
    the original.
    """
    reason = runner.difference(changed, _observed(model, done))
    if not reason or not any(QUANTIZING.match(node.op_type) for node in model.graph.node):
        return reason
    nodes = [node for node in model.graph.node if op_name(node) in done][:MOST_OBSERVED]
    separate, inputs = _separate(model, nodes, runner)
    rewritten, _ = _apply(separate, done)
    return Runner(separate, inputs).difference(rewritten)


def _separate(
    model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], runner: Runner
) -> tuple[onnx.ModelProto, dict[str, NDArray[np.generic]]]:
    """Build a model of *nodes* with nothing between them; return it, and their inputs in *model*."""
    inside = {name for node in model.graph.node for name in node.output}
    inside |= {value.name for value in model.graph.input} - {each.name for each in model.graph.initializer}
    names = {name for node in nodes for name in node.input if name in inside}
    values = {**runner.inputs, **runner.run(model, runner.inputs, sorted(names - set(runner.inputs)))}
    inputs = {f"{name} of the model": values[name] for name in sorted(names)}
    separate = with_inputs(model, inputs)
    for node in nodes:
        copy = separate.graph.node.add()
        copy.CopyFrom(node)
        copy.input[:] = [f"{name} of the model" if name in names else name for name in node.input]
        separate.graph.output.extend(
            helper.make_empty_tensor_value_info(name) for name in node.output if name
        )
    return separate, inputs


def _observed(model: onnx.ModelProto, done: Mapping[str, list[onnx.NodeProto]]) -> list[str]:
    """Return outputs of rewritten nodes of the main graph: the closest place to see a difference."""
    inside = {name for node in model.graph.node for name in node.output if name}
    names = [name for nodes in done.values() for node in nodes for name in node.output if name in inside]
    step = max(1, len(names) // MOST_OBSERVED)
    return names[::step]


def _apply(
    model: onnx.ModelProto, allowed: Collection[str]
) -> tuple[onnx.ModelProto, dict[str, list[onnx.NodeProto]]]:
    """Rewrite the *allowed* operators in a copy of *model*; return it, and the nodes that were rewritten."""
    copy = _typed(model)
    done: dict[str, list[onnx.NodeProto]] = {}
    for _ in range(MOST_PASSES + len(copy.graph.node)):
        if not _apply_to(Graph(copy, copy.graph), allowed, done):
            break
        del copy.graph.value_info[:]
        copy = _typed(_with_inferred_shapes(copy))
    return copy, done


def _apply_to(graph: Graph, allowed: Collection[str], done: dict[str, list[onnx.NodeProto]]) -> bool:
    """Rewrite the *allowed* operators of *graph* in place, and add them to *done*; True if there are any."""
    nodes: list[onnx.NodeProto] = []
    changed = False
    for node in graph.graph.node:
        op = op_name(node)
        for inner in subgraphs(node):
            changed |= _apply_to(Graph(graph.model, inner, graph), allowed, done)
        replaced = REWRITES[op].nodes(node, graph) if op in REWRITES and op in allowed else None
        if replaced is None:
            nodes.append(deepcopy(node))
        else:
            done.setdefault(op, []).append(deepcopy(node))
            nodes.extend(replaced)
            changed = True
    del graph.graph.node[:]
    graph.graph.node.extend(nodes)
    return changed


def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copy *model* with the shape and type of every tensor that can be inferred."""
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:  # raised for what the checker lets pass, e.g. operators of other domains
        log.debug("shapes could not be inferred: %s", error)
        return deepcopy(model)
