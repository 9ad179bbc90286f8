"""Each quantized tensor of an ONNX model against onnxruntime's, which computes it of the same tensors before it.

In a deep network one value on the edge of two quanta spreads; layer by layer what is computed wrongly shows, and
nothing else.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper

Array = NDArray[np.generic]


def with_layers(source: Path, out: Path) -> Path:
    """Write the model with what each QuantizeLinear gives as an output, too."""
    model = onnx.shape_inference.infer_shapes(onnx.load(source))
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    infos = {info.name: info for info in (*model.graph.value_info, *model.graph.output)}
    outputs = {info.name for info in model.graph.output}
    for node in model.graph.node:
        (name,) = node.output[:1]
        if node.op_type == "QuantizeLinear" and name not in outputs:
            shape = [size.dim_value for size in infos[name].type.tensor_type.shape.dim]
            model.graph.output.append(helper.make_tensor_value_info(name, types[node.input[2]], shape))
    onnx.save(model, out)
    return out


def quanta_off(
    exposed: Path, feeds: Mapping[str, Array], outputs: Mapping[str, Array]
) -> Iterator[tuple[str, Array]]:
    """Yield for each quantized tensor its name and the quantization steps that each element is off.

    Args:
        exposed: of :func:`with_layers`.
        outputs: its outputs, of *feeds*, in the model's order.
    """
    model = onnx.load(exposed)
    names = [info.name for info in model.graph.output]
    quantized = {node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    values = dict(feeds) | dict(zip(names, outputs.values(), strict=True))
    known = quantized | set(feeds)
    producers = {name: node for node in model.graph.node for name in node.output}
    extractor = onnx.utils.Extractor(model)
    for name in (name for name in names if name in quantized):
        inputs, ahead = set(), [producers[name].input[0]]
        while ahead:
            tensor = ahead.pop()
            if tensor in known:
                inputs.add(tensor)
            elif tensor in producers:
                ahead += producers[tensor].input
        layer = extractor.extract_model(sorted(inputs), [name])
        session = onnxruntime.InferenceSession(layer.SerializeToString(), providers=["CPUExecutionProvider"])
        (expected,) = session.run(None, {key: values[key] for key in inputs})
        yield name, np.abs(expected.astype(np.int32) - values[name].astype(np.int32))
