"""TopK and sorting on a CPU, beside onnxruntime and numpy: types, orders, ties, NaN, prime and single extents."""

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest

import adt
from adt.compiler.importers.onnx.comparison import run
from adt.compiler.passes.selections import selections
from support.models.blocked import PLAIN
from support.models.onnx_graphs import graph_of, node, write

SHAPES = {"row": ((1, 1031), -1), "rows": ((37, 101), 1), "across": ((2, 67, 3), 1), "one": ((1, 1), 0)}
COUNTS = (1, 7, 53)
"""Numbers of elements to keep: the last are sorted, the others inserted."""


def test_rows_are_ordered_as_onnxruntime_orders_them(tmp_path: Path) -> None:
    """Order values of which many tie, with zeros of both signs and infinities among them."""
    rng = np.random.default_rng(5)
    inputs = {
        name: rng.choice(np.r_[-np.inf, -40:40, -0.0, np.inf], shape).astype("float32")
        for name, (shape, _) in SHAPES.items()
    }
    nodes, kinds = [], {}
    for (name, (shape, axis)), count, largest in itertools.product(SHAPES.items(), COUNTS, (0, 1)):
        if count <= shape[axis]:
            values, indices = (f"{kind}_{name}_{count}_{largest}" for kind in ("values", "indices"))
            nodes.append(node("TopK", [name, f"k{count}"], [values, indices], axis=axis, largest=largest))
            kinds |= {values: onnx.TensorProto.FLOAT, indices: onnx.TensorProto.INT64}
    counts = {f"k{count}": np.array([count]) for count in COUNTS}
    model = graph_of(nodes, {name: shape for name, (shape, _) in SHAPES.items()}, [], counts)
    model.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()
    )
    path = write(model, tmp_path / "model.onnx")
    package = adt.compile(path, out=tmp_path / "package", platform="host")
    assert "tvm.contrib.sort.topk" not in package.manifest.made.functions

    outputs = adt.run(tmp_path / "package", inputs=inputs).outputs

    for name, expected in run(model, inputs).items():
        np.testing.assert_array_equal(outputs[name], expected, err_msg=name)


@pytest.mark.parametrize(
    "dtype", ["int8", "uint16", "uint32", "int64", "uint64", "float16", "float32", "float64"]
)
def test_every_type_is_sorted_with_equal_elements_in_order(dtype: str) -> None:
    """Sort the type's extrema, and NaN last in either direction."""
    import tvm
    from tvm import relax

    rng = np.random.default_rng(7)
    limits = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(dtype)
    shape = (3, 263, 2)
    data = rng.choice(np.r_[np.arange(100), 0, 1], shape).astype(dtype)
    data[:, :3] = np.array([limits.max, limits.min, 0], dtype)[:, None]
    if dtype.startswith("float"):
        data[1, 100::50], data[2, ::3] = np.nan, -data[2, ::3]
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo(shape, dtype))
    with builder.function("main", [x]):
        calls = [relax.op.argsort(x, 1, descending, "int32") for descending in (False, True)]
        calls += [relax.op.sort(x, 1, descending) for descending in (False, True)]
        calls += [relax.op.topk(x, k, 1, "indices", True, "int64") for k in (1, 7, 60)]
        builder.emit_func_output(relax.Tuple([builder.emit(call) for call in calls]))
    executable = tvm.compile(selections()(builder.get()), tvm.target.Target(PLAIN))
    machine = relax.VirtualMachine(executable, tvm.cpu())

    up, down, sorted_up, sorted_down, *most = (
        result.numpy() for result in machine["main"](tvm.runtime.tensor(data))
    )

    ascending = np.argsort(data, 1, kind="stable")
    wide = data.astype("float64" if dtype.startswith("float") else "object")
    descending = np.argsort(-wide, 1, kind="stable")
    np.testing.assert_array_equal(up, ascending)
    np.testing.assert_array_equal(down, descending)
    np.testing.assert_array_equal(sorted_up, np.take_along_axis(data, ascending, 1))
    np.testing.assert_array_equal(sorted_down, np.take_along_axis(data, descending, 1))
    for count, indices in zip((1, 7, 60), most, strict=True):
        np.testing.assert_array_equal(indices, descending[:, :count])
