"""What may be in TVM's JSON of kernels: arithmetic, loops and buffers, each node with fields of its kind.

TVM reads a graph and compiles what it says: a call of any function, a pragma that imports machine
code, options for the compiler. Its reader takes the fields of a node for what they should be, and
crashes where they are not. So what kernels consist of is listed here, and all else is refused by
name. The format: a list of nodes, each after those that it refers to by their places in the list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

MOST_BYTES = 64 << 20
MOST_NODES = 2_000_000
MOST_DEPTH = 1_500
"""Nodes from the root to the farthest leaf: TVM's passes are recursive, and a stack has 8 MiB."""
MOST_NAME = 1_000
"""Characters of a name."""


class GraphError(Exception):
    """A graph may not be read; the text says what is in the way."""


def _kinds(prefix: str, names: str) -> frozenset[str]:
    return frozenset(prefix + name for name in names.split())


_BINARY = _kinds("tirx.", "Add Sub Mul Div Mod FloorDiv FloorMod Min Max EQ NE LT LE GT GE And Or")
EXPRESSIONS = (
    _BINARY
    | _kinds("tirx.", "Var SizeVar Not Cast Select BufferLoad Ramp Broadcast Let Call StringImm")
    | _kinds("ir.", "IntImm FloatImm")
)
STATEMENTS = _kinds(
    "tirx.",
    "For While SBlockRealize BufferStore SeqStmt IfThenElse Bind AttrStmt Evaluate AllocBuffer DeclBuffer",
)
_NOTHING = frozenset({"None"})
_TEXT, _LIST, _MAP = _kinds("ffi.", "String"), _kinds("ffi.", "Array"), _kinds("ffi.", "Map")
_VARIABLE, _BUFFER, _BLOCK = (
    _kinds("tirx.", "Var SizeVar"),
    _kinds("tirx.", "Buffer"),
    _kinds("tirx.", "SBlock"),
)
_ITERATOR, _RANGE, _ATTRIBUTES = (
    _kinds("tirx.", "IterVar"),
    _kinds("ir.", "Range"),
    _kinds("ir.", "DictAttrs"),
)
_TYPES = _kinds("ir.", "PrimType PointerType TupleType")
_SHAPES = _kinds("relax.", "ShapeStructInfo TensorStructInfo TupleStructInfo FuncStructInfo PrimStructInfo")
_SCALAR: frozenset[str] = frozenset()
"""A field that holds its value itself: a number, a text, true or false."""

_BOTH = {"dtype": _SCALAR, "a": EXPRESSIONS, "b": EXPRESSIONS}
NODES: Mapping[str, Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(sorted(_BINARY), _BOTH),
    "tirx.Var": {"dtype": _SCALAR, "name": _TEXT, "type_annotation": _TYPES},
    "tirx.SizeVar": {"dtype": _SCALAR, "name": _TEXT, "type_annotation": _TYPES},
    "tirx.Not": {"dtype": _SCALAR, "a": EXPRESSIONS},
    "tirx.Cast": {"dtype": _SCALAR, "value": EXPRESSIONS},
    "tirx.Select": {
        "dtype": _SCALAR,
        "condition": EXPRESSIONS,
        "true_value": EXPRESSIONS,
        "false_value": EXPRESSIONS,
    },
    "tirx.BufferLoad": {
        "dtype": _SCALAR,
        "buffer": _BUFFER,
        "indices": _LIST,
        "predicate": EXPRESSIONS | _NOTHING,
    },
    "tirx.Ramp": {"dtype": _SCALAR, "base": EXPRESSIONS, "stride": EXPRESSIONS, "lanes": EXPRESSIONS},
    "tirx.Broadcast": {"dtype": _SCALAR, "value": EXPRESSIONS, "lanes": EXPRESSIONS},
    "tirx.Let": {"dtype": _SCALAR, "var": _VARIABLE, "value": EXPRESSIONS, "body": EXPRESSIONS},
    "tirx.Call": {"dtype": _SCALAR, "op": frozenset({"ir.Op"}), "args": _LIST, "attrs": _NOTHING},
    "tirx.StringImm": {"dtype": _SCALAR, "value": _TEXT},
    "ir.IntImm": {"dtype": _SCALAR, "value": _SCALAR},
    "ir.FloatImm": {"dtype": _SCALAR, "value": _SCALAR},
    "tirx.For": {
        "loop_var": _VARIABLE,
        "min": EXPRESSIONS,
        "extent": EXPRESSIONS,
        "kind": _SCALAR,
        "body": STATEMENTS,
        "thread_binding": _ITERATOR | _NOTHING,
        "annotations": _MAP,
        "step": EXPRESSIONS | _NOTHING,
    },
    "tirx.While": {"condition": EXPRESSIONS, "body": STATEMENTS},
    "tirx.SBlockRealize": {"iter_values": _LIST, "predicate": EXPRESSIONS, "block": _BLOCK},
    "tirx.SBlock": {
        "iter_vars": _LIST,
        "reads": _LIST,
        "writes": _LIST,
        "name_hint": _TEXT,
        "alloc_buffers": _LIST,
        "match_buffers": _LIST,
        "annotations": _MAP,
        "init": STATEMENTS | _NOTHING,
        "body": STATEMENTS,
    },
    "tirx.BufferStore": {
        "buffer": _BUFFER,
        "value": EXPRESSIONS,
        "indices": _LIST,
        "predicate": EXPRESSIONS | _NOTHING,
    },
    "tirx.SeqStmt": {"seq": _LIST},
    "tirx.IfThenElse": {
        "condition": EXPRESSIONS,
        "then_case": STATEMENTS,
        "else_case": STATEMENTS | _NOTHING,
    },
    "tirx.Bind": {"var": _VARIABLE, "value": EXPRESSIONS},
    "tirx.AttrStmt": {
        "node": EXPRESSIONS | _ITERATOR | _NOTHING | frozenset({"int"}),
        "attr_key": _TEXT,
        "value": EXPRESSIONS,
        "body": STATEMENTS,
    },
    "tirx.Evaluate": {"value": EXPRESSIONS},
    "tirx.AllocBuffer": {"buffer": _BUFFER, "annotations": _MAP},
    "tirx.DeclBuffer": {"buffer": _BUFFER},
    "tirx.Buffer": {
        "data": _VARIABLE,
        "dtype": _SCALAR,
        "shape": _LIST,
        "strides": _LIST,
        "axis_separators": _LIST,
        "elem_offset": EXPRESSIONS | _NOTHING,
        "name": _TEXT,
        "data_alignment": _SCALAR,
        "offset_factor": _SCALAR,
        "buffer_type": _SCALAR,
        "layout": _NOTHING,
        "allocated_addr": _LIST,
    },
    "tirx.BufferRegion": {"buffer": _BUFFER, "region": _LIST},
    "tirx.IterVar": {
        "dom": _RANGE | _NOTHING,
        "var": _VARIABLE,
        "iter_type": _SCALAR,
        "thread_tag": _TEXT,
    },
    "ir.Range": {"min": EXPRESSIONS, "extent": EXPRESSIONS},
    "ir.PrimType": {"dtype": _SCALAR},
    "ir.PointerType": {"element_type": _TYPES, "storage_scope": _TEXT},
    "ir.TupleType": {"fields": _LIST},
    "ir.DictAttrs": {"__dict__": _MAP},
    "tirx.PrimFunc": {
        "struct_info_": _SHAPES | _NOTHING,
        "attrs": _ATTRIBUTES | _NOTHING,
        "params": _LIST,
        "ret_type": _TYPES,
        "buffer_map": _MAP,
        "body": STATEMENTS,
    },
    "tirx.IndexMap": {
        "initial_indices": _LIST,
        "final_indices": _LIST,
        "inverse_index_map": frozenset({"tirx.IndexMap"}) | _NOTHING,
    },
    "ir.IRModule": {
        "functions": _MAP,
        "global_var_map_": _MAP,
        "source_map": frozenset({"ir.SourceMap"}) | _NOTHING,
        "attrs": _ATTRIBUTES | _NOTHING,
        "global_infos": _MAP,
    },
    "ir.SourceMap": {"source_map": _MAP},
    "ir.GlobalVar": {"struct_info_": _SHAPES | _NOTHING, "name_hint": _TEXT},
    "relax.ShapeStructInfo": {"values": _LIST | _NOTHING, "ndim": _SCALAR},
    "relax.TensorStructInfo": {
        "shape": frozenset({"relax.expr.ShapeExpr"}) | _NOTHING,
        "vdevice": _NOTHING,
        "dtype": _SCALAR,
        "ndim": _SCALAR,
    },
    "relax.TupleStructInfo": {"fields": _LIST},
    "relax.FuncStructInfo": {
        "params": _LIST | _NOTHING,
        "ret": _SHAPES,
        "derive_func": _NOTHING,
        "purity": _SCALAR,
    },
    "relax.PrimStructInfo": {"value": EXPRESSIONS | _NOTHING, "dtype": _SCALAR},
    "relax.expr.ShapeExpr": {"struct_info_": _SHAPES | _NOTHING, "values": _LIST},
}
"""The nodes that a kernel is made of, with the kinds that each field may be."""

OPERATORS = _kinds(
    "tirx.",
    "abs acos acosh asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil clz "
    "copysign cos cosh erf exp exp10 exp2 fabs floor fma fmod hypot if_then_else isfinite isinf isnan ldexp "
    "likely log log10 log1p log2 nearbyint nextafter popcount pow q_multiply_shift reinterpret round rsqrt "
    "shift_left shift_right sigmoid sin sinh sqrt tan tanh trunc tvm_call_packed tvm_stack_make_array "
    "tvm_stack_make_shape tvm_storage_sync",
)
"""Functions that compute a number; and what sorting is called by, with a name out of :data:`TEXTS`."""
FUNCTION_ATTRIBUTES = _kinds(
    "", "s_tir op_pattern estimated_flops global_symbol layout_free_buffers adt.schedule"
) | (_kinds("tirx.", "noalias is_scheduled is_entry_func"))
ANNOTATIONS = _kinds("", "schedule_rule axis layout_free_placeholders workload")
"""Of loops and blocks, before they are scheduled."""
STATEMENT_ATTRIBUTES = _kinds("", "pragma_scope thread_extent storage_alignment")
TEXTS = _kinds("parallel_", "launch_point stride_pattern barrier_when_finish") | (
    _kinds("tvm.contrib.sort.", "argsort argsort_nms sort topk") | _kinds("", "shared warp")
)
"""Texts within code: how a loop is spread over threads, the runtime's functions, what a barrier waits for."""

_DTYPE = re.compile(r"((int|uint|float|bfloat|bool)\d{0,3}(x\d{1,4})?|float8_\w{1,12}|handle|void|)")


class _Graph:
    """The nodes of a graph, each looked at once."""

    def __init__(self, text: str) -> None:
        if len(text) > MOST_BYTES:
            raise GraphError(f"{len(text)} characters, over {MOST_BYTES}")
        try:
            graph = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise GraphError(f"no JSON: {error}") from None
        nodes = graph.get("nodes") if isinstance(graph, dict) else None
        root = graph.get("root_index") if isinstance(graph, dict) else None
        if not (isinstance(nodes, list) and isinstance(root, int) and _is_place(root, len(nodes))):
            raise GraphError("no graph of TVM's")
        if len(nodes) > MOST_NODES:
            raise GraphError(f"{len(nodes)} nodes, over {MOST_NODES}")
        self.nodes = nodes
        self.root = root
        self._depths: list[int] = []
        for place, node in enumerate(nodes):
            self._depths.append(1 + max(map(self._depths.__getitem__, self._look(place, node)), default=0))
        if self._depths[root] > MOST_DEPTH:
            raise GraphError(f"nodes nested {self._depths[root]} deep, over {MOST_DEPTH}")

    def _look(self, place: int, node: Any) -> list[int]:
        """The places that *node* refers to, each before its own."""
        kind = node.get("type") if isinstance(node, dict) else None
        if not isinstance(kind, str):
            raise GraphError(f"node {place} has no type")
        data = node.get("data")
        if kind in ("None", "int", "float", "bool"):
            if isinstance(data, list | dict):
                raise GraphError(f"node {place} is no {kind}")
            return []
        if kind in ("ffi.String", "ir.Op"):
            if not isinstance(data, str) or len(data) > MOST_NAME:
                raise GraphError(f"node {place} is no text")
            if kind == "ir.Op" and data not in OPERATORS:
                raise GraphError(f"a call of {data!r}")
            return []
        if kind in ("ffi.Array", "ffi.Map"):
            if not isinstance(data, list) or not all(_is_place(item, place) for item in data):
                raise GraphError(f"node {place} is no {kind}")
            if kind == "ffi.Map" and len(data) % 2:
                raise GraphError(f"node {place} has a key without a value")
            return data
        fields = NODES.get(kind)
        if fields is None:
            raise GraphError(f"a node of type {kind!r}")
        if not isinstance(data, dict) or data.keys() - {"span"} != fields.keys():
            raise GraphError(f"node {place} has not the fields of {kind}")
        places = list(self._fields(place, kind, data, fields))
        self._special(kind, data)
        return places

    def _fields(
        self, place: int, kind: str, data: dict[str, Any], fields: Mapping[str, frozenset[str]]
    ) -> Iterator[int]:
        for name, value in data.items():
            kinds = _NOTHING if name == "span" else fields[name]
            if kinds is _SCALAR:
                scalar = isinstance(value, int | float | str)
                if not scalar or (
                    name == "dtype" and not (isinstance(value, str) and _DTYPE.fullmatch(value))
                ):
                    raise GraphError(f"the {name} {str(value)[:40]!r} of {kind}")
                continue
            if not _is_place(value, place) or self.nodes[value]["type"] not in kinds:
                what = self.nodes[value]["type"] if _is_place(value, place) else value
                raise GraphError(f"the {name} of {kind}, which is {str(what)[:40]!r}")
            yield value

    def _special(self, kind: str, data: dict[str, Any]) -> None:
        """Refuse names that mean more than others."""
        if kind == "tirx.AttrStmt":
            self._among("attribute", self._text(data["attr_key"]), STATEMENT_ATTRIBUTES)
        elif kind == "tirx.StringImm":
            self._among("text", self._text(data["value"]), TEXTS)
        elif kind in ("tirx.For", "tirx.SBlock", "tirx.AllocBuffer"):
            for key in self._keys(data["annotations"]):
                self._among("annotation", key, ANNOTATIONS)
        elif kind == "ir.DictAttrs":
            for key in self._keys(data["__dict__"]):
                self._among("attribute", key, FUNCTION_ATTRIBUTES)

    def _keys(self, place: int) -> list[str]:
        return [self._text(key) for key in self.nodes[place]["data"][::2]]

    def _text(self, place: int) -> str:
        node = self.nodes[place]
        return str(node["data"]) if node["type"] == "ffi.String" else f"({node['type']})"

    @staticmethod
    def _among(what: str, name: str, allowed: frozenset[str]) -> None:
        if name not in allowed:
            raise GraphError(f"the {what} {name[:80]!r}")


def _is_place(value: Any, end: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end


def check_graph(text: str) -> None:
    """Check that TVM's JSON *text* holds kernels, and nothing that a kernel does not need.

    Raises:
        GraphError: what it holds besides, by name; or it is no graph, or too large or too deep.
    """
    _Graph(text)


def check_index_map(text: str) -> None:
    """The same for an index map of a schedule's step.

    Raises:
        GraphError: as above, or it is another thing than an index map.
    """
    graph = _Graph(text)
    if graph.nodes[graph.root]["type"] != "tirx.IndexMap":
        raise GraphError(f"a {graph.nodes[graph.root]['type']}")
