"""Kernels in TVM's JSON that others wrote: rules for what may be in it, and its reading by TVM.

TVM reads a graph and compiles what it says: a call of any function, a pragma that imports machine
code, options for the compiler. Its reader takes the fields of a node for what they should be, and
crashes where they are not. So what kernels consist of is listed here, and all else is refused by
name. The format: a list of nodes, each after those that it refers to by their places in the list.

``inspect/plain.json.gz`` has each kernel of a package before it was scheduled, in this form: plain loops over
plain buffers, which any machine can run. What a device's kernel computed can so be told apart from what it
should have computed (:mod:`adt.measure.layers`), without the source model.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from adt.errors import AdtError, PackageError, last_line
from adt.host.contained import read_contained
from adt.host.isolated import isolated
from adt.package.files import INSPECT
from adt.package.package import ModelPackage

MOST_BYTES = 64 << 20
MOST_NODES = 2_000_000
MOST_DEPTH = 1_500
"""Nodes from the root to the farthest leaf: TVM's passes are recursive, and a stack has 8 MiB."""
MOST_NAME = 1_000  # characters of a name


class GraphError(Exception):
    """A graph may not be read; the text says what is in the way."""


def _kinds(prefix: str, names: str) -> frozenset[str]:
    return frozenset(prefix + name for name in names.split())


_BINARY = _kinds("tirx.", "Add Sub Mul Div Mod FloorDiv FloorMod Min Max EQ NE LT LE GT GE And Or")
_EXPRESSIONS = (
    _BINARY
    | _kinds("tirx.", "Var SizeVar Not Cast Select BufferLoad Ramp Broadcast Let Call StringImm")
    | _kinds("ir.", "IntImm FloatImm")
)
_KINDS = {
    "attributes": _kinds("ir.", "DictAttrs"),
    "block": _kinds("tirx.", "SBlock"),
    "buffer": _kinds("tirx.", "Buffer"),
    "expression": _EXPRESSIONS,
    "index_map": _kinds("tirx.", "IndexMap"),
    "iterator": _kinds("tirx.", "IterVar"),
    "list": _kinds("ffi.", "Array"),
    "map": _kinds("ffi.", "Map"),
    "none": frozenset({"None"}),
    "operator": _kinds("ir.", "Op"),
    "range": _kinds("ir.", "Range"),
    "scalar": frozenset(),
    "shape": _kinds("relax.expr.", "ShapeExpr"),
    "source_map": _kinds("ir.", "SourceMap"),
    "statement": _kinds(
        "tirx.",
        "For While SBlockRealize BufferStore SeqStmt IfThenElse Bind AttrStmt Evaluate AllocBuffer "
        "DeclBuffer",
    ),
    "struct_info": _kinds(
        "relax.", "ShapeStructInfo TensorStructInfo TupleStructInfo FuncStructInfo PrimStructInfo"
    ),
    "subject": _EXPRESSIONS | _kinds("tirx.", "IterVar") | {"int"},
    "text": _kinds("ffi.", "String"),
    "type": _kinds("ir.", "PrimType PointerType TupleType"),
    "variable": _kinds("tirx.", "Var SizeVar"),
}
"""Types of the nodes that a field may refer to. A scalar (a number, a text, true or false) is in the field
itself."""
_SCALAR = _KINDS["scalar"]


def _nodes(table: str) -> dict[str, dict[str, frozenset[str]]]:
    """Parse the fields of nodes in *table*: ``name`` of a scalar, ``name:kind``, with ``?`` or None."""
    nodes: dict[str, dict[str, frozenset[str]]] = {}
    for line in table.strip().splitlines():
        node, *fields = line.split()
        nodes[node] = {}
        for field in fields:
            name, _, kind = field.partition(":")
            types = _KINDS[kind.removesuffix("?") or "scalar"]
            nodes[node][name] = types | _KINDS["none"] if kind.endswith("?") else types
    return nodes


NODES: Mapping[str, Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(sorted(_BINARY), _nodes("binary dtype a:expression b:expression")["binary"]),
    **_nodes("""
        tirx.Var dtype name:text type_annotation:type
        tirx.SizeVar dtype name:text type_annotation:type
        tirx.Not dtype a:expression
        tirx.Cast dtype value:expression
        tirx.Select dtype condition:expression true_value:expression false_value:expression
        tirx.BufferLoad dtype buffer:buffer indices:list predicate:expression?
        tirx.Ramp dtype base:expression stride:expression lanes:expression
        tirx.Broadcast dtype value:expression lanes:expression
        tirx.Let dtype var:variable value:expression body:expression
        tirx.Call dtype op:operator args:list attrs:none
        tirx.StringImm dtype value:text
        ir.IntImm dtype value
        ir.FloatImm dtype value
        tirx.For loop_var:variable min:expression extent:expression kind body:statement \
            thread_binding:iterator? annotations:map step:expression?
        tirx.While condition:expression body:statement
        tirx.SBlockRealize iter_values:list predicate:expression block:block
        tirx.SBlock iter_vars:list reads:list writes:list name_hint:text alloc_buffers:list \
            match_buffers:list annotations:map init:statement? body:statement
        tirx.BufferStore buffer:buffer value:expression indices:list predicate:expression?
        tirx.SeqStmt seq:list
        tirx.IfThenElse condition:expression then_case:statement else_case:statement?
        tirx.Bind var:variable value:expression
        tirx.AttrStmt node:subject? attr_key:text value:expression body:statement
        tirx.Evaluate value:expression
        tirx.AllocBuffer buffer:buffer annotations:map
        tirx.DeclBuffer buffer:buffer
        tirx.Buffer data:variable dtype shape:list strides:list axis_separators:list \
            elem_offset:expression? name:text data_alignment offset_factor buffer_type layout:none \
            allocated_addr:list
        tirx.BufferRegion buffer:buffer region:list
        tirx.IterVar dom:range? var:variable iter_type thread_tag:text
        ir.Range min:expression extent:expression
        ir.PrimType dtype
        ir.PointerType element_type:type storage_scope:text
        ir.TupleType fields:list
        ir.DictAttrs __dict__:map
        tirx.PrimFunc struct_info_:struct_info? attrs:attributes? params:list ret_type:type \
            buffer_map:map body:statement
        tirx.IndexMap initial_indices:list final_indices:list inverse_index_map:index_map?
        ir.IRModule functions:map global_var_map_:map source_map:source_map? attrs:attributes? \
            global_infos:map
        ir.SourceMap source_map:map
        ir.GlobalVar struct_info_:struct_info? name_hint:text
        relax.ShapeStructInfo values:list? ndim
        relax.TensorStructInfo shape:shape? vdevice:none dtype ndim
        relax.TupleStructInfo fields:list
        relax.FuncStructInfo params:list? ret:struct_info derive_func:none purity
        relax.PrimStructInfo value:expression? dtype
        relax.expr.ShapeExpr struct_info_:struct_info? values:list
"""),
}
"""The nodes that a kernel is made of, with the types that each field may be."""

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
    "", "s_tir op_pattern estimated_flops global_symbol layout_free_buffers adt.schedule adt.recurrence"
) | (_kinds("tirx.", "noalias is_scheduled is_entry_func"))
ANNOTATIONS = _kinds("", "schedule_rule axis layout_free_placeholders workload")
"""Annotations of loops and blocks, before they are scheduled."""
STATEMENT_ATTRIBUTES = _kinds("", "pragma_scope thread_extent storage_alignment")
TEXTS = _kinds("parallel_", "launch_point stride_pattern barrier_when_finish") | (
    _kinds("tvm.contrib.sort.", "argsort argsort_nms sort topk") | _kinds("", "shared warp")
)
"""Texts within code: how a loop is spread over threads, the runtime's functions, what a barrier waits for."""

_NAMES = {
    "tirx.AttrStmt": ("attribute", "attr_key", STATEMENT_ATTRIBUTES),
    "tirx.StringImm": ("text", "value", TEXTS),
    **dict.fromkeys(
        ("tirx.For", "tirx.SBlock", "tirx.AllocBuffer"), ("annotation", "annotations", ANNOTATIONS)
    ),
    "ir.DictAttrs": ("attribute", "__dict__", FUNCTION_ATTRIBUTES),
}
"""Nodes with names that mean more than others: what such a name is, the field that holds it or a map by it,
and the names that are allowed."""
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
        if not isinstance(graph, dict):
            graph = {}
        nodes, root = graph.get("nodes"), graph.get("root_index")
        if not (isinstance(nodes, list) and _is_place(root, len(nodes))):
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
        """Check *node*; return the places that it refers to, each before its own."""
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
            kinds = _KINDS["none"] if name == "span" else fields[name]
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
        if kind not in _NAMES:
            return
        what, field, allowed = _NAMES[kind]
        node = self.nodes[data[field]]
        keys = node["data"][::2] if node["type"] == "ffi.Map" else [data[field]]
        for named in map(self.nodes.__getitem__, keys):
            name = str(named["data"]) if named["type"] == "ffi.String" else f"({named['type']})"
            if name not in allowed:
                raise GraphError(f"the {what} {name[:80]!r}")


def _is_place(value: Any, end: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end


def check_graph(text: str) -> None:
    """Check that TVM's JSON *text* holds kernels, and nothing that a kernel does not need."""
    _Graph(text)


def check_index_map(text: str) -> None:
    """Check *text* like :func:`check_graph`, as the index map of a schedule's step."""
    graph = _Graph(text)
    if graph.nodes[graph.root]["type"] != "tirx.IndexMap":
        raise GraphError(f"a {graph.nodes[graph.root]['type']}")


TIMEOUT = 120.0  # seconds for all graphs of one reading, TVM's import among them
MOST_CRASHES = 5  # graphs that may end the process before all others of the reading are refused, too


def read_graphs(texts: Sequence[str]) -> list[Any]:
    """Return what TVM reads from each of *texts*, its JSON; in the place of what is refused, a GraphError."""
    import tvm

    graphs: list[Any] = []
    crashes, spent = 0, 0.0
    for text in texts:
        try:
            check_graph(text)
            if crashes == MOST_CRASHES or spent > TIMEOUT:
                raise GraphError("others beside it end TVM")
            began = time.monotonic()
            try:
                reason = refusal(text)
            finally:
                spent += time.monotonic() - began
            graphs.append(GraphError(reason) if reason else tvm.ir.load_json(text))
        except GraphError as error:
            graphs.append(error)
        except AdtError as error:
            crashes += 1
            graphs.append(GraphError(error.what))
    return graphs


@isolated("TVM's reading of it", TIMEOUT, process="graphs")
def refusal(text: str) -> str:
    """Return why TVM does not read *text*, the JSON of a graph; empty where it does."""
    import tvm
    import tvm.tirx.analysis
    import tvm_ffi

    try:
        graph = tvm.ir.load_json(text)
        tvm_ffi.structural_hash(graph)
        tvm.tirx.analysis.verify_well_formed(graph)
    except Exception as error:  # whatever TVM's reader raises
        return last_line(error)
    return ""


PLAIN = "plain.json.gz"


def collect_kernels(into: dict[str, Any]) -> Any:
    """Make a pass that puts the kernels of the module at its place in *into*, by name."""
    import tvm

    @tvm.transform.module_pass(opt_level=0, name="adt.KeepPlain")  # type: ignore[untyped-decorator]
    def keep(module: Any, _context: Any) -> Any:
        into.update(kernels_of(module))
        return module

    return keep


def kernels_of(module: Any) -> dict[str, Any]:
    """Return the kernels of *module*, by name."""
    import tvm

    return {
        str(variable.name_hint): function
        for variable, function in module.functions_items()
        if isinstance(function, tvm.tirx.PrimFunc)
    }


def compress(functions: Mapping[str, Any]) -> bytes:
    """Write the file's bytes: the same for the same kernels."""
    import tvm

    text = str(tvm.ir.save_json(tvm.runtime.convert(dict(sorted(functions.items())))))
    return gzip.compress(text.encode(), 6, mtime=0)


def reference_file(package: ModelPackage) -> Path:
    """Check the file of *package* with its kernels before they were scheduled, and return its path."""
    name = f"{INSPECT}/{PLAIN}"
    path, facts = package.path / name, package.manifest.inspection.get(name)
    remedy = f"Compile it again: {package.manifest.compile_command()}"
    if facts is None or not os.path.lexists(path):
        raise PackageError(
            f"the package {package.place} has no {name}: it was left out, or an older adt made the package",
            remedy=remedy,
        )
    data = read_contained(package.path, name, MOST_BYTES)
    if hashlib.sha256(data).hexdigest() != facts.sha256:
        raise PackageError(f"{path} is not the file that mod.json describes", remedy=remedy)
    try:
        check_graph(decompress(data))
    except GraphError as error:
        raise PackageError(f"{path} cannot be read: {error}", remedy=remedy) from error
    return path


def decompress(data: bytes) -> str:
    """Decompress *data* of :func:`compress` to its JSON."""
    try:
        return zlib.decompressobj(wbits=31).decompress(data, MOST_BYTES).decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise GraphError(f"no compressed text: {error}") from error


def read_kernels(data: bytes) -> dict[str, Any]:
    """Read the kernels that :func:`compress` made *data* of, by name; TVM trusts what it reads here."""
    import tvm

    return {str(name): function for name, function in tvm.ir.load_json(decompress(data)).items()}
