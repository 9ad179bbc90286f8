"""Refusals of modules and passes that Python made; their file depends on nothing else."""

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import adt
from adt.bundle.platforms import PLATFORMS
from adt.compiler.compilation import with_passes
from adt.compiler.importers import formats
from adt.compiler.importers.importer import import_model
from adt.compiler.importers.relax import module_file
from adt.compiler.targets import ModelTarget, model_target
from adt.errors import ConfigError, ModelError

pytestmark = pytest.mark.usefixtures("own_cache")


@I.ir_module
class Plain:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3,), "float32")) -> R.Tensor((2, 3), "float32"):
        return R.add(x, w)


@I.ir_module
class Forward:
    @R.function
    def forward(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        return R.add(x, x)


@I.ir_module
class NoShape:
    @R.function
    def main(x: R.Tensor(ndim=2, dtype="float32")) -> R.Tensor(ndim=2, dtype="float32"):
        return R.add(x, x)


@I.ir_module
class NoTensor:
    @R.function
    def main(x: R.Tuple(R.Tensor((2,), "float32"))) -> R.Tensor((2,), "float32"):
        return x[0]


@I.ir_module
class Open:
    @R.function
    def main(x: R.Tensor((2, "length"), "float32")) -> R.Tensor((2, "length"), "float32"):
        return R.add(x, x)


@I.ir_module
class OfTheData:
    @R.function
    def main(x: R.Tensor((4,), "int64")) -> R.Tensor(ndim=2, dtype="int64"):
        return R.nonzero(x)


W = np.ones(3, np.float32)


def detached() -> Any:
    main = Plain["main"].with_attr("num_input", 1)
    return tvm.IRModule({"main": main})


@pytest.mark.parametrize(
    ("module", "params", "message"),
    [
        (7, {}, "a int is no model"),
        (Forward, {}, "no Relax function main; its Relax functions: forward"),
        (tvm.IRModule({}), {}, "its Relax functions: none"),
        (NoShape, {}, "the parameter x of main is .*no tensor whose dimensions are known"),
        (NoTensor, {}, "the parameter x of main is .*no tensor whose dimensions are known"),
        (Plain, {"weight": W}, "main has no parameter weight"),
        (Plain, {"w": W.astype("float64")}, r"the value of w is float64\[3\], and main takes float32\[3\]"),
        (Plain, {"w": np.ones(4, np.float32)}, r"the value of w is float32\[4\], and main takes"),
        (Open, {"x": np.ones((2, 5), np.float32)}, r"the value of x is float32\[2, 5\], and main takes"),
        (detached(), {}, r"w of main are no inputs \(its num_input is 1\), and have no values"),
    ],
)  # fmt: skip
def test_what_is_refused(module: Any, params: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        adt.compile(module, params=params, platform="host")
    assert caught.value.remedy


def test_a_module_with_a_fault() -> None:
    x = relax.Var("x", relax.TensorStructInfo([2], "float32"))
    stray = relax.Var("stray", relax.TensorStructInfo([2], "float32"))
    module = tvm.IRModule({"main": relax.Function([x], stray, stray.struct_info)})
    with pytest.raises(ModelError, match=re.escape("the module is not well-formed: ")):
        module_file(module, {})


def test_params_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape("params belong to a tvm.IRModule")):
        adt.compile(tmp_path / "model.onnx", params={"w": W}, platform="host")


def test_shapes_that_stay_open() -> None:
    file = module_file(Open, {})
    with pytest.raises(ModelError, match="length"):
        import_model(file, {})
    assert import_model(file, {"length": 4}).outputs[0].shape == (2, 4)
    with pytest.raises(ModelError, match=r"output 'output' of model\.relax depends on the input's values"):
        import_model(module_file(OfTheData, {}), {})


def test_the_file_tells_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    file = module_file(Plain, {"w": W})
    assert formats.format_of(file) == formats.RELAX
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 3600)
    assert module_file(Plain, {"w": W}) == file
    assert module_file(Plain, {"w": W + 1}) != file
    assert module_file(Plain, {}) != file
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(ModelError, match="damaged"):
        import_model(file, {})


@pytest.fixture
def target() -> ModelTarget:
    return model_target("cpu", PLATFORMS["host"], 0)


def drops_an_input(module: Any) -> Any:
    return Forward


def returns_nothing(module: Any) -> None:
    return None


def takes_two(module: Any) -> Any:
    x = relax.Var("x", relax.TensorStructInfo([2], "float32"))
    return tvm.IRModule({"main": relax.Function([x], x, x.struct_info)})


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (drops_an_input, "the pass drops_an_input failed"),
        (returns_nothing, "the pass returns_nothing failed"),
        (takes_two, "the pass takes_two changes what main takes or returns"),
    ],
)
def test_passes_that_are_refused(own: Any, message: str, target: ModelTarget) -> None:
    imported = import_model(module_file(Plain, {"w": W}), {})
    with pytest.raises(ModelError, match=message):
        with_passes(imported, [own], target, 3)


def test_passes_see_the_target_and_run_in_order(target: ModelTarget) -> None:
    imported = import_model(module_file(Plain, {"w": W}), {})
    seen = []

    def first(module: Any) -> Any:
        seen.append(str(tvm.target.Target.current().kind))
        return module

    def second(module: Any) -> Any:
        seen.append("second")
        return module.with_attr("seen", 1)

    result = with_passes(imported, [first, relax.transform.Normalize(), second], target, 3)
    assert seen == ["llvm", "second"] and result.module.attrs["seen"] == 1
    assert result.module["main"].attrs["num_input"] == 1
