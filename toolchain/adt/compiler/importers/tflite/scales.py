"""Quantized TFLite operators, by the converters of the same operators on floats.

Each operator gets its quantized operands as floats, and its results are quantized again. The
interpreter's integer kernels round elsewhere, so results may differ by one quantum at each step.
Weights that are quantized beside floats ("dynamic range") become floats, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

AS_THEY_ARE = ("QUANTIZE", "DEQUANTIZE")
MOVES = (
    "BATCH_TO_SPACE_ND", "DEPTH_TO_SPACE", "DYNAMIC_UPDATE_SLICE", "EXPAND_DIMS", "GATHER", "GATHER_ND",
    "PACK", "RESHAPE", "REVERSE_V2", "SLICE", "SPACE_TO_DEPTH", "SPLIT", "SPLIT_V", "SQUEEZE",
    "STRIDED_SLICE", "TILE", "TRANSPOSE", "UNPACK",
)  # fmt: skip
"""Operators that only move elements: they move the quantized ones where all have the same scale."""
BIAS = {"CONV_2D": 2, "CONV_3D": 2, "DEPTHWISE_CONV_2D": 2, "FULLY_CONNECTED": 2, "TRANSPOSE_CONV": 3}
"""Position of a bias, whose unit is the product of those of the weights (1) and the data (the other one)."""
WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
"""Operators whose second operand can be constant bytes, which adt multiplies as they are."""
BYTES = ("int8", "uint8")
STATEFUL = (
    "BIDIRECTIONAL_SEQUENCE_LSTM", "LSTM", "RNN", "SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "UNIDIRECTIONAL_SEQUENCE_RNN",
)  # fmt: skip
"""Operators with a state that is quantized within, which the converters on floats do not know."""


@dataclass(frozen=True, eq=False)
class Scale:
    """Scale and zero point of a tensor's integers."""

    scale: Floats
    """One, or one for each place of *axis*."""
    zero: int
    axis: int

    @classmethod
    def of(cls, wrapper: Any) -> Scale | None:
        """Return the scale of a tensor, as TVM's importer wraps it; None: it is not quantized."""
        if not (params := wrapper.qnn_params):
            return None
        return cls(params["scale"].data.numpy(), int(params["zero_point"].data.numpy()), params["axis"])

    def floats(self, values: NDArray[np.generic]) -> Floats:
        """Return the numbers that *values* stand for."""
        shape = [1] * values.ndim
        if self.scale.size > 1:
            shape[self.axis] = -1
        return np.asarray((values.astype(np.float32) - self.zero) * self.scale.reshape(shape), np.float32)

    def times(self, other: Scale) -> Scale:
        """Return the scale of products."""
        return Scale(np.asarray(self.scale * other.scale), 0, 0)


class FloatTensor:
    """A quantized tensor of the file that says it is one of floats."""

    def __init__(self, tensor: Any) -> None:
        self.quantized = tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self.quantized, name)

    def Type(self) -> int:
        from tflite.TensorType import TensorType

        return int(TensorType.FLOAT32)


def scales_of(code: str, inputs: list[Any], outputs: list[Any]) -> Mapping[int, Scale] | None:
    """Return the tensors of an operator that become floats, by index; None if its converter takes all."""
    if code in AS_THEY_ARE:
        return None
    scales = {
        wrapper.tensor_idx: scale
        for wrapper in (*inputs, *outputs)
        if wrapper.tensor_idx >= 0 and (scale := Scale.of(wrapper)) is not None
    }
    if code in MOVES and len({(scale.zero, scale.scale.tobytes()) for scale in scales.values()}) == 1:
        return {}
    position = BIAS.get(code, len(inputs))
    if position < len(inputs) and inputs[position].tensor_idx >= 0:
        data, weights = (Scale.of(inputs[i]) for i in (2 if code == "TRANSPOSE_CONV" else 0, 1))
        if data is not None and weights is not None:
            scales[inputs[position].tensor_idx] = data.times(weights)
    return scales
