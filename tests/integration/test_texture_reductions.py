"""Maxima, minima, products and places of maxima on a GPU are right on this machine's OpenCL."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

import adt
from adt.package.host_run.run import run_package
from adt.package.inputs.random import random_inputs
from support.models.sequences import SequenceNetwork
from support.sampling import of_each_run

SHAPES = [(2, 3, 7), (1, 21, 50), (3, 2, 61), (4, 1024, 80), (1, 3, 4096), (1, 1, 50257)]
KINDS = ["ReduceMax", "ArgMax", "ReduceMin", "ReduceProd"]


@pytest.mark.parametrize(
    ("target", "part"),
    of_each_run(
        2,
        ("opencl", 0),
        ("adreno", 1),
        *(("opencl", part) for part in (1, 2, 3)),
        *(("adreno", part) for part in (0, 2, 3)),
    ),
)
def test_reductions_other_than_sums_are_right(tmp_path: Path, target: str, part: int) -> None:
    """Compute one of the four reductions for each shape and axis, another one in each part."""
    net, inputs, outputs = SequenceNetwork(), {}, {}
    for count, shape in enumerate(SHAPES):
        x = f"x{count}"
        inputs[x] = shape
        for axis in (1, 2):
            reduced = tuple(1 if place == axis else extent for place, extent in enumerate(shape))
            kind = KINDS[(count + axis + part) % 4]
            if kind == "ArgMax":
                outputs[net.op("Cast", net.op(kind, x, axis=axis), to=TensorProto.FLOAT)] = reduced
            else:
                outputs[net.op("Neg", net.op(kind, x, axes=[axis]))] = reduced
    first, *others = outputs
    model = net.save(
        tmp_path / "model.onnx", inputs, first, outputs[first], {name: outputs[name] for name in others}
    )

    package = adt.compile(
        model, out=tmp_path / "package", platform="host", target=target, check=False, use_cache=False
    )

    fed = random_inputs(package.manifest.entry().inputs, seed=3)
    results = run_package(package.path, fed, timeout=300)
    session = onnxruntime.InferenceSession(str(model))
    for name, expected in zip(outputs, session.run(list(outputs), dict(fed)), strict=True):
        np.testing.assert_allclose(results[name], expected, rtol=1e-5, atol=1e-30, err_msg=name)
    sources = {path.name: path.read_text() for path in (package.path / "inspect" / "opencl").iterdir()}
    shared = [name for name, source in sources.items() if "red_buf" in source]
    assert shared and len(shared) < len(sources)
