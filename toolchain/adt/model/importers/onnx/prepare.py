"""Simplify and rewrite an ONNX model for TVM's importer; what onnxruntime does not confirm is dropped."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adt.model.importers.onnx.compare import Runner
from adt.model.importers.onnx.graph import Graph, all_nodes, op_name, opset, subgraphs
from adt.model.importers.onnx.rewrites.table import REWRITES
from adt.model.importers.onnx.support import convertible
from adt.model.importers.op_table import named_nodes

if TYPE_CHECKING:
    import onnx

log = logging.getLogger("adt.import")

LEAST_OPSET = 11
"""Older models are brought to UPGRADED: TVM's importer misreads Slice, Resize and TopK of before."""
UPGRADED = 13
MOST_OBSERVED = 64
"""Rewritten nodes whose own output is compared, besides the model's outputs."""


@dataclass(frozen=True)
class Prepared:
    """A model as it goes to TVM's importer."""

    model: onnx.ModelProto
    simplified: onnx.ModelProto
    """Before its operators were rewritten; what the op table counts."""
    rewritten: Mapping[str, str]
    """Operator to what became of it, for those that were rewritten."""


def prepare(model: onnx.ModelProto, name: str) -> Prepared:
    """Simplify *model* (with static input shapes) and rewrite what TVM's importer cannot take.

    Every step is trusted only if onnxruntime computes the same with it as without, on
    random inputs; a step that is not confirmed is left out and a warning says so.

    Args:
        name: the model's file name, for messages.
    """
    model = _inlined(model, name)
    try:
        runner = Runner(model)
    except RuntimeError as why:
        log.warning(
            "onnxruntime cannot run %s, so no rewriting of it could be checked and none is done: %s",
            name,
            str(why).strip().splitlines()[0],
        )
        return Prepared(_typed(model), model, {})
    model = _upgraded(model, runner, name)
    simplified = _simplified(model, runner, name)
    if simplified is not model:
        runner = Runner(simplified)
    model = _function_bodies(simplified, runner)
    if model is not simplified:
        runner = Runner(model)
    expanded = {
        node.op_type: "its definition by other operators"
        for node in all_nodes(simplified.graph)
        if node.op_type not in {inner.op_type for inner in all_nodes(model.graph)}
    }
    changed, notes = _rewritten(model, runner)
    return Prepared(_typed(changed), simplified, expanded | notes)


def _inlined(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """*model* with its own functions written out (exporters of today write some)."""
    if not model.functions:
        return model
    from onnx import inliner

    try:
        return inliner.inline_local_functions(model, convert_version=True)
    except Exception as why:  # the inliner raises what its C++ side throws
        log.warning("the functions in %s could not be inlined: %s", name, why)
        return model


def _upgraded(model: onnx.ModelProto, runner: Runner, name: str) -> onnx.ModelProto:
    """*model* with operators of a later opset when its own is too old for TVM's importer."""
    if opset(model) >= LEAST_OPSET:
        return model
    from onnx import version_converter

    try:
        upgraded = version_converter.convert_version(model, UPGRADED)
    except Exception as why:  # the converter raises what its C++ side throws
        log.warning("%s of opset %d could not be upgraded: %s", name, opset(model), why)
        return model
    if reason := runner.difference(upgraded):
        log.warning("%s upgraded to opset %d is not used: %s", name, UPGRADED, reason)
        return model
    log.debug("%s upgraded from opset %d to %d", name, opset(model), UPGRADED)
    return upgraded


def _simplified(model: onnx.ModelProto, runner: Runner, name: str) -> onnx.ModelProto:
    """*model* after onnxslim; *model* itself when that fails or computes something else."""
    import onnx
    import onnxslim

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    try:
        slim = onnxslim.slim(copy)
    except Exception as why:  # onnxslim raises whatever its passes meet
        log.warning("onnxslim could not simplify %s (%s); importing it as it is", name, why)
        return model
    if reason := runner.difference(slim):
        log.warning("what onnxslim made of %s is not used: %s", name, reason)
        return model
    return slim


def _function_bodies(model: onnx.ModelProto, runner: Runner) -> onnx.ModelProto:
    """*model* with those operators written out that ONNX defines by others and TVM has no converter for."""
    from onnx import defs, inliner

    wanted = []
    for op in sorted({node.op_type for node in all_nodes(model.graph) if node.domain in ("", "ai.onnx")}):
        if op in REWRITES or convertible("", op) or not defs.has(op):
            continue
        schema = defs.get_schema(op)
        if schema.has_function or schema.has_context_dependent_function:
            wanted.append(("", op))
    if not wanted:
        return model
    names = ", ".join(op for _, op in wanted)
    try:
        inlined = inliner.inline_selected_functions(_typed(model), wanted, inline_schema_functions=True)
    except Exception as why:  # see _inlined
        log.warning("%s could not be written out: %s", names, why)
        return model
    if reason := runner.difference(inlined):
        log.warning("%s written out as ONNX defines them are not used: %s", names, reason)
        return model
    return inlined


def _rewritten(model: onnx.ModelProto, runner: Runner) -> tuple[onnx.ModelProto, dict[str, str]]:
    """*model* with all rewrites that are confirmed, and for each operator what was done."""
    allowed = set(REWRITES)
    changed, done = _apply(model, allowed)
    if not done:
        return model, {}
    if reason := runner.difference(changed, _observed(model, done)):
        log.debug("the rewrites together: %s", reason)
        for op in list(done):
            alone, single = _apply(model, {op})
            if reason := runner.difference(alone, _observed(model, single)):
                log.warning("the rewriting of %s is not used: %s", op, reason)
                allowed.discard(op)
        changed, done = _apply(model, allowed)
        if done and (reason := runner.difference(changed, _observed(model, done))):
            log.warning("no rewriting is used: together they compute something else: %s", reason)
            return model, {}
    notes = {
        op: f"to {REWRITES[op].into}: {REWRITES[op].why}; {named_nodes(node.name for node in nodes)}"
        for op, nodes in done.items()
    }
    return changed, notes


def _observed(model: onnx.ModelProto, done: Mapping[str, list[onnx.NodeProto]]) -> list[str]:
    """Outputs of rewritten nodes of the main graph: the closest place to see a difference."""
    inside = {name for node in model.graph.node for name in node.output}
    names = [name for nodes in done.values() for node in nodes for name in node.output if name in inside]
    step = max(1, len(names) // MOST_OBSERVED)
    return names[::step]


def _apply(
    model: onnx.ModelProto, allowed: Collection[str]
) -> tuple[onnx.ModelProto, dict[str, list[onnx.NodeProto]]]:
    """A copy of *model* with the rewrites of *allowed* operators, and the nodes that were rewritten."""
    copy = _typed(model)
    done: dict[str, list[onnx.NodeProto]] = {}
    _apply_to(Graph(copy, copy.graph), allowed, done)
    if done:
        del copy.graph.value_info[:]
    return copy, done


def _apply_to(graph: Graph, allowed: Collection[str], done: dict[str, list[onnx.NodeProto]]) -> None:
    nodes: list[onnx.NodeProto] = []
    for node in graph.graph.node:
        for inner in subgraphs(node):
            _apply_to(Graph(graph.model, inner, graph), allowed, done)
        rewrite = REWRITES.get(op_name(node))
        replaced = rewrite.apply(node, graph) if rewrite and rewrite.op in allowed else None
        if replaced is None:
            nodes.append(_copy(node))
        else:
            done.setdefault(op_name(node), []).append(_copy(node))
            nodes.extend(replaced)
    del graph.graph.node[:]
    graph.graph.node.extend(nodes)


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    import onnx

    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    return copy


def _typed(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of *model* with the shape and type of every tensor that can be inferred."""
    import onnx

    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception as why:  # raised for what the checker lets pass, e.g. operators of other domains
        log.debug("shapes could not be inferred: %s", why)
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        return copy
