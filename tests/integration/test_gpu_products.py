"""Matrix products that stay in plain buffers of GPUs: right on PoCL for each kind of GPU, whatever their extents."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax, te

import adt
from adt.compiler.ir.rewriter import is_flat
from adt.compiler.passes.gpu.schedules import PLAIN, schedule_of
from adt.compiler.passes.lowering import tir_pipeline
from adt.compiler.passes.products import Products
from adt.compiler.passes.scheduling import Decisions
from adt.compiler.targets.gpu import ANY_ADRENO, Gpu, gpu_of
from support.models.blocked import calls, model
from support.models.onnx_graphs import f32, graph_of, node, write
from support.models.reference import off_reference
from support.sampling import matrix

ANY_MALI = gpu_of("Mali-G715", {})
TRANSPOSE_LAST = [0, 1, 3, 2]
TRANSPOSED = tuple(itertools.product((False, True), repeat=2))
"""Pairs of flags: each operand of a product is transposed."""
EXTENTS = ((1, 77, 64), (1, 200, 512), (3, 61, 77), (7, 197, 64), (61, 3, 1), (64, 128, 8), (5, 1, 16))
"""Rows, columns and terms."""


def products(extents: Sequence[tuple[int, int, int]]) -> onnx.ModelProto:
    """Return products of tensors with all *extents*, each operand transposed or not, one broadcast over the batch,
    the other over the heads; scaled, and with a mask."""
    nodes, inputs, outputs, weights = [], {}, [], {}
    for (rows, columns, terms), (left, right) in itertools.product(extents, TRANSPOSED):
        name = f"{rows}_{columns}_{terms}_{left}_{right}"
        inputs[f"a{name}"] = (2, 1, terms, rows) if left else (2, 1, rows, terms)
        inputs[f"b{name}"] = (1, 3, columns, terms) if right else (3, terms, columns)
        a, b = f"a{name}", f"b{name}"
        if left:
            nodes.append(node("Transpose", [a], [f"ta{name}"], perm=TRANSPOSE_LAST))
        if right:
            nodes.append(node("Transpose", [b], [f"tb{name}"], perm=TRANSPOSE_LAST))
        weights[f"s{name}"], weights[f"m{name}"] = np.float32(0.3), f32(2, 1, rows, columns)
        operands = [f"t{a}" if left else a, f"t{b}" if right else b]
        nodes += [
            node("MatMul", operands, [f"p{name}"]),
            node("Mul", [f"p{name}", f"s{name}"], [f"q{name}"]),
            node("Add", [f"q{name}", f"m{name}"], [f"y{name}"]),
        ]
        outputs.append(f"y{name}")
    return graph_of(nodes, inputs, outputs, weights)


def dense() -> onnx.ModelProto:
    """Build layers of one and three rows, columns in fours and not, and operators that TVM cannot vectorize."""
    nodes, inputs, outputs, weights = [], {}, [], {}
    for rows, columns, terms in ((1, 200, 512), (1, 61, 77), (3, 12, 30)):
        name = f"{rows}_{columns}"
        inputs[f"x{name}"] = (rows, terms)
        weights |= {f"w{name}": f32(terms, columns), f"b{name}": f32(columns)}
        nodes += [
            node("Gemm", [f"x{name}", f"w{name}", f"b{name}"], [f"d{name}"]),
            node("Erf", [f"d{name}"], [f"y{name}"]),
        ]
        outputs.append(f"y{name}")
    return graph_of(nodes, inputs, outputs, weights)


def heads() -> onnx.ModelProto:
    """Build attention of three heads of 20 over 37 tokens, whose queries, keys and values are one tensor."""
    nodes = [
        node("Transpose", ["x"], ["parts"], perm=[2, 0, 3, 1, 4]),
        *(node("Gather", ["parts", f"i{place}"], [name], axis=0) for place, name in enumerate("qkv")),
        node("Transpose", ["k"], ["kt"], perm=TRANSPOSE_LAST),
        node("MatMul", ["q", "kt"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=-1),
        node("MatMul", ["shares", "v"], ["each"]),
        node("Transpose", ["each"], ["y"], perm=[0, 2, 1, 3]),
    ]
    return graph_of(nodes, {"x": (2, 37, 3, 3, 20)}, ["y"], {f"i{n}": np.int64(n) for n in range(3)})


MODELS = {
    **{f"products {part}": lambda part=part: products(EXTENTS[part::3]) for part in range(3)},
    "dense": dense,
    "heads": heads,
}


@pytest.mark.parametrize(("name", "target"), matrix(MODELS, ["opencl", "mali", "adreno"]))
def test_products_are_right(name: str, target: str, tmp_path: Path) -> None:
    model = write(MODELS[name](), tmp_path / "m.onnx")
    package = adt.compile(model, out=tmp_path / "p", platform="host", target=target, check=False)

    kernels = [kernel.name for kernel in package.manifest.kernels]
    assert not any("transpose" in kernel or "take" in kernel for kernel in kernels)
    assert off_reference(package, model) < 1e-5


def function(rows: int, columns: int, terms: int, dtype: str = "float32", sums: str = "float32") -> object:
    a = te.placeholder((rows, terms), dtype, "a")
    b = te.placeholder((terms, columns), dtype, "b")
    k = te.reduce_axis((0, terms), "k")
    product = te.compute(
        (rows, columns), lambda i, j: te.sum(a[i, k].astype(sums) * b[k, j].astype(sums), axis=k)
    )
    return te.create_prim_func([a, b, te.compute((rows, columns), lambda i, j: product[i, j] * 2)])


def source(function: tvm.tirx.PrimFunc, gpu: Gpu) -> str:
    target = tvm.target.Target({"kind": "opencl", "host": {"kind": "llvm"}})
    _, scheduled = schedule_of(function, target, gpu, Decisions(), PLAIN)
    module = tvm.IRModule({"main": scheduled.with_attr("global_symbol", "main")})
    built = tvm.compile(module, target=target, tir_pipeline=tir_pipeline(64, buffers=True))
    return str(built.mod.imports[0].inspect_source())


@pytest.mark.parametrize("gpu", [ANY_ADRENO, ANY_MALI], ids=["adreno", "mali"])
def test_work_items_share_the_sums_of_a_vector(gpu: Gpu) -> None:
    text = source(function(1, 1000, 2048), gpu)

    assert "__local float4" in text and text.count("barrier(") == 1
    assert "__global float4* restrict b" in text


def test_a_matrix_of_many_rows_is_computed_without_local_memory() -> None:
    text = source(function(2048, 2048, 64), ANY_MALI)

    assert "__local" not in text and "barrier(" not in text


@pytest.mark.parametrize("sums", ["float16", "float32"])
def test_half_precision_is_read_in_fours(sums: str) -> None:
    text = source(function(8, 64, 32, "float16", sums), ANY_ADRENO)

    assert "__global half4* restrict b" in text
    assert ("convert_float4" in text) == (sums == "float32")


def test_a_product_by_a_constant_is_left_to_the_layout_walk() -> None:
    module = model((4, 8), lambda b, x: b.emit(relax.op.matmul(x, relax.const(f32(8, 4)))))

    assert is_flat(module) and calls(Products(module).run()) == ["relax.matmul"]
