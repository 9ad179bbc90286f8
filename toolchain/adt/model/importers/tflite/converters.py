"""TVM's converters of TFLite operators: those that fail in 0.25 written anew, quantized ones on floats."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from adt.model.importers.tflite.quantized import STATEFUL, FloatTensor, Scale, scales_of

MENDED = {
    "BATCH_MATMUL": "converted by adt: TVM's fails on constant operands",
    "DEQUANTIZE": "converted by adt: TVM's fails on half-precision and sparse weights",
    "EXPAND_DIMS": "converted by adt: TVM's fails",
    "PRELU": "converted by adt: TVM's repeats the slope for every pixel",
    "RESHAPE": "converted by adt: TVM's fails on a shape that the graph computes",
}
"""Operators whose converters are ours."""


@functools.cache
def converter_class() -> Any:
    """The class that ``from_tflite`` takes as its ``op_converter``."""
    from tvm import relax
    from tvm.relax.frontend.tflite.tflite_frontend import OperatorConverter, TensorWrapper

    class Converter(OperatorConverter):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            for op, function in (
                ("BATCH_MATMUL", self.convert_batch_matmul),
                ("DEQUANTIZE", self.convert_dequantize),
                ("EXPAND_DIMS", self.convert_expand_dims),
                ("PRELU", self.convert_prelu),
                ("RESHAPE", self.convert_reshape),
            ):
                self.convert_map[op] = function
            self.convert_map: dict[str, Callable[..., Any]] = {
                code: functools.partial(self._on_floats, code, function)
                for code, function in self.convert_map.items()
            }
            self.scales: Mapping[int, Scale] | None = None
            """Tensors that are floats to the operator that is being converted; None: there is none."""

        def unsupported(self) -> dict[str, str]:
            """Operators of the graph that cannot be converted, and why."""
            operators = [self.subgraph.Operators(index) for index in range(self.subgraph.OperatorsLength())]
            codes = [(self.get_op_code_str(operator), operator) for operator in operators]
            missing = {code: "no converter in this TVM" for code, _ in codes if code not in self.convert_map}
            return missing | {
                code: "quantized, and TVM converts it in floating point only"
                for code, operator in codes
                if code in STATEFUL and any(tensor.qnn_params for tensor in self.get_input_tensors(operator))
            }

        def check_unsupported_ops(self) -> None:
            """Asked before: :meth:`unsupported`."""

        def _on_floats(self, code: str, function: Callable[..., Any], op: Any) -> Any:
            """What *function* converts *op* to, with floats for what is quantized."""
            results = self.get_output_tensors(op)
            scales = self.scales = scales_of(code, self.get_input_tensors(op), results)
            try:
                value = function(op=op)
            finally:
                self.scales = None
            if value is None or not results:
                return value
            value = self.bb.normalize(value)
            parts = [value] if len(results) == 1 else [value[index] for index in range(len(results))]
            typed = [
                self.quantize(part, tensor)
                if tensor.tensor_idx in (scales or {})
                else self._cast(part, tensor)
                for part, tensor in zip(parts, results, strict=True)
            ]
            return typed[0] if len(typed) == 1 else relax.Tuple(typed)

        def _cast(self, value: Any, tensor: Any) -> Any:
            """Whole numbers in the type that the file says: some of TVM's converters take another."""
            dtype = str(self.bb.normalize(value).struct_info.dtype)
            declared = self.get_tensor_type_str(tensor.tensor.Type()) if "int" in dtype else dtype
            return value if dtype == declared else relax.op.astype(value, declared)

        def get_tensors(self, tensors_idx_list: Any) -> list[Any]:
            wrappers: list[Any] = super().get_tensors(tensors_idx_list)
            if self.scales is None:
                return wrappers
            return [
                TensorWrapper(
                    each.tensor_idx,
                    FloatTensor(each.tensor) if each.tensor_idx in self.scales else each.tensor,
                    each.buffer,
                )
                for each in wrappers
            ]

        def get_tensor_value(self, tensor_wrapper: Any, is_sparse: bool = False) -> Any:
            tensor = tensor_wrapper.tensor
            if not isinstance(tensor, FloatTensor) or self.scales is None:
                return super().get_tensor_value(tensor_wrapper, is_sparse)
            index = tensor_wrapper.tensor_idx
            wrapper = TensorWrapper(index, tensor.quantized, tensor_wrapper.buffer)
            return self.scales[index].floats(super().get_tensor_value(wrapper, is_sparse))

        def get_expr(self, input_tensor_idx: int) -> Any:
            """A constant operand too, which some of TVM's converters do not expect."""
            if not self.has_expr(input_tensor_idx):
                return self.get_tensor_expr(self.get_tensors([input_tensor_idx])[0])
            value = super().get_expr(input_tensor_idx)
            if self.scales is None or input_tensor_idx not in self.scales:
                return value
            (tensor,) = super().get_tensors([input_tensor_idx])
            return self.bb.normalize(self.dequantize(value, tensor))

        def convert_batch_matmul(self, op: Any) -> Any:
            """Relax's matmul takes batches of any rank and broadcasts them."""
            from tflite.BatchMatMulOptions import BatchMatMulOptions

            left, right = self.get_input_tensors(op)
            if left.qnn_params or right.qnn_params:
                return super().convert_batch_matmul(op)
            options = BatchMatMulOptions()
            options.Init(op.BuiltinOptions().Bytes, op.BuiltinOptions().Pos)
            operands = []
            for tensor, transposed in ((left, options.AdjX()), (right, options.AdjY())):
                value = self.bb.normalize(self.get_expr(tensor.tensor_idx))
                rank = len(value.struct_info.shape)
                axes = [*range(rank - 2), rank - 1, rank - 2]
                operands.append(
                    self.bb.normalize(relax.op.permute_dims(value, axes)) if transposed else value
                )
            return relax.op.matmul(*operands)

        def convert_dequantize(self, op: Any) -> Any:
            """Weights in half precision, dense or sparse, become constants in single precision."""
            import numpy as np
            from tflite.TensorType import TensorType

            (tensor,) = self.get_input_tensors(op)
            if tensor.tensor.Type() != TensorType.FLOAT16 or self.has_expr(tensor.tensor_idx):
                if tensor.tensor.Type() == TensorType.FLOAT16:
                    return relax.op.astype(self.get_expr(tensor.tensor_idx), "float32")
                return super().convert_dequantize(op)
            value = np.asarray(self.get_tensor_value_or_prefetched(tensor)).astype("float32")
            return self.exp_tab.new_const(value, dtype="float32", source_name=tensor.tensor.Name())

        def convert_expand_dims(self, op: Any) -> Any:
            data, axis = self.get_input_tensors(op)
            where = int(self.get_tensor_value(axis).reshape(()))
            return relax.op.expand_dims(self.get_tensor_expr(data), axis=where)

        def convert_prelu(self, op: Any) -> Any:
            data, slope = self.get_input_tensors(op)
            value, alpha = self.get_tensor_expr(data), self.get_tensor_expr(slope)
            shape = [int(extent) for extent in alpha.struct_info.shape]
            rank = len(value.struct_info.shape)
            if shape and all(extent == 1 for extent in shape[:-1]) and len(shape) <= rank:
                flat = self.bb.normalize(relax.op.reshape(alpha, [shape[-1]]))
                if shape[-1] == int(value.struct_info.shape[-1]):
                    return relax.op.nn.prelu(value, flat, axis=rank - 1)
            zero = relax.const(0, value.struct_info.dtype)
            below = relax.op.multiply(relax.op.minimum(value, zero), alpha)
            return relax.op.add(relax.op.maximum(value, zero), below)

        def convert_reshape(self, op: Any) -> Any:
            """To the shape that the file states for the output; it is fixed like every other."""
            data = self.get_input_tensors(op)[0]
            (out,) = self.get_output_tensors(op)
            if data.qnn_params and not self.has_same_qnn_params(data, out):
                return super().convert_reshape(op)
            shape = [int(extent) for extent in out.tensor.ShapeAsNumpy()] if out.tensor.ShapeLength() else []
            return relax.op.reshape(self.get_tensor_expr(data), shape)

    return Converter
