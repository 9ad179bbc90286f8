"""Modules, passes and kernels written by hand go the way of models: compiled, verified, run by rtvm."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import adt
from adt.errors import RunError, UnsupportedOp
from support.devices.programs import program_output
from support.models.small import small_model

pytestmark = pytest.mark.usefixtures("host_bundle")

EXAMPLE = Path(__file__).parents[2] / "examples/own_relax.py"


@pytest.fixture(scope="module")
def module() -> Any:
    """Return ``output = max(x @ w, b)`` with open rows, and ``w`` before the input."""
    from tvm.script import ir as I
    from tvm.script import relax as R

    @I.ir_module
    class Module:
        @R.function
        def main(
            w: R.Tensor((4, 3), "float32"), x: R.Tensor(("n", 4), "float32"), b: R.Tensor((3,), "float32")
        ) -> R.Tensor(("n", 3), "float32"):
            product = R.matmul(x, w)
            return R.maximum(product, b)

    return Module


@pytest.fixture
def params() -> dict[str, Any]:
    random = np.random.default_rng(7)
    return {"b": random.random(3, dtype=np.float32), "w": random.random((4, 3), dtype=np.float32)}


@pytest.mark.parametrize("target", ["cpu", pytest.param("opencl", marks=pytest.mark.nightly), "adreno"])
def test_the_example(target: str, tmp_path: Path) -> None:
    printed = program_output(sys.executable, EXAMPLE, "host", target, cwd=tmp_path)
    for line in ("kernel own_clip\n", "output output (1, 16, 32, 32)", "on this machine's CPU: right"):
        assert line in printed


def test_inputs_are_what_has_no_value(module: Any, params: dict[str, Any], tmp_path: Path) -> None:
    package = adt.compile(module, params=params, platform="host", shapes=["n=5"], out=tmp_path / "p")
    entry = package.manifest.entry()
    assert [(spec.name, spec.shape) for spec in entry.inputs] == [("x", (5, 4))]
    x = np.random.default_rng(1).random((5, 4), dtype=np.float32)
    (output,) = adt.run(package.path, inputs={"x": x}).outputs.values()
    np.testing.assert_allclose(output, np.maximum(x @ params["w"], params["b"]), rtol=1e-5)
    result = adt.verify(package.path)
    assert result.verification.passed and result.reference == "host"
    assert adt.compile(module, params=params, platform="host", shapes=["n=5"], out=tmp_path / "q").cached
    params["b"] = params["b"] + 1
    other = adt.compile(module, params=params, platform="host", shapes=["n=5"], out=tmp_path / "r")
    assert other.manifest.source.sha256 != package.manifest.source.sha256


def test_what_tvms_importer_made(tmp_path: Path) -> None:
    from tvm.relax.frontend.onnx import from_onnx

    model = onnx.load(small_model(tmp_path / "small.onnx"))
    package = adt.compile(
        from_onnx(model, keep_params_in_input=True), platform="host", out=tmp_path / "p", use_cache=False
    )
    assert [spec.name for spec in package.manifest.entry().inputs] == ["x"]
    ours = adt.compile(tmp_path / "small.onnx", platform="host", out=tmp_path / "q")
    x = np.ones((1, 4), np.float32)
    (a,), (b,) = (adt.run(each.path, inputs={"x": x}).outputs.values() for each in (package, ours))
    np.testing.assert_allclose(a, b, rtol=1e-6)


def scaled(factor: float) -> Any:
    """Return a pass that multiplies what main returns."""
    from tvm import relax

    def scale(module: Any) -> Any:
        @relax.expr_functor.mutator
        class Mutator(relax.PyExprMutator):
            def visit_call_(self, call: Any) -> Any:
                call = super().visit_call_(call)
                if getattr(call.op, "name", "") != "relax.nn.relu":
                    return call
                return relax.op.multiply(call, relax.const(factor, "float32"))

        mutator = Mutator(module)
        mutator.builder_.update_func(module.get_global_var("main"), mutator.visit_expr(module["main"]))
        return mutator.builder_.get()

    return scale


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_verify_judges_a_pass_on_an_onnx_model(factor: float, tmp_path: Path) -> None:
    model = small_model(tmp_path / "small.onnx")
    words: dict[str, Any] = {"platform": "host", "passes": [scaled(factor)]}
    first = adt.compile(model, out=tmp_path / "p", **words)
    assert not first.cached and not adt.compile(model, out=tmp_path / "q", **words).cached
    result = adt.verify(first.path)
    assert result.reference == "onnxruntime" and result.verification.passed == (factor == 1)


def test_it_is_explained(module: Any, params: dict[str, Any]) -> None:
    assert {row.op for row in adt.explain(module, params=params).ops} == {"relax.matmul", "relax.maximum"}


def of_one_kernel(function: Any, name: str, size: int) -> Any:
    """Return a module that calls the kernel with a vector."""
    from tvm import relax

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo([size], "float32"))
    with builder.function("main", [x]):
        kernel = builder.add_func(function, name)
        with builder.dataflow():
            result = builder.emit_output(relax.call_tir(kernel, [x], x.struct_info))
        builder.emit_func_output(result)
    return builder.get()


def test_kernels_check_what_they_assert_and_no_arguments(module: Any, tmp_path: Path) -> None:
    import tvm
    from tvm import relax
    from tvm.script import tirx as T

    @T.prim_func(private=True, s_tir=True)
    def checked(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
        assert a[0] > T.float32(0), "the first one is not positive"
        for i in range(4):
            with T.sblock("copy"):
                vi = T.axis.spatial(4, i)
                b[vi] = a[vi]

    own = adt.compile(of_one_kernel(checked, "checked", 4), platform="host", out=tmp_path / "own")
    assert adt.run(own.path, inputs={"x": np.ones(4, np.float32)}).outputs
    with pytest.raises(RunError, match="the first one is not positive"):
        adt.run(own.path, inputs={"x": np.zeros(4, np.float32)})

    weights = {"b": np.zeros(3, np.float32), "w": np.zeros((4, 3), np.float32)}
    package = adt.compile(module, params=weights, platform="host", shapes=["n=5"], out=tmp_path / "p")
    code = [(each.path / "mod.so").read_bytes() for each in (own, package)]
    assert ["when calling" in str(text) for text in code] == [True, False]
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(package.path / "mod.so")), tvm.cpu())
    numbers = [tvm.runtime.tensor(np.zeros(shape, np.float32)) for shape in ((6, 4), (4, 3), (3,))]
    with pytest.raises(Exception, match="shape"):
        machine["main"](*numbers)


def test_a_kernel_with_threads_is_for_gpus(tmp_path: Path) -> None:
    import tvm
    from tvm import te

    a = te.placeholder((128,), name="a")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([a, te.compute((128,), lambda i: a[i] + 1, name="b")]))
    schedule.bind(schedule.get_loops(schedule.get_sblock("b"))[0], "threadIdx.x")
    bound = schedule.mod["main"].with_attr("tirx.is_scheduled", True).without_attr("global_symbol")
    module = of_one_kernel(bound, "plus_one", 128)
    words: dict[str, Any] = {"platform": "host", "target": "opencl", "out": tmp_path / "p"}
    with pytest.raises(UnsupportedOp, match="the kernel plus_one binds loops"):
        adt.compile(module, **words)
    package = adt.compile(module, check=False, **words)
    (output,) = adt.run(package.path, inputs={"x": np.zeros(128, np.float32)}).outputs.values()
    assert (output == 1).all()
    with pytest.raises(UnsupportedOp, match="which a CPU has none of"):
        adt.verify(package.path)
    np.savez(tmp_path / "right.npz", output=np.ones(128, np.float32))
    zeros = {"x": np.zeros(128, np.float32)}
    assert adt.verify(package.path, inputs=zeros, reference=str(tmp_path / "right.npz")).verification.passed
