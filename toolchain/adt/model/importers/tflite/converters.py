"""TVM's converters of TFLite operators: those that fail in 0.25 written anew, quantized ones on floats."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from adt.errors import last_line
from adt.model.importers.op_table import named_nodes
from adt.model.importers.tflite.file import tensor_name
from adt.model.importers.tflite.scales import BYTES, STATEFUL, WEIGHTED, FloatTensor, Scale, scales_of

MENDED = {
    "BATCH_MATMUL": "converted by adt: TVM's fails on constant operands",
    "BATCH_TO_SPACE_ND": "converted by adt: TVM's fails",
    "DEQUANTIZE": "converted by adt: TVM's fails on half-precision and sparse weights",
    "EMBEDDING_LOOKUP": "converted by adt: TVM's takes the table for the rows",
    "EXPAND_DIMS": "converted by adt: TVM's fails",
    "GATHER_ND": "converted by adt: TVM's takes the wrong elements",
    "PRELU": "converted by adt: TVM's repeats the slope for every pixel",
    "RESHAPE": "converted by adt: TVM's fails on a shape that the graph computes",
    "RESIZE_NEAREST_NEIGHBOR": "converted by adt with aligned corners: TVM's takes the wrong pixels",
    "SPACE_TO_BATCH_ND": "converted by adt: TVM's fails",
    "TRANSPOSE_CONV": "converted by adt: TVM cannot compile it in this layout",
    "UNPACK": "converted by adt: TVM's does not end",
}
"""Operators whose converters are ours."""


@dataclass(frozen=True)
class Refusal:
    """An operator of the graph that cannot be converted."""

    op: str
    name: str
    reason: str


def notes(refused: Iterable[Refusal]) -> dict[str, str]:
    """Operator to the reason why its first one is refused, and the names of all."""
    result: dict[str, tuple[str, list[str]]] = {}
    for each in refused:
        result.setdefault(each.op, (each.reason, []))[1].append(each.name)
    return {op: f"{reason}; {named_nodes(names)}" for op, (reason, names) in result.items()}


@functools.cache
def converter_class() -> Any:
    """The class that ``from_tflite`` takes as its ``op_converter``."""
    from tvm import relax
    from tvm.relax.frontend.tflite.tflite_frontend import OperatorConverter, TensorWrapper

    class Converter(OperatorConverter):  # type: ignore[misc]
        def __init__(self, *arguments: Any, refused: list[Refusal] | None = None, **options: Any) -> None:
            """
            Args:
                refused: gets the operators that are refused, and the others are converted, too; None: the
                    first one raises.
            """
            super().__init__(*arguments, **options)
            self.refused = refused
            for op in MENDED:
                self.convert_map[op] = getattr(self, f"convert_{op.lower()}")
            self.convert_map: dict[str, Callable[..., Any]] = {
                code: functools.partial(self._convert, code, function)
                for code, function in self.convert_map.items()
            }
            self.scales: Mapping[int, Scale] | None = None
            """Tensors that are floats to the operator that is being converted; None: there is none."""
            self.weights: int | None = None
            """That of its tensors which holds constant bytes: they stay such, and are dequantized."""

        def unsupported(self) -> dict[str, str]:
            """Operators of the graph that cannot be converted, and why."""
            refused: list[Refusal] = []
            for index in range(self.subgraph.OperatorsLength()):
                operator = self.subgraph.Operators(index)
                code = self.get_op_code_str(operator)
                if code not in self.convert_map:
                    refused.append(Refusal(code, self._name(operator), "no converter in this TVM"))
                elif code in STATEFUL and any(t.qnn_params for t in self.get_input_tensors(operator)):
                    reason = "quantized, and TVM converts it in floating point only"
                    refused.append(Refusal(code, self._name(operator), reason))
            return notes(refused)

        def _name(self, operator: Any) -> str:
            """What stands for the name that operators do not have here: that of the first result."""
            results = self.get_output_tensors(operator)
            return f"(gives {tensor_name(results[0].tensor)})" if results else ""

        def check_unsupported_ops(self) -> None:
            """Asked before: :meth:`unsupported`."""

        def _convert(self, code: str, function: Callable[..., Any], op: Any) -> Any:
            """What *function* converts *op* to; when it fails, unknown values of the types in the file."""
            try:
                return self._on_floats(code, function, op)
            except Exception as error:  # the importer asserts and raises plain Python errors
                if self.refused is None:
                    raise
                reason = f"TVM's importer refuses it: {last_line(error)}"
                self.refused.append(Refusal(code, self._name(op), reason))
            unknown = [
                relax.Var(
                    tensor.tensor.Name().decode(),
                    relax.TensorStructInfo(
                        [int(tensor.tensor.Shape(axis)) for axis in range(tensor.tensor.ShapeLength())],
                        self.get_tensor_type_str(tensor.tensor.Type()),
                    ),
                )
                for tensor in self.get_output_tensors(op)
            ]
            return unknown[0] if len(unknown) == 1 else relax.Tuple(unknown)

        def _on_floats(self, code: str, function: Callable[..., Any], op: Any) -> Any:
            """What *function* converts *op* to, with floats for what is quantized."""
            results = self.get_output_tensors(op)
            given = self.get_input_tensors(op)
            scales = self.scales = scales_of(code, given, results)
            self.weights = self._constant_bytes(given[1]) if scales and code in WEIGHTED else None
            try:
                value = function(op=op)
            finally:
                self.scales = self.weights = None
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

        def _constant_bytes(self, tensor: Any) -> int | None:
            """The index of *tensor* if it holds constant bytes that have a scale."""
            constant = tensor.qnn_params and not self.has_expr(tensor.tensor_idx)
            return (
                tensor.tensor_idx
                if constant and self.get_tensor_type_str(tensor.tensor.Type()) in BYTES
                else None
            )

        def has_expr(self, input_tensor_idx: int) -> bool:
            """Whether it is no number: so are constant bytes that are dequantized."""
            return input_tensor_idx == self.weights or bool(super().has_expr(input_tensor_idx))

        def get_expr(self, input_tensor_idx: int) -> Any:
            """A constant operand too, which some of TVM's converters do not expect."""
            if not self.has_expr(input_tensor_idx):
                return self.get_tensor_expr(self.get_tensors([input_tensor_idx])[0])
            if input_tensor_idx == self.weights:
                (tensor,) = super().get_tensors([input_tensor_idx])
                return self.bb.normalize(
                    self.dequantize(relax.const(super().get_tensor_value(tensor)), tensor)
                )
            value = super().get_expr(input_tensor_idx)
            if self.scales is None or input_tensor_idx not in self.scales:
                return value
            (tensor,) = super().get_tensors([input_tensor_idx])
            return self.bb.normalize(self.dequantize(value, tensor))

        def _options(self, op: Any, kind: str) -> Any:
            """The operator's options, a table of the schema's *kind*."""
            import tflite

            options = getattr(tflite, kind)()
            options.Init(op.BuiltinOptions().Bytes, op.BuiltinOptions().Pos)
            return options

        def convert_batch_matmul(self, op: Any) -> Any:
            """Relax's matmul takes batches of any rank and broadcasts them."""
            left, right = self.get_input_tensors(op)
            if left.qnn_params or right.qnn_params:
                return super().convert_batch_matmul(op)
            options = self._options(op, "BatchMatMulOptions")
            operands = []
            for tensor, transposed in ((left, options.AdjX()), (right, options.AdjY())):
                value = self.bb.normalize(self.get_expr(tensor.tensor_idx))
                rank = len(value.struct_info.shape)
                axes = [*range(rank - 2), rank - 1, rank - 2]
                operands.append(
                    self.bb.normalize(relax.op.permute_dims(value, axes)) if transposed else value
                )
            return relax.op.matmul(*operands)

        def convert_batch_to_space_nd(self, op: Any) -> Any:
            """Blocks of the batch become blocks of the axes after it; the borders are cut."""
            data, block, crops = self._blocks(op)
            batch, *extents = (int(extent) for extent in data.struct_info.shape)
            count = len(block)
            smaller = batch // math.prod(block)
            apart = relax.op.reshape(data, [*block, smaller, *extents])
            order = [count, *(axis for i in range(count) for axis in (count + 1 + i, i))]
            apart = relax.op.permute_dims(apart, [*order, *range(2 * count + 1, count + 1 + len(extents))])
            larger = [extent * size for extent, size in zip(extents, block, strict=False)]
            whole = relax.op.reshape(apart, [smaller, *larger, *extents[count:]])
            ends = [extent - after for extent, (_, after) in zip(larger, crops, strict=True)]
            return relax.op.strided_slice(
                whole, list(range(1, count + 1)), [before for before, _ in crops], ends
            )

        def convert_resize_nearest_neighbor(self, op: Any) -> Any:
            """TFLite rounds where the corners are aligned, and takes the pixel before elsewhere."""
            data, size = self.get_input_tensors(op)
            options = self._options(op, "ResizeNearestNeighborOptions")
            if not options.AlignCorners() or options.HalfPixelCenters():
                return super().convert_resize_nearest_neighbor(op)
            extents = [int(extent) for extent in self.get_tensor_value(size)]
            return relax.op.image.resize2d(
                self.get_tensor_expr(data), extents, None, "NHWC", "nearest_neighbor", "align_corners",
                "round_prefer_ceil",
            )  # fmt: skip

        def convert_space_to_batch_nd(self, op: Any) -> Any:
            """Blocks of the axes after the batch, padded with zeros, become blocks of the batch."""
            data, block, pads = self._blocks(op)
            batch, *extents = (int(extent) for extent in data.struct_info.shape)
            count = len(block)
            rest = extents[count:]
            widths = [0, 0, *(width for pair in pads for width in pair), *[0] * (2 * len(rest))]
            padded = relax.op.nn.pad(data, widths)
            smaller = [
                (extent + sum(pair)) // size for extent, pair, size in zip(extents, pads, block, strict=False)
            ]
            pairs = [each for pair in zip(smaller, block, strict=True) for each in pair]
            apart = relax.op.reshape(padded, [batch, *pairs, *rest])
            order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2)]
            apart = relax.op.permute_dims(apart, [*order, *range(2 * count + 1, 2 * count + 1 + len(rest))])
            return relax.op.reshape(apart, [batch * math.prod(block), *smaller, *rest])

        def _blocks(self, op: Any) -> tuple[Any, list[int], list[list[int]]]:
            """Data, block shape, and what is padded or cut before and after each axis of it."""
            data, block, borders = self.get_input_tensors(op)
            value = self.bb.normalize(self.get_tensor_expr(data))
            return value, self.get_tensor_value(block).tolist(), self.get_tensor_value(borders).tolist()

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

        def convert_embedding_lookup(self, op: Any) -> Any:
            rows, table = (self.get_tensor_expr(tensor) for tensor in self.get_input_tensors(op))
            return relax.op.take(table, rows, axis=0)

        def convert_gather_nd(self, op: Any) -> Any:
            data, indices = (self.get_tensor_expr(tensor) for tensor in self.get_input_tensors(op))
            return relax.op.gather_nd(data, self.bb.normalize(relax.op.astype(indices, "int64")))

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

        def convert_transpose_conv(self, op: Any) -> Any:
            """In the layout that TVM compiles; the file's result tells what is padded."""
            _, weights, data, *bias = self.get_input_tensors(op)
            (result,) = self.get_output_tensors(op)
            options = self._options(op, "TransposeConvOptions")
            strides = [options.StrideH(), options.StrideW()]
            value, kernel = (self.bb.normalize(self.get_tensor_expr(tensor)) for tensor in (data, weights))
            extents, reach = ([int(e) for e in each.struct_info.shape][1:3] for each in (value, kernel))
            beyond = [
                (extents[axis] - 1) * strides[axis] + reach[axis] - int(result.tensor.Shape(axis + 1))
                for axis in range(2)
            ]
            before = [max(0, size) // 2 for size in beyond]
            after = [max(0, size) - first for size, first in zip(beyond, before, strict=True)]
            out = relax.op.nn.conv2d_transpose(
                relax.op.permute_dims(value, [0, 3, 1, 2]),
                relax.op.permute_dims(kernel, [3, 0, 1, 2]),
                strides=strides,
                padding=[*before, *after],
                output_padding=[max(0, -size) for size in beyond],
            )
            out = relax.op.permute_dims(out, [0, 2, 3, 1])
            if bias and bias[0].tensor_idx >= 0:
                out = relax.op.add(out, self.get_tensor_expr(bias[0]))
            return self.convert_fused_activation_function(out, options.FusedActivationFunction())

        def convert_unpack(self, op: Any) -> Any:
            (data,) = self.get_input_tensors(op)
            options = self._options(op, "UnpackOptions")
            value, axis = self.get_tensor_expr(data), options.Axis()
            if options.Num() == 1:
                return relax.op.squeeze(value, [axis])
            parts = self.bb.normalize(relax.op.split(value, options.Num(), axis))
            return relax.Tuple([relax.op.squeeze(parts[index], [axis]) for index in range(options.Num())])

    return Converter
