"""Limits of a stranger's tuning record or kernel: the elements of schedule rules and kernels alone."""

import contextlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from adt.compiler.passes.records.traces import TraceError, canonical, check_trace
from adt.package.graphs import MOST_DEPTH, GraphError, check_graph, check_index_map

Graph = dict[str, Any]


def trace(*steps: list[Any], decisions: list[Any] | None = None) -> str:
    return json.dumps([list(steps), decisions or []])


BLOCK = ["GetSBlock", [], ["conv2d", "main"], ["b0"]]
LOOPS = ["GetLoops", ["b0"], [], ["l1", "l2"]]


def test_what_rules_write_passes() -> None:
    check_trace(
        trace(
            BLOCK,
            LOOPS,
            ["SamplePerfectTile", ["l1"], [2, 16], ["v3", "v4"]],
            ["Split", ["l1", "v3", "v4"], [1, 0], ["l5", "l6"]],
            ["Annotate", ["b0", '"SSRSRS"'], ["meta_schedule.tiling_structure"], []],
            ["Annotate", ["l5", 64], ["pragma_auto_unroll_max_step"], []],
            ["Annotate", ["b0", "v3"], ["meta_schedule.unroll_explicit"], []],
            ["Unannotate", ["b0"], ["schedule_rule"], []],
            ["Bind", ["l5"], ["threadIdx.x"], []],
            ["CacheRead", ["b0"], [0, "shared"], ["b7"]],
            ["SetScope", ["b0"], [0, "global.texture-weight"], []],
            ["Tensorize", ["l6"], ["dot_4x4_i8i8s32_sdot", 1], []],
            ["EnterPostproc", [], [], []],
            decisions=[[2, [4, 4]]],
        )
    )


@pytest.mark.parametrize(
    ("step", "named"),
    [
        (["Annotate", ["l1", '"module.asm"'], ["pragma_import_llvm"], []], "pragma_import_llvm"),
        (["Annotate", ["b0", '"code"'], ["pragma_import_c"], []], "pragma_import_c"),
        (["Annotate", ["b0", '"import_llvm"'], ["pragma_scope"], []], "pragma_scope"),
        (["Annotate", ["b0", 1], ["pragma_debug_skip_region"], []], "pragma_debug_skip_region"),
        (["Annotate", ["b0", 1], ["extern_scope"], []], "extern_scope"),
        (
            ["Annotate", ["b0", {"pragma_import_llvm": "x"}], ["meta_schedule.parallel"], []],
            "no schedule rule",
        ),
        (["Annotate", ["b0", "x" * 400], ["pragma_auto_unroll_max_step"], []], "no schedule rule"),
        (["Annotate", ["b0", '"a.o"'], ["pragma_unroll_explicit"], []], "pragma_unroll_explicit"),
        (["Annotate", ["b0"], [], []], "annotation None"),
        (["Unannotate", ["b0"], ["tirx.noalias"], []], "tirx.noalias"),
        (["UnsafeSetDType", ["b0"], [0, "handle"], []], "UnsafeSetDType"),
        (["UnsafeHideBufferAccess", ["b0"], ["read", [0]], []], "UnsafeHideBufferAccess"),
        (["AnnotateBufferAccess", ["b0"], [0, "read", "{}"], []], "AnnotateBufferAccess"),
        (["CacheRead", ["b0"], [0, "global.vtcm"], ["b1"]], "the memory 'global.vtcm'"),
        (["ReindexCacheRead", ["b0", "{}"], [0, "global.vtcm"], ["b1"]], "the memory 'global.vtcm'"),
        (["ReindexCacheRead", ["b0", "{}"], [0, "global"], ["b1"]], "an index map"),
        (["SetScope", ["b0"], [0, "x; system()"], []], "no schedule rule"),
        (["Bind", ["l1"], ["clusterIdx.x"], []], "clusterIdx.x"),
        (["Tensorize", ["l1"], ["a b", 1], []], "no schedule rule"),
        (["Split", ["l1", None, 16], [1, 1], ["l5", "l6"]], "no predicate"),
        (["StorageAlign", ["b0"], [0, 0, 1 << 30, 1], []], "the alignment"),
        (["StorageAlign", ["b0"], [0, 0, 0, 0], []], "the alignment"),
        (["TransformLayout", ["b0", "{}"], [0, 1, None, 1], []], "a map that is not proven"),
        (["TransformLayout", ["b0", "{}"], [0, 1, "{}", 0], []], "padding"),
        (["GetSBlock", [], ["a\nb", "main"], ["b0"]], "no schedule rule"),
        (["GetLoops", ["b0"], [], ["system"]], "names what it gives"),
        (["GetLoops", ["b0"], []], "is none"),
        ([["Annotate"], ["b0"], [], []], "is none"),
    ],
)
def test_what_no_rule_writes_is_refused_by_name(step: list[Any], named: str) -> None:
    with pytest.raises(TraceError) as refused:
        check_trace(trace(BLOCK, LOOPS, step))
    assert named in str(refused.value)
    with pytest.raises(TraceError):
        canonical(trace(BLOCK, LOOPS, step))


@pytest.mark.parametrize("place", [-1, 2, 10**9, "0", None, True])
def test_a_decision_is_of_a_step_that_is_there(place: Any) -> None:
    if place is True:  # JSON's true is 1 to TVM, which has such a step
        check_trace(trace(BLOCK, LOOPS, decisions=[[place, 1]]))
        return
    with pytest.raises(TraceError, match="decides step"):
        check_trace(trace(BLOCK, LOOPS, decisions=[[place, [1, 2]]]))


@pytest.mark.parametrize("text", ["[" * 200_000, "", "{}", "[[],[]", "[[],{}]", "[" * 10_000 + "]" * 10_000])
def test_what_is_no_trace_is_said(text: str) -> None:
    with pytest.raises(TraceError):
        check_trace(text)


# ── graphs ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def kernel() -> str:
    """Return a kernel with everything that is changed below, as TVM writes it."""
    import tvm
    from tvm import te

    x = te.placeholder((4, 8), "float32", "x")
    y = te.compute((4, 8), lambda i, j: te.exp(x[i, j]) + 1, "y")
    function = te.create_prim_func([x, y]).with_attr("global_symbol", "main")
    return str(tvm.ir.save_json(tvm.IRModule({"main": function})))


def node(graph: Graph, kind: str) -> Graph:
    return next(each for each in graph["nodes"] if each["type"] == kind)


def in_map(kind: str, field: str, key: str) -> Callable[[Graph], None]:
    """Put *key* into a map of the first node of a kind; its value is that of the first text."""

    def change(graph: Graph) -> None:
        nodes = graph["nodes"]
        place = nodes.index(node(graph, kind))
        at = nodes[place]["data"][field]
        text = next(i for i, each in enumerate(nodes) if each["type"] == "ffi.String")
        assert text < at
        nodes[text]["data"] = key
        nodes[at]["data"] = [text, text]

    return change


def set_field(kind: str, field: str, value: Any) -> Callable[[Graph], None]:
    return lambda graph: node(graph, kind)["data"].update({field: value})


def set_node(kind: str, **facts: str) -> Callable[[Graph], None]:
    return lambda graph: node(graph, kind).update(facts)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        *(
            (set_node("ir.Op", data=f"tirx.{op}"), op)
            for op in ("call_extern", "call_pure_extern", "call_llvm_intrin")
        ),
        (set_node("ir.Op", data="tirx.tvm_call_cpacked"), "tvm_call_cpacked"),
        (set_node("ir.Op", data="tirx.tvm_struct_set"), "tvm_struct_set"),
        (set_node("ir.Op", data="tirx.ptx_mma"), "ptx_mma"),
        (in_map("ir.DictAttrs", "__dict__", "target"), "the attribute 'target'"),
        (in_map("ir.DictAttrs", "__dict__", "calling_conv"), "calling_conv"),
        (in_map("tirx.SBlock", "annotations", "pragma_import_llvm"), "pragma_import_llvm"),
        (in_map("tirx.For", "annotations", "pragma_import_c"), "pragma_import_c"),
        (set_node("ir.PrimType", type="relax.ExternFunc"), "relax.ExternFunc"),
        (set_node("tirx.Add", type="runtime.Module"), "runtime.Module"),
        (set_field("tirx.BufferLoad", "buffer", 10**6), "the buffer of tirx.BufferLoad"),
        (set_field("tirx.BufferLoad", "buffer", 0), "the buffer of tirx.BufferLoad"),
        (set_field("tirx.For", "body", -1), "the body of tirx.For"),
        (set_field("tirx.Var", "dtype", "int99999x99999"), "dtype"),
        (set_field("ir.IntImm", "value", [1]), "value"),
        (set_field("tirx.For", "more", 1), "fields of tirx.For"),
    ],
)
def test_what_no_kernel_needs_is_refused_by_name(
    kernel: str, change: Callable[[Graph], None], named: str
) -> None:
    check_graph(kernel)
    graph = json.loads(kernel)
    change(graph)
    with pytest.raises(GraphError) as refused:
        check_graph(json.dumps(graph))
    assert named in str(refused.value)


def test_pragmas_and_functions_by_name_are_refused(kernel: str) -> None:
    nodes = json.loads(kernel)["nodes"]
    none = next(i for i, each in enumerate(nodes) if each["type"] == "None")
    body = next(i for i, each in enumerate(nodes) if each["type"] == "tirx.SBlockRealize")
    number = next(i for i, each in enumerate(nodes) if each["type"] == "ir.IntImm")
    start = [*nodes[: body + 1]]

    def attribute(key: str, value: str) -> str:
        added = [
            {"type": "ffi.String", "data": key},
            {"type": "ffi.String", "data": value},
            {"type": "tirx.StringImm", "data": {"dtype": "handle", "value": body + 2, "span": none}},
            {
                "type": "tirx.AttrStmt",
                "data": {"node": number, "attr_key": body + 1, "value": body + 3, "body": body, "span": none},
            },
        ]
        return json.dumps({"root_index": body + 4, "nodes": start + added})

    check_graph(attribute("pragma_scope", "parallel_launch_point"))
    for key, value in (
        ("pragma_import_llvm", "parallel_launch_point"),
        ("pragma_scope", "import_llvm"),
        ("pragma_scope", "import_c"),
        ("compute_scope", "system"),
        ("device_scope", "runtime.Module"),
    ):
        with pytest.raises(GraphError, match=r"the (attribute|text)"):
            check_graph(attribute(key, value))


def test_size_and_depth_are_bounded(kernel: str) -> None:
    graph = json.loads(kernel)
    nodes = graph["nodes"]
    add = nodes.index(node(graph, "tirx.Add"))
    deep = nodes[: add + 1]
    for _ in range(MOST_DEPTH):
        data = dict(nodes[add]["data"], a=len(deep) - 1)
        deep.append({"type": "tirx.Add", "data": data})
    with pytest.raises(GraphError, match="deep"):
        check_graph(json.dumps({"root_index": len(deep) - 1, "nodes": deep}))
    for text in (
        "[" * 200_000,
        "{",
        "[]",
        '{"nodes": [], "root_index": 0}',
        '{"nodes": [1], "root_index": 0}',
    ):
        with pytest.raises(GraphError):
            check_graph(text)
    with pytest.raises(GraphError, match="IRModule"):
        check_index_map(kernel)


def test_random_damage_is_refused_or_read(kernel: str) -> None:
    """Exchange any fields: the check ends with its own error, or without one."""
    generator = np.random.default_rng(7)
    text = kernel
    for _ in range(400):
        graph = json.loads(text)
        each = graph["nodes"][int(generator.integers(len(graph["nodes"])))]
        data = each.get("data")
        if isinstance(data, dict) and data:
            data[str(generator.choice(list(data)))] = int(generator.integers(-2, 2 * len(graph["nodes"])))
        elif isinstance(data, list) and data:
            data[int(generator.integers(len(data)))] = int(generator.integers(-2, 2 * len(graph["nodes"])))
        else:
            each["data"] = [None, "x", 1.5, {}][int(generator.integers(4))]
        with contextlib.suppress(GraphError):
            check_graph(json.dumps(graph))
