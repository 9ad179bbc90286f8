"""Chains of operators that read their operand several times: kernels of bounded expressions, in linear number."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from tvm import relax, tirx

from adt.bundle.platforms import platform_named
from adt.compiler.assemble import tvm_errors
from adt.compiler.importers.importer import import_model
from adt.compiler.passes.gpu.choice import BY_MODEL
from adt.compiler.passes.inlining import LARGEST
from adt.compiler.passes.pipeline import prepare_module
from adt.compiler.passes.records.schedules import Untuned
from adt.compiler.targets.target import model_target
from adt.errors import CompileError
from support.models.onnx_graphs import graph_of, node, write
from support.sampling import matrix

SHAPE = (1, 3, 8, 10)


def _curve(steps: int) -> onnx.ModelProto:
    """Build ``x += q * (x * x - x)``, as Zero-DCE enhances pictures: each step reads x four times."""
    nodes, x = [], "x"
    for step in range(steps):
        square, rest, scaled, result = (f"{name}{step}" for name in ("square", "rest", "scaled", "result"))
        nodes += [
            node("Mul", [x, x], [square]),
            node("Sub", [square, x], [rest]),
            node("Mul", ["q", rest], [scaled]),
            node("Add", [x, scaled], [result]),
        ]
        x = result
    return graph_of(nodes, {"x": SHAPE, "q": SHAPE}, [x])


def _quantized(steps: int) -> onnx.ModelProto:
    """Build pairs of QuantizeLinear and DequantizeLinear of 16 bits with a Sigmoid each."""
    nodes, x, domain = [], "x", "com.microsoft"
    for step in range(steps):
        quantized, real, result = f"quantized{step}", f"real{step}", f"result{step}"
        nodes += [
            node("QuantizeLinear", [x, "scale", "zero"], [quantized], domain=domain),
            node("DequantizeLinear", [quantized, "scale", "zero"], [real], domain=domain),
            node("Sigmoid", [real], [result]),
        ]
        x = result
    weights = {"scale": np.float32(1e-4), "zero": np.uint16(30000)}
    return graph_of(nodes, {"x": SHAPE}, [x], weights, domain=domain)


def _nodes(value: Any) -> int:
    parts = [getattr(value, name, None) for name in ("a", "b", "value", "body", "true_value", "false_value")]
    parts += [*getattr(value, "args", ()), *getattr(value, "indices", ())]
    return 1 + sum(_nodes(part) for part in parts if isinstance(part, tvm.ir.PrimExpr))


def _stores(kernel: Any) -> list[Any]:
    stores: list[Any] = []
    tirx.stmt_functor.post_order_visit(
        kernel.body, lambda part: stores.append(part) if isinstance(part, tirx.BufferStore) else None
    )
    return stores


@pytest.mark.parametrize(("chain", "steps"), matrix([_curve, _quantized], [4, 8, 16]))
def test_the_expressions_of_kernels_are_bounded(
    tmp_path: Path, chain: Callable[[int], onnx.ModelProto], steps: int
) -> None:
    path = write(chain(steps), tmp_path / "chain.onnx")
    imported = import_model(path, shapes={})
    target = model_target("cpu", platform_named("host"), 28)
    tvm_target = tvm.target.Target(target.spec)
    prepared = prepare_module(imported.module, imported.params, target, 64, Untuned(), BY_MODEL)
    kernels = [f for _, f in prepared.module.functions_items() if isinstance(f, tirx.PrimFunc)]
    assert len(kernels) <= steps
    # A kernel of more operators than these doubles with each: it must not reach the schedules.
    assert max(len(_stores(kernel)) for kernel in kernels) <= 4 * 6
    with tvm_target:
        scheduled = prepared.relax_pipeline(prepared.module)
    for _, kernel in scheduled.functions_items():
        if isinstance(kernel, tirx.PrimFunc):
            assert sum(_nodes(store.value) for store in _stores(kernel)) <= 8 * LARGEST
    built = tvm.compile(
        prepared.module,
        tvm_target,
        relax_pipeline=prepared.relax_pipeline,
        tir_pipeline=prepared.tir_pipeline,
    )
    session = onnxruntime.InferenceSession(str(path))
    random = np.random.default_rng(0)
    inputs = {spec.name: random.random(SHAPE, np.float32) for spec in session.get_inputs()}
    (expected,) = session.run(None, inputs)
    arguments = [tvm.runtime.tensor(array) for array in (*inputs.values(), *prepared.params.values())]
    result = relax.VirtualMachine(built, tvm.cpu())["main"](*arguments)
    result = result if hasattr(result, "numpy") else result[0]
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("error", "expected"), [(KeyboardInterrupt(), KeyboardInterrupt), (RuntimeError(), CompileError)]
)
def test_what_ends_a_pass_keeps_its_kind_and_has_a_text(
    error: BaseException, expected: type[BaseException]
) -> None:
    """Keep the type, which TVM replaces: ctrl-C became a RuntimeError without a text."""

    @tvm.transform.module_pass(opt_level=0, name="Ended")
    def ended(_module: Any, _context: Any) -> Any:
        raise error

    with pytest.raises(expected) as caught, tvm_errors("the model"):
        tvm.transform.Sequential([ended])(tvm.IRModule())
    if isinstance(caught.value, CompileError):
        assert caught.value.what.endswith("RuntimeError: RuntimeError")
