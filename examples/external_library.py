"""One convolution, batch norm and ReLU: fused into adt's own kernel, and handed to an external library.

    adt build-target --for host --xnnpack       once: a bundle that has the library
    python examples/external_library.py

TVM's tutorial on external libraries (cuDNN, in Relay), step by step, with what takes its place today. As
there, what a library computes is a call that TVM does not look into; unlike there, what follows a convolution
can go with it, as far as the library's rules have it (docs/libraries.md).
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import adt
from adt.measure.bench import sentence

LIBRARY = "xnnpack"
CHANNELS = 16
SHAPE = (1, 3, 224, 224)


def simple_network(file: Path) -> Path:
    """A convolution of 3 to 16 channels, its batch norm and a ReLU, with random weights."""
    random = np.random.default_rng(0)
    weights = {
        "weight": random.standard_normal((CHANNELS, SHAPE[1], 3, 3)),
        "gamma": random.uniform(0.5, 1.5, CHANNELS),
        "beta": random.standard_normal(CHANNELS),
        "mean": random.standard_normal(CHANNELS),
        "var": random.uniform(0.5, 1.5, CHANNELS),
    }
    nodes = [
        helper.make_node("Conv", ["data", "weight"], ["conv"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["conv", "gamma", "beta", "mean", "var"], ["norm"]),
        helper.make_node("Relu", ["norm"], ["out"]),
    ]
    graph = helper.make_graph(
        nodes,
        "simple_net",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, (1, CHANNELS, *SHAPE[2:]))],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), file)
    return file


def show(title: str, text: str) -> None:
    """Print a step."""
    sys.stdout.write(f"\n== {title}\n{text}\n")


def main(directory: Path) -> None:
    """Every step of the tutorial."""
    model = simple_network(directory / "simple_net.onnx")
    data = np.random.default_rng(1).uniform(-1, 1, SHAPE).astype(np.float32)

    # The tutorial's target "cuda": all of it in kernels that are generated.
    fused = adt.compile(model, platform="host", out=directory / "fused")
    kernels = adt.inspect(fused.path).tir_functions()
    show("convolution, batch norm and ReLU are one kernel", "\n".join(kernels))
    out_fused = adt.run(fused.path, inputs={"data": data}).outputs["out"]

    # Its target "cuda -libs=cudnn": only this changes.
    library = adt.compile(model, platform="host", offload=LIBRARY, out=directory / "library")
    inspection = adt.inspect(library.path)
    show("what the library is called for", json.dumps(inspection.library_calls(), indent=2))
    show("what stays, and why", "\n".join(library.manifest.made.offload.left) or "nothing")
    out_library = adt.run(library.path, inputs={"data": data}).outputs["out"]

    # Its tvm.testing.assert_allclose(out_cuda, out_cudnn, rtol=1e-5); near 0 a relative limit means nothing.
    largest = float(np.abs(out_fused).max())
    np.testing.assert_allclose(out_library, out_fused, rtol=1e-5, atol=1e-5 * largest)
    show("both give the same", f"off by at most {np.abs(out_library - out_fused).max():.2g} of {largest:.3g}")

    # Its conclusion, as figures: adt compare-offload simple_net.onnx --for host --offload xnnpack
    comparison = adt.compare_offload(model, platform="host", offload=LIBRARY, protocol="quick", record=False)
    for name, variant in (("fused", comparison.fused), ("library", comparison.library)):
        assert variant.profile is not None  # only an emulated device has none
        times = [f"{call.mean_us:8.1f} µs  {call.name}" for call in variant.profile.calls if call.index >= 0]
        show(f"{name}, call by call", "\n".join(times))
    assert comparison.ratio is not None
    show("which is faster?", sentence(comparison.ratio, ("fused", "the library")))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
