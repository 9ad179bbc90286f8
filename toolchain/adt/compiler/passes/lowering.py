"""Passes over TIR on its way to TVM's code generators, so that the code is right on the device.

Alignment. The TVM wheel is built for 64-byte aligned tensors, and code it generates tells LLVM to assume so
of every argument; nothing checks it. A runtime built with TVM_KALLOC_ALIGNMENT=32 (what phones use) gives 32,
so that such a module may fault now and then, with the allocator's mood (seen with wide x86-64 vector moves).
The assumption sits in every TIR buffer's ``data_alignment``.

Names. Arguments of a GPU's kernels are called as tensors are in the model; names such
as ``encoder/dense:0`` are no identifiers, and the driver then refuses the source. CUDA C++
has hundreds of names of its own (``exp``, ``float4``), of which none ends with ``_``.

Source. A package holds the sources of all kernels for OpenCL, and a driver compiles each. Half of such a text
are declarations of the model's other kernels, calls that tell where a work-item is, and lanes of constants.

Images. TVM's OpenCL code generator takes every store to an image for that of a whole texel,
and an image that is both read and written for one that is read. Neither is an error
there; both give wrong numbers. Here they are errors.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import numpy as np
import tvm
import tvm.s_tir.pipeline
import tvm_ffi
from tvm import tirx
from tvm.s_tir.backend.adreno.transform import TextureFlatten
from tvm.tirx.compilation_pipeline import PIPELINE_MAP
from tvm_ffi.serialization import from_json_graph_str

from adt.compiler.ir.nodes import is_call, tir_nodes
from adt.compiler.ir.passes import kernel_pass, module_pass
from adt.compiler.passes.extrema import extrema_keep_nan
from adt.compiler.passes.words import combine_words, with_words
from adt.package.reports import LANES

IMPORTS = ("pragma_import_llvm", "pragma_import_c", "import_llvm", "import_c")
"""Attributes, and values of ``pragma_scope``, by which TVM compiles a text, machine code included, into a
kernel: no schedule may bring one."""


def tir_pipeline(alignment: int, *, textures: bool = False, buffers: bool = False) -> str:
    """Register TVM's default TIR pipeline for buffers aligned to *alignment* bytes; return its name.

    With *textures*, some arguments of kernels are images; with *buffers*, kernels are a GPU's without images.
    """
    tvm_ffi.register_global_func(REGISTERED, lambda source, _target: finished(source), override=True)
    name = f"adt_align{alignment}" + "_textures" * textures + "_buffers" * buffers

    @module_pass("adt.PrepareLowering")
    def prepare(module: tvm.IRModule) -> tvm.IRModule:
        # PrimFuncs offer no way to replace a buffer everywhere that accepts another
        # alignment (`specialize` insists on an equal one); the graph's JSON does.
        graph = json.loads(tvm.ir.save_json(module))
        target = tvm.target.Target.current(allow_none=True)
        ending = "_" if target is not None and target.kind.name == "cuda" else ""
        nodes = graph["nodes"]
        places: dict[str, int] = {}  # of names, which other nodes may share where they stand
        for node in nodes:
            kind = node.get("type")
            if kind == "ffi.String" and node["data"] in IMPORTS:
                raise RuntimeError(
                    f"a kernel has {node['data']}, by which a text becomes code of mod.so; no schedule rule "
                    "writes it (adt db verify DB finds the record that brought it)"
                )
            if kind == "tirx.Buffer":
                node["data"]["data_alignment"] = min(node["data"]["data_alignment"], alignment)
            if kind == "tirx.Buffer" or (kind == "tirx.Var" and node["data"]["dtype"] == "handle"):
                name = nodes[node["data"]["name"]]["data"]
                if (clean := identifier(name) + ending) != name:
                    node["data"]["name"] = places.setdefault(clean, len(nodes) + len(places))
        nodes += [{"type": "ffi.String", "data": name} for name in places]
        # TVM's load_json would read and write the text in Python once more.
        return from_json_graph_str(json.dumps(graph))

    def make() -> tuple[tvm.transform.Pass, Any, Any]:
        lower, finalize_host, finalize_device = PIPELINE_MAP["s_tir"]()
        passes = [texture_lowering(), check_images()] if textures else [lower]
        vectors = [vector_pointers(), vector_indices()] if buffers else []
        if textures or buffers:
            # Indices are what kernels have in common, and are shorter once buffers are of vectors.
            lowering = without_common_expressions(tvm.transform.Sequential(passes))
            passes, vectors = [combine_words(), prepare(), lowering], [*vectors, common_expressions()]
        else:
            passes = [extrema_keep_nan(), prepare(), *passes, limits_keep_nan(), hyperbolic()]

        def finalize() -> tvm.transform.Pass:
            return tvm.transform.Sequential([finalize_device(), *vectors, exact_numbers()])

        return tvm.transform.Sequential(passes), finalize_host, finalize

    PIPELINE_MAP[name] = make
    return name


RESERVED = ("constant", "generic", "global", "half", "kernel", "local", "pipe", "private")
"""Words of OpenCL C that TVM's code generator takes for names."""

_HOW = re.compile(r"(?<=[a-z0-9])(?:_(?:blocks|intermediate|local|shared))+(?=_|$)")
"""Suffixes that schedules add to names of tensors: kernels that repeat these are shorter without."""


def identifier(name: str) -> str:
    """Turn *name* into an identifier of OpenCL C; the code generator keeps equal ones apart."""
    clean = re.sub(r"[^A-Za-z0-9_]", "_", name)
    if (short := _HOW.sub("", clean)) != clean:
        clean = f"{short}_"  # no name of OpenCL's, as max is
    return clean if re.match(r"[A-Za-z_]", clean) and clean not in RESERVED else f"v_{clean}"


def without_common_expressions(passes: tvm.transform.Pass) -> tvm.transform.Pass:
    """Wrap *passes* so that TVM does not look for what expressions have in common."""

    @module_pass("adt.WithoutCommonExpressions")
    def run(module: tvm.IRModule) -> tvm.IRModule:
        context = tvm.transform.PassContext.current()
        config = {**context.config, "tirx.disable_cse_tir": True}
        with tvm.transform.PassContext(opt_level=context.opt_level, config=config):
            return passes(module)

    return run()


@module_pass("adt.CommonExpressions")
def common_expressions(module: tvm.IRModule) -> tvm.IRModule:
    """Compute once what expressions of a GPU's kernel have in common.

    Not in a kernel that names a vector by its first number: behind a variable TVM's code generator does not
    see that this is a multiple of the lanes, and takes the numbers one by one, those of 8 bits wrongly.
    """
    kernels = {
        name: function
        for name, function in module.functions_items()
        if not tir_nodes(function.body, tirx.Ramp)
    }
    shared = tirx.transform.CommonSubexprElim()(tvm.IRModule(kernels, attrs=module.attrs))
    functions = {**dict(module.functions_items()), **dict(shared.functions_items())}
    return tvm.IRModule(functions, attrs=module.attrs, global_infos=module.global_infos)


def texture_lowering() -> tvm.transform.Pass:
    """Return TVM's lowering of TIR, for kernels some of whose arguments are images."""
    lower, _, _ = PIPELINE_MAP["s_tir"]()
    return tvm.transform.Sequential([TextureFlatten(), lower])


@module_pass("adt.VectorPointers")
def vector_pointers(module: tvm.IRModule) -> tvm.IRModule:
    """Make buffers of a GPU that are accessed in aligned vectors alone buffers of vectors.

    ``vload4`` promises the alignment of one float only, so that a compiler may load the four one by one. A
    kernel of which TVM's pass cannot make that (some read one number of a vector for all lanes) stays.
    """
    result = tvm.IRModule(dict(module.functions_items()), module.attrs, module.global_infos)
    for variable, function in module.functions_items():
        alone = tvm.IRModule({variable: function}, module.attrs)
        with contextlib.suppress(tvm.error.InternalError):
            result.update_func(variable, tirx.transform.PointerValueTypeRewrite()(alone)[variable])
    return result


@kernel_pass("adt.VectorIndices")
def vector_indices(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Divide the indices of such buffers term by term, where no rest is left."""
    analyzer = tvm.arith.Analyzer()

    def exact(node: tirx.Div) -> tirx.PrimExpr:
        if not node.dtype.startswith("int"):
            return node
        quotient = analyzer.simplify(_quotient(node.a, node.b, analyzer))
        # The code generator knows no FloorDiv.
        return node if tir_nodes(quotient, tirx.FloorDiv) else quotient

    return function.with_body(tirx.stmt_functor.ir_transform(function.body, None, exact, ["tirx.Div"]))


def _quotient(value: tirx.PrimExpr, divisor: tirx.PrimExpr, analyzer: tvm.arith.Analyzer) -> tirx.PrimExpr:
    """Divide *value*, term by term where possible; a FloorDiv where *divisor* may leave a rest."""

    def is_multiple(part: tirx.PrimExpr) -> bool:
        return bool(analyzer.can_prove_equal(tirx.floormod(part, divisor), 0))

    if isinstance(value, tirx.Add | tirx.Min) and is_multiple(value.a) and is_multiple(value.b):
        return type(value)(*(_quotient(part, divisor, analyzer) for part in (value.a, value.b)))
    quotient = tirx.floordiv(value, divisor)
    return analyzer.simplify(quotient) if is_multiple(value) else quotient


@kernel_pass("adt.ExactNumbers")
def exact_numbers(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Write constants of OpenCL with more digits than TVM's seven as their bits."""

    def exact(node: tirx.PrimExpr) -> tirx.PrimExpr:
        number = np.float32(node.value)
        if node.dtype != "float32" or not np.isfinite(number) or np.float32(f"{number:e}") == number:
            return node
        return tirx.call_pure_extern("float32", "as_float", tirx.const(int(number.view(np.int32)), "int32"))

    if function.attrs["target"].kind.name != "opencl":
        return function
    return function.with_body(tirx.stmt_functor.ir_transform(function.body, None, exact, ["ir.FloatImm"]))


@kernel_pass("adt.LimitsKeepNan")
def limits_keep_nan(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Let NaN pass a maximum or minimum of floats (Relu, Clip, Max), or of all terms, on a CPU.

    Those of all terms are of :mod:`adt.compiler.passes.extrema`. It is one instruction where the CPU has it.

    TVM's code for LLVM chooses the second operand where one is NaN. x86 has an instruction for just that, so
    that a constant comes first, and the first of two numbers is asked for NaN; not in reductions, which would
    take three times as long. AArch64 has one instruction for each intrinsic. Elsewhere nothing changes.
    """
    intrinsics = {tirx.Max: "llvm.maximum", tirx.Min: "llvm.minimum"}
    triple = str(function.attrs["target"].attrs.get("mtriple", ""))
    by_intrinsic = triple.startswith(("aarch64", "arm64"))
    reduced = [
        store.buffer.data
        for store in tir_nodes(function.body, tirx.BufferStore)
        if any(
            load.buffer.data.same_as(store.buffer.data) for load in tir_nodes(store.value, tirx.BufferLoad)
        )
    ]

    def extremum(node: tirx.PrimExpr) -> tirx.PrimExpr:
        chosen = isinstance(node, tirx.Select)
        if not chosen and not is_call(node, "tirx.if_then_else"):
            return node
        order, pair, term = (node.condition, node.true_value, node.false_value) if chosen else node.args
        instruction = is_call(pair, "tirx.call_llvm_pure_intrin")  # its operands are visited before
        if not isinstance(order, tirx.LE) or not (instruction or isinstance(pair, tirx.Max | tirx.Min)):
            return node
        first = pair.args[1] if instruction else pair.a
        if not all(tvm_ffi.structural_equal(term, other) for other in (order.a, order.b, first)):
            return node
        # TVM makes branches of those that read buffers
        return pair if instruction else tirx.Select(order, pair, term)

    def kept(node: tirx.PrimExpr) -> tirx.PrimExpr:
        if isinstance(node, tirx.Select | tirx.Call):
            return extremum(node)
        if not node.dtype.startswith("float"):
            return node
        if by_intrinsic:
            return tirx.call_llvm_pure_intrin(node.dtype, intrinsics[type(node)], node.a, node.b)
        if not triple.startswith(("x86_64", "i686")):
            return node
        bound = node.b.value if isinstance(node.b, tirx.Broadcast) else node.b
        if isinstance(bound, tirx.FloatImm):
            return type(node)(node.b, node.a)
        loads = [each for each in (node.a, node.b) if isinstance(each, tirx.BufferLoad)]
        if any(load.buffer.data.same_as(data) for load in loads for data in reduced):
            return node
        # The shorter: limits of limits, as quantized layers have many, would be thrice as large at each.
        first, second = (node.b, node.a) if isinstance(bound, tirx.BufferLoad) else (node.a, node.b)
        return tirx.Select(tirx.isnan(first), first, type(node)(first, second))

    kinds = ["tirx.Max", "tirx.Min", "tirx.Select", "tirx.Call"]
    return function.with_body(tirx.stmt_functor.ir_transform(function.body, None, kept, kinds))


@kernel_pass("adt.Hyperbolic")
def hyperbolic(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Write sinh and cosh out for a CPU: LLVM has them for no vectors.

    Near zero, where two exponentials take each other's digits, sinh is a series (Taylor's, to x¹⁹).
    """

    def written_out(call: tirx.PrimExpr) -> tirx.PrimExpr:
        name = getattr(call.op, "name", "")
        if name not in ("tirx.sinh", "tirx.cosh"):
            return call
        (x,), dtype = call.args, call.dtype
        one, half = tirx.const(1, dtype), tirx.const(0.5, dtype)
        root = tirx.exp(half * x)  # exp(x) overflows earlier than its half
        grows, falls = half * root * root, half / root / root
        if name == "tirx.cosh":
            return grows + falls
        series = one
        for n in range(18, 0, -2):
            series = one + series * x * x * tirx.const(1 / (n * (n + 1)), dtype)
        near = tirx.all(x < one, x > -one)
        return tirx.Select(near, x * series, grows - falls)

    return function.with_body(tirx.stmt_functor.ir_transform(function.body, None, written_out, ["tirx.Call"]))


@module_pass("adt.CheckImages")
def check_images(module: tvm.IRModule) -> tvm.IRModule:
    """Raise RuntimeError for a fault of :func:`image_faults`: adt's own, for each kernel was tried."""
    if faults := image_faults(module):
        # Of any exception, TVM carries no more than the message through a pass.
        raise RuntimeError("a kernel would use images wrongly (use --target adreno-buffer): " + faults[0])
    return module


def image_faults(module: tvm.IRModule) -> list[str]:
    """Return the faults of kernels of the lowered and vectorised TIR *module* with images, or vectors."""
    faults: list[str] = []
    for name, function in module.functions.items():
        if isinstance(function, tirx.PrimFunc):
            faults += [f"{name.name_hint} {fault}" for fault in _faults_of(function)]
    return faults


_ACCESSES = tirx.BufferLoad | tirx.BufferStore


def _faults_of(function: tirx.PrimFunc) -> list[str]:
    accesses, calls = (tir_nodes(function.body, kind) for kind in (_ACCESSES, tirx.Call))
    stores, loads = (
        [call.args for call in calls if is_call(call, f"tirx.texture2d_{kind}")] for kind in ("store", "load")
    )
    both = {image.name for image, *_ in stores} & {image.name for image, *_ in loads}
    return [
        *(
            f"takes bytes of {access.buffer.name} that lie apart for a vector"
            for access in accesses
            if _scattered_bytes(access)
        ),
        *(
            f"stores {value.dtype}, which is no texel, to {image.name}"
            for image, *_, value in stores
            if not value.dtype.endswith(f"x{LANES}")
        ),
        *(
            f"reads the lanes {lanes} of {image.name} at once"
            for image, *_, lanes in loads
            if not _within_texel(lanes)
        ),
        *(f"reads and writes the image {name}" for name in sorted(both)),
    ]


def _scattered_bytes(access: tirx.Stmt | tirx.PrimExpr) -> bool:
    """Return True if 8-bit lanes are not adjacent in memory: TVM's code generator packs such into an int."""
    index, number = access.indices[-1], getattr(access, "value", access).dtype
    if "int8x" not in number:
        return False
    return not (isinstance(index, tirx.Ramp) and isinstance(index.stride, tirx.IntImm) and index.stride == 1)


def _within_texel(lanes: tirx.PrimExpr) -> bool:
    """Return True if the index of a load is one lane, or neighbouring ones."""
    if isinstance(lanes, tirx.Ramp):
        return int(lanes.lanes) <= LANES and isinstance(lanes.stride, tirx.IntImm) and int(lanes.stride) == 1
    return "x" not in lanes.dtype


REGISTERED = "tvm_callback_opencl_postproc"  # by this name TVM asks for it
_DECLARED = re.compile(r"^__kernel void [^{\n]*;\n", re.MULTILINE)
_HEAD = re.compile(r"^__kernel void [^{\n]* \{\n", re.MULTILINE)
_PLACE = re.compile(r"\(convert_int\(get_(group|local)_id\((\d)\)\)\)")
_LANES = re.compile(r"\(\((\w+4)\)\(([^(),]+|as_float\(-?\d+\))(?:, \2){3}\)\)")
_AS = re.compile(r"\(\*\((\w+) \*\)\(&\((\w+)\)\)\)")


def finished(source: str) -> str:
    """Remove repetitions from the *source* of one kernel, and put the definitions of words before it."""
    alone = _AS.sub(r"as_\1(\2)", _LANES.sub(r"((\1)(\2))", _DECLARED.sub("", source)))
    places = sorted(set(_PLACE.findall(alone)))
    named = "".join(f"  const int adt_{kind}{axis} = get_{kind}_id({axis});\n" for kind, axis in places)
    body = _PLACE.sub(r"adt_\1\2", alone)
    return with_words(_HEAD.sub(lambda head: head[0] + named, body))
