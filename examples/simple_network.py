"""Helper of the examples: writes a small network as ONNX.

python examples/simple_network.py FILE.onnx
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CHANNELS = 16
SHAPE = (1, 3, 224, 224)


def simple_network(file: Path) -> Path:
    """Build a convolution of 3 to 16 channels, its batch norm and a ReLU, with random weights."""
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


if __name__ == "__main__":
    simple_network(Path(sys.argv[1]))
