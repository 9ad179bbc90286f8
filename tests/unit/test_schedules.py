"""Kernels for a GPU do not depend on the host that calls them, nor on words of the target that lead TVM astray."""

from typing import Any

import pytest
import tvm
from tvm import relax

from adt.compiler.passes.pipeline import relax_pipeline
from adt.compiler.passes.records.schedules import Untuned


def vector_times_matrix() -> tvm.IRModule:
    """Build a product of integers: TVM's rules do not schedule those of floats."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((1, 1, 256), "int32"))
    w = relax.Var("w", relax.TensorStructInfo((256, 512), "int32"))
    with builder.function("main", params=[x, w], attrs={"num_input": 1}):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(relax.op.matmul(x, w)))
        builder.emit_func_output(result)
    return builder.get()


def kernels(**words: Any) -> list[str]:
    target = tvm.target.Target({"kind": "opencl", "host": {"kind": "llvm"}, **words})
    with target:
        module = relax_pipeline("opencl", {}, Untuned())(vector_times_matrix())
    return [
        function.script() for function in module.functions.values() if isinstance(function, tvm.tirx.PrimFunc)
    ]


@pytest.mark.parametrize(
    "words",
    [
        {"device": "adreno", "keys": ["adreno", "opencl", "gpu"]},
        {"host": {"kind": "llvm", "mtriple": "aarch64-linux-android28"}},
    ],
    ids=["adreno", "android"],
)
def test_the_rules_see_any_gpu(words: dict[str, Any]) -> None:
    """Hide these two GPUs from TVM's GEMV rule, whose branch for them computes wrong numbers."""
    assert kernels(**words) == kernels()
