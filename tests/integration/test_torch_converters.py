"""Converters of PyTorch's operators to Relax, compared with numpy; torch itself runs nightly."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

from adt.compiler.importers import torch_converters
from adt.compiler.importers.importer import import_model
from adt.compiler.importers.torch_converters import pick, put
from adt.errors import ModelError, UnsupportedOp
from adt.measure.reference import run_reference
from adt.package.inputs.random import random_inputs
from support.models.imported import run_imported
from support.models.onnx_graphs import f32

ROWS, COLUMNS = np.array([0, 2, 1, 2, -1]), np.array([1, 1, -1], np.int32)
MASK = np.array([[True, False, True, True], [False] * 4, [False, True, False, False]])
PUTS: dict[str, tuple[tuple[int, ...], Sequence[Any], tuple[int, ...]]] = {
    "rows": ((3, 4), [ROWS], (5, 4)),
    "columns": ((3, 4, 5), [None, COLUMNS], (3, 3, 5)),
    "one value": ((3, 4), [ROWS], ()),
    "all of the last axis": ((3, 4), [ROWS, None], (5, 4)),
    "elements": ((3, 4), [ROWS[:3], COLUMNS], (3,)),
    "table": ((3, 4, 5), [None, ROWS[:2, None], COLUMNS], (3, 2, 3)),
    "apart": ((3, 4, 5), [ROWS[:3], None, COLUMNS], (3, 4)),
    "mask": ((3, 4, 5), [MASK], ()),
    "mask of columns": ((3, 4), [None, MASK[0]], (1,)),
}
"""Shape, an index for each axis (None: all of it), shape of the values."""


def put_module(shape: Sequence[Any], indices: Sequence[Any], values: tuple[int, ...], *, adds: bool) -> Any:
    """Build ``main(x, values, indices…)``, which puts the values."""

    def variable(name: str, shape: Sequence[Any], dtype: Any = "float32") -> Any:
        return relax.Var(name, relax.TensorStructInfo(shape, str(dtype)))

    x, v, builder = variable("x", shape), variable("v", values), relax.BlockBuilder()
    variables = [
        None if index is None else variable(f"i{axis}", index.shape, index.dtype)
        for axis, index in enumerate(indices)
    ]
    with builder.function("main", [x, v, *(index for index in variables if index is not None)]):
        with builder.dataflow():
            out = builder.emit_output(put(builder.emit, x, variables, v, adds=adds))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("form", PUTS)
@pytest.mark.parametrize("adds", [False, True])
def test_values_put_at_indices(form: str, adds: bool) -> None:
    """Add both values of a row that comes twice, whatever thread is first."""
    import tvm

    shape, indices, count = PUTS[form]
    x, values = f32(*shape), np.asarray(f32(*count))
    if not adds:
        values = np.broadcast_to(values.ravel()[:1].reshape([1] * len(count)), count).copy()
    module = put_module(shape, indices, count, adds=adds)
    machine = tvm.relax.VirtualMachine(tvm.compile(module, tvm.target.Target({"kind": "llvm"})), tvm.cpu())
    arguments = [x, values, *(index for index in indices if index is not None)]
    expected, selection = x.copy(), tuple(slice(None) if index is None else index for index in indices)
    if adds:
        np.add.at(expected, selection, values)
    else:
        expected[selection] = values
    result = machine["main"](*map(tvm.runtime.tensor, arguments)).numpy()
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


PICKS: dict[str, tuple[tuple[int, ...], Sequence[Any]]] = {
    "rows": ((3, 4), [ROWS]),
    "columns": ((3, 4, 5), [None, COLUMNS]),
    "one column": ((3, 4, 5), [None, np.array(-1)]),
    "elements": ((3, 4), [ROWS[:3], COLUMNS]),
    "table": ((3, 4, 5), [None, ROWS[:2, None], COLUMNS]),
    "ranks apart": ((2, 3, 4, 5), [None, None, ROWS[:4].reshape(2, 2, 1, 1), COLUMNS]),
    "apart": ((3, 4, 5), [ROWS[:3], None, COLUMNS]),
    "apart, not first": ((2, 3, 4, 5), [None, ROWS[:3], None, COLUMNS]),
}
"""Shape, an index for each axis (None: all of it)."""


@pytest.mark.parametrize("form", PICKS)
def test_elements_at_indices(form: str) -> None:
    import tvm

    shape, indices = PICKS[form]
    tensors = [index for index in indices if index is not None]
    x, builder = relax.Var("x", relax.TensorStructInfo(shape, "float32")), relax.BlockBuilder()
    parameters = iter(
        [relax.Var("i", relax.TensorStructInfo(index.shape, str(index.dtype))) for index in tensors]
    )
    named = [None if index is None else next(parameters) for index in indices]
    with builder.function("main", [x, *(index for index in named if index is not None)]):
        with builder.dataflow():
            out = builder.emit_output(pick(builder.emit, x, named))
        builder.emit_func_output(out)
    built = tvm.compile(builder.get(), tvm.target.Target({"kind": "llvm"}))
    values = f32(*shape)
    result = relax.VirtualMachine(built, tvm.cpu())["main"](
        *map(tvm.runtime.tensor, [values, *tensors])
    ).numpy()
    expected = values[tuple(slice(None) if index is None else index for index in indices)]
    np.testing.assert_array_equal(result, expected)


def test_values_for_what_a_mask_leaves_are_refused() -> None:
    with pytest.raises(ModelError, match="depends on the input's values") as raised:
        put_module((3, 4), [MASK], (5,), adds=False)
    assert "torch.where" in raised.value.remedy


NETS = """
import torch

class Graph(torch.nn.Module):
    def forward(self, x, i):
        added = torch.zeros_like(x).index_add(0, i, x).index_add(1, i[:4], x)
        return added, torch.zeros_like(x).scatter_add(0, i[:, None].expand(6, 4), x)

def graph():
    return Graph(), (torch.randn(6, 4), torch.tensor([0, 1, 1, 2, 3, 0]))

class Counts(torch.nn.Module):
    def forward(self, x):
        y = x.clone()
        y[x < 0] = 7.0
        return (x > 0).cumsum(1), (x > 0).to(torch.int32).cumsum(0), (x > 0).cumsum(1, dtype=torch.int32), (x > 0).prod(1), y

def counts():
    return Counts(), (torch.randn(6, 4),)

class Halves(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.max_pool2d(x, 2)

class Picked(torch.nn.Module):
    def forward(self, x, i):
        table = torch.arange(4)
        best = x.gather(1, x.topk(2, dim=1)[1])
        steps = torch.linspace(-1, 1, 5)
        counts = torch.bucketize(x, steps), torch.bucketize(steps, steps, right=True, out_int32=True)
        return x[:, -1], x[:, table[:, None] % 3, -table], x[i], best, x.amax((0, 1)), torch.atan2(x, x + 1), *counts

def picked():
    return Picked(), (torch.randn(3, 4, 5), torch.tensor(1))

class Promoted(torch.nn.Module):
    def forward(self, i, x):
        parts = i * 2.5, i / 2, 1.5 - i, torch.sin(i), 2.0**i, i**2, i.clamp(min=2.5), i >= 2.5, torch.cat([i, x])
        return (*parts, torch.add(x, i, alpha=2), torch.div(-i, 2, rounding_mode="floor"), -i % 4, torch.where(i > 2, i, x))

def promoted():
    return Promoted(), (torch.arange(6).reshape(2, 3), torch.randn(2, 3))

class Pooled(torch.nn.Module):
    def forward(self, x, grid):
        nn = torch.nn.functional
        pools = nn.adaptive_avg_pool2d(x, (2, 4)), nn.adaptive_avg_pool3d(x, (2, 5, 3)), nn.adaptive_avg_pool1d(x[0], 4)
        greatest = nn.max_pool2d(x, 2, ceil_mode=True), nn.max_pool2d(x, 3, 2, 1)
        return (*pools, *greatest, nn.grid_sample(x, grid, align_corners=False), nn.adaptive_avg_pool2d(x, 1))

def pooled():
    return Pooled(), (torch.randn(2, 4, 5, 6), torch.rand(2, 3, 7, 2) * 2 - 1)

class Mended(torch.nn.Module):
    def forward(self, x, i):
        nn = torch.nn.functional
        big = i + 2**24 + 1
        nan = torch.where(x > 0, x, torch.nan)
        pools = nn.avg_pool1d(x, 3, 2, 1, ceil_mode=True), nn.avg_pool3d(x[None, None], 3, 2, 1, ceil_mode=True)
        sizes = nn.interpolate(x[None], size=(4, 5), mode="bilinear", antialias=True), nn.interpolate(x[None], scale_factor=1.7)
        half = x[0].half() @ x[0].half().T
        fills = torch.full_like(i, 1.5, dtype=torch.float32), torch.ones_like(x, dtype=torch.int64), torch.full((2,), 3) + i[0, :2]
        tests = torch.isnan(nan), torch.isnan(i), (x - 9).any(1), (x > 0) + (x < 0), (x > 0).amax(1)
        ends = torch.full_like(x, -torch.inf).argmax(1), torch.full_like(x, torch.inf).argmin(1)
        return nn.selu(x), nn.celu(x, 0.5), i.clamp(min=1), i.clamp(max=1), big @ big, half, *pools, *sizes, *fills, *tests, *ends

def mended():
    return Mended(), (torch.randn(3, 6, 7), torch.arange(9).reshape(3, 3))

class Layered(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = torch.nn.Linear(96, 192), torch.nn.LayerNorm(192)
        self.convolution = torch.nn.Conv1d(50, 50, 3, padding=1, groups=50)
        groups, instances = torch.nn.GroupNorm(5, 50), torch.nn.InstanceNorm1d(50, affine=True)
        self.scaled = torch.nn.Sequential(torch.nn.BatchNorm1d(50), groups, instances)

    def forward(self, x, i):
        y = torch.nn.functional.gelu(self.norm(self.first(x)))
        return self.scaled(self.convolution(y)).reshape(50, 12, 16).transpose(0, 1).softmax(-1), y[0][i]

def layered():
    return Layered(), (torch.randn(1, 50, 96), torch.tensor([1, -1, 0, 2, -2]))

def halves():
    shape = ({2: 2 * torch.export.Dim("h", min=4, max=128)},)
    return torch.export.export(Halves(), (torch.randn(1, 3, 64, 64),), dynamic_shapes=shape)
"""


def compared(name: str, monkeypatch: pytest.MonkeyPatch, directory: Path, **shapes: tuple[int, ...]) -> Any:
    """Import what a function of :data:`NETS` makes, with its operators beside torch's, all anew."""
    (directory / "converted.py").write_text(NETS)
    monkeypatch.setenv("ADT_CACHE_DIR", str(directory / "cache"))
    monkeypatch.chdir(directory)
    return import_model(f"converted:{name}", shapes, check=True)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "function", ["graph", "counts", "halves", "picked", "promoted", "pooled", "mended", "layered"]
)
def test_programs_of_torch(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shapes = {"x": (1, 3, 32, 64)} if function == "halves" else {}
    with caplog.at_level(logging.INFO, "adt.import"):
        imported = compared(function, monkeypatch, tmp_path, **shapes)
    left = [line for line in caplog.messages if line.startswith("not compared")]
    assert all(line.endswith("it computes more than tensors") for line in left), left
    assert any(line.startswith("compared with torch: ") for line in caplog.messages)
    inputs = random_inputs(imported.inputs, 1)
    expected, outputs = run_reference(imported.file, inputs), run_imported(imported, inputs)
    assert expected.keys() == outputs.keys()
    for name, value in expected.items():
        assert outputs[name].dtype == value.dtype
        np.testing.assert_allclose(outputs[name], value, rtol=1e-5, atol=1e-5)


def two_sums(node: Any, importer: Any) -> Any:
    """Compute the variance as the mean of squares less the square of the mean."""
    data, _, scale, bias, epsilon = importer.retrieve_args(node)
    emit, mean = importer.block_builder.emit, relax.op.mean(data, [-1], keepdims=True)
    variance = relax.op.mean(data * data, [-1], keepdims=True) - mean * mean
    return emit((data - mean) / relax.op.sqrt(variance + relax.const(epsilon)) * scale + bias)


def counted_from_start(node: Any, importer: Any) -> Any:
    """Read the first element by each negative index."""
    data, indices = importer.retrieve_args(node)
    places = relax.op.maximum(indices[0], relax.const(0, "int64"))
    return importer.block_builder.emit(relax.op.take(data, places, 0))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("operator", "converter"),
    [
        ("gelu.default", lambda node, importer: relax.op.nn.silu(importer.env[node.args[0]])),
        ("index.Tensor", counted_from_start),
        ("native_layer_norm.default", lambda *arguments: (two_sums(*arguments),)),
    ],
)
def test_a_wrong_converter_is_named_with_its_node(
    operator: str, converter: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(torch_converters.CONVERTERS, operator, converter)
    with pytest.raises(UnsupportedOp, match=rf"{operator} at node \w+ .*: differs by .* torch") as refusal:
        compared("layered", monkeypatch, tmp_path)
    assert "--no-check" in refusal.value.remedy
    import_model("converted:layered", {})  # the remedy: nothing is compared


RANDOM_NETS = """
import torch

class Random(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)

def noise():
    return Random(lambda x: x + torch.randn(2, 3)), (torch.ones(2, 3),)

def gumbel():
    return Random(torch.nn.functional.gumbel_softmax), (torch.ones(2, 3),)

def dropout():
    return Random(lambda x: torch.nn.functional.dropout(x, 0.5, True)), (torch.ones(2, 3),)

def norm():
    net = torch.nn.BatchNorm1d(3)
    net.eval = net.train
    return net, (torch.ones(2, 3),)

def plain():
    return Random(lambda x: torch.nn.functional.dropout(x, 0.5, False) + torch.rand(2).shape[0]), (torch.ones(2, 3),)
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("noise", r"randn.default \(random"),
        ("gumbel", r"exponential.default \(random"),
        ("dropout", r"native_dropout.default \(it drops values at random"),
        ("norm", r"_native_batch_norm_legit_functional.default \(it normalizes by a batch's statistics"),
        ("plain", ""),
    ],
)
def test_what_torch_computes_for_training_is_no_constant(
    function: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refuse random numbers and norms of a batch, which TVM's converters draw once, or make fixed ones."""
    (tmp_path / "chance.py").write_text(RANDOM_NETS)
    monkeypatch.chdir(tmp_path)
    if not reason:
        assert import_model(f"chance:{function}", {}).inputs
        return
    with pytest.raises(UnsupportedOp, match=reason):
        import_model(f"chance:{function}", {})
