"""Each quantized tensor of a TFLite model against the interpreter's, which computes it of the same tensors before it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import interpreter as litert
from numpy.typing import NDArray

from support.models.quantized_tflite import BYTES, packed, unpacked

Array = NDArray[np.generic]


def with_layers(source: Path, out: Path) -> Path:
    """Write the model with all quantized tensors that operators give as outputs, too."""
    model = unpacked(source)
    (graph,) = model.subgraphs
    tensors = [tensor for operator in graph.operators for tensor in operator.outputs]
    more = [tensor for tensor in tensors if _is_quantized(graph, tensor) and tensor not in graph.outputs]
    graph.outputs = [*graph.outputs, *more]
    out.write_bytes(packed(model))
    return out


def quanta_off(
    exposed: Path, feeds: Mapping[str, Array], outputs: Mapping[str, Array]
) -> Iterator[tuple[str, Array]]:
    """Yield for each quantized tensor its name and the quantization steps that each element is off.

    Args:
        exposed: of :func:`with_layers`.
        outputs: its outputs, of *feeds*, in the model's order.
    """
    model = unpacked(exposed)
    (graph,) = model.subgraphs
    values = dict(zip(graph.outputs, outputs.values(), strict=True))
    values |= {tensor: feeds[graph.tensors[tensor].name.decode()] for tensor in graph.inputs}
    for operator in graph.operators:
        (tensor,) = operator.outputs
        if not _is_quantized(graph, tensor):
            continue
        inputs = [each for each in operator.inputs if model.buffers[graph.tensors[each].buffer].data is None]
        graph.operators, graph.inputs, graph.outputs = [operator], inputs, [tensor]
        expected = _run(packed(model), [values[each] for each in inputs])
        yield (
            graph.tensors[tensor].name.decode(),
            np.abs(expected.astype(np.int32) - values[tensor].astype(np.int32)),
        )


def _is_quantized(graph: Any, tensor: int) -> bool:
    return graph.tensors[tensor].type in BYTES


def _run(model: bytes, inputs: list[Array]) -> Array:
    """Return the one output, without delegates, as ``adt verify`` computes it."""
    kernels = litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = litert.Interpreter(model_content=model, experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    (detail,) = interpreter.get_output_details()
    return np.asarray(interpreter.get_tensor(detail["index"]))
