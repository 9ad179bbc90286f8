"""TVM's converters of TFLite operators: those that fail in 0.25 written anew, quantized ones on floats."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.relax.frontend.tflite.tflite_frontend import (
    ExprTable,
    OperatorConverter,
    TensorWrapper,
    get_pad_value,
)

from adt.compiler.importers.op_table import NO_CONVERTER, RANDOM, refusal_notes
from adt.compiler.importers.tflite.additions import ADDED
from adt.compiler.importers.tflite.file import tensor_name, unread_option
from adt.compiler.importers.tflite.scales import BYTES, STATEFUL, WEIGHTED, FloatTensor, Scale, scales_of
from adt.errors import last_line

MENDED = {
    "BATCH_MATMUL": "converted by adt: TVM's fails on constant operands",
    "BATCH_TO_SPACE_ND": "converted by adt: TVM's fails",
    "CAST": "converted by adt: TVM's takes the option's type for the tensor's",
    "CUMSUM": "converted by adt from the end: TVM's fails",
    "DEPTHWISE_CONV_2D": "converted by adt with several filters per channel: TVM's fails",
    "DEQUANTIZE": "converted by adt: TVM's fails on half-precision and sparse weights",
    "EMBEDDING_LOOKUP": "converted by adt: TVM's takes the table for the rows",
    "EXPAND_DIMS": "converted by adt: TVM's fails",
    "FULLY_CONNECTED": "converted by adt: TVM's keeps the axes of the data",
    "GATHER": "converted by adt: TVM's does not know axes of the batch",
    "GATHER_ND": "converted by adt: TVM's takes the wrong elements",
    "GELU": "converted by adt where it is approximate: TVM's is exact",
    "MIRROR_PAD": "converted by adt where the border is repeated: TVM's fails",
    "PRELU": "converted by adt: TVM's repeats the slope for every pixel",
    "RESHAPE": "converted by adt: TVM's fails on a shape that the graph computes",
    "RESIZE_BILINEAR": "converted by adt with aligned corners: TVM's fails on one pixel",
    "RESIZE_NEAREST_NEIGHBOR": "converted by adt with aligned corners: TVM's takes the wrong pixels",
    "SOFTMAX": "converted by adt with a factor: TVM's does not read it",
    "SPACE_TO_BATCH_ND": "converted by adt: TVM's fails",
    "SPLIT_V": "converted by adt: TVM's does not know the size -1",
    "SQUARED_DIFFERENCE": "converted by adt: TVM cannot compile it on integers",
    "SQUEEZE": "converted by adt: TVM's keeps the axes when none is named",
    "STABLEHLO_COMPOSITE": "converted by adt as what it is composed of",
    "TRANSPOSE_CONV": "converted by adt: TVM cannot compile it in this layout",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "converted by adt where time comes first: TVM's swaps the result's axes",
    "UNPACK": "converted by adt: TVM's does not end",
}
"""Operators whose converters are ours."""

RANDOM_OPS = ("MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM", "STABLEHLO_RNG_BIT_GENERATOR")
UNRUNNABLE = ("CONV_3D_TRANSPOSE", "MATRIX_DIAG", "MATRIX_SET_DIAG", "SPARSE_TO_DENSE", *RANDOM_OPS)
"""Operators that TVM converts to what it cannot compile, or to functions that no runtime has."""


@dataclass(frozen=True)
class Refusal:
    """An operator of the graph that cannot be converted."""

    op: str
    name: str
    reason: str
    differs: bool = False
    """True if it is converted to a tensor that is not the file's."""


def notes(refused: Iterable[Refusal]) -> dict[str, str]:
    """Return the reason of each operator's first refusal, with the names of all."""
    return refusal_notes((each.op, each.name, each.reason) for each in refused)


def _shape(wrapper: Any) -> list[int]:
    """Return the extents of a tensor, as the file states them."""
    return [int(wrapper.tensor.Shape(axis)) for axis in range(wrapper.tensor.ShapeLength())]


def _extents(value: Any) -> list[int]:
    return [int(extent) for extent in value.struct_info.shape]


class Converter(OperatorConverter):  # type: ignore[misc]
    """TVM's converters with adt's, for ``from_tflite``."""

    def __init__(self, *arguments: Any, refused: list[Refusal] | None = None, **options: Any) -> None:
        """Let *refused* get the operators that are refused."""
        super().__init__(*arguments, **options)
        # converters of subgraphs get the same state, and nothing else
        self.refused: list[Refusal] = self.conversion_state.setdefault(
            "refused", [] if refused is None else refused
        )
        ours = {op: getattr(self, f"convert_{op.lower()}") for op in MENDED}
        added = {op: functools.partial(function, self) for op, function in ADDED.items()}
        self.convert_map: dict[str, Callable[..., Any]] = {
            code: functools.partial(self._convert, code, function)
            for code, function in (self.convert_map | ours | added).items()
            if code not in UNRUNNABLE
        }
        self.scales: Mapping[int, Scale] | None = None
        """Tensors that are floats to the operator that is being converted; None: there is none."""
        self.weights: int | None = None
        """Index of its tensor that holds constant bytes: they stay such, and are dequantized."""

    def unsupported(self) -> dict[str, str]:
        """Map the operators of the graph that cannot be converted to the reasons."""
        refused: list[Refusal] = []
        for index in range(self.subgraph.OperatorsLength()):
            operator = self.subgraph.Operators(index)
            code = self.get_op_code_str(operator)
            reason = ""
            if code not in self.convert_map:
                reason = RANDOM if code in RANDOM_OPS else NO_CONVERTER
            elif code in STATEFUL and any(t.qnn_params for t in self.get_input_tensors(operator)):
                reason = "quantized, and TVM converts it in floating point only"
            if reason:
                refused.append(Refusal(code, self._name(operator), reason))
        return notes(refused)

    def _name(self, operator: Any) -> str:
        """Return the name of its first result, since operators have none here."""
        results = self.get_output_tensors(operator)
        return f"(gives {tensor_name(results[0].tensor)})" if results else ""

    def check_unsupported_ops(self) -> None:
        """Do nothing: :meth:`unsupported` was asked before."""

    def _convert(self, code: str, function: Callable[..., Any], op: Any) -> Any:
        """Convert *op* by *function*; a refused one gives unknown values of the types in the file."""
        reason, difference = unread_option(op), ""
        if not reason:
            try:
                value = self._on_floats(code, function, op)
                difference = reason = self._difference(value, op)
                if not reason:
                    return value
            except Exception as error:  # the importer asserts and raises plain Python errors
                reason = f"TVM's importer refuses it: {last_line(error)}"
        self.refused.append(Refusal(code, self._name(op), reason, bool(difference)))
        unknown = []
        for result in self.get_output_tensors(op):
            info = relax.TensorStructInfo(_shape(result), self._dtype(result))
            unknown.append(relax.Var(result.tensor.Name().decode(), info))
        return unknown[0] if len(unknown) == 1 else relax.Tuple(unknown)

    def _dtype(self, wrapper: Any) -> str:
        return str(self.get_tensor_type_str(wrapper.tensor.Type()))

    def _difference(self, value: Any, op: Any) -> str:
        """Describe a result whose type or shape is not the file's; empty when there is none."""
        results = self.get_output_tensors(op)
        if value is None or not results:
            return ""
        info = self.bb.normalize(value).struct_info
        fields = list(info.fields) if isinstance(info, relax.TupleStructInfo) else [info]
        for place, (field, tensor) in enumerate(zip(fields, results, strict=True)):
            extents = list(getattr(getattr(field, "shape", None), "values", None) or ())
            if not all(isinstance(extent, tirx.IntImm) for extent in extents):
                continue  # depends on values
            shape, declared = list(map(int, extents)), _shape(tensor)
            dtype = self._dtype(tensor)
            same_shape = shape == declared or not (declared or tensor.tensor.HasRank())
            if hasattr(field, "dtype") and not (same_shape and field.dtype == dtype):
                return f"output {place} becomes {field.dtype} {shape}, and is {dtype} {declared} in the file"
        return ""

    def _on_floats(self, code: str, function: Callable[..., Any], op: Any) -> Any:
        """Convert *op* by *function*, with floats for what is quantized."""
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
            self.quantize(part, tensor) if tensor.tensor_idx in (scales or {}) else self._cast(part, tensor)
            for part, tensor in zip(parts, results, strict=True)
        ]
        return typed[0] if len(typed) == 1 else relax.Tuple(typed)

    def _cast(self, value: Any, tensor: Any) -> Any:
        """Cast integers to the type in the file: some of TVM's converters take another."""
        dtype = str(self.bb.normalize(value).struct_info.dtype)
        declared = self._dtype(tensor) if "int" in dtype else dtype
        return value if dtype == declared else relax.op.astype(value, declared)

    def get_tensors(self, tensors_idx_list: Any) -> list[Any]:
        wrappers: list[Any] = super().get_tensors(tensors_idx_list)
        if self.scales is not None:
            for each in wrappers:
                each.qnn_params = None
                if each.tensor_idx in self.scales:
                    each.tensor = FloatTensor(each.tensor)
        return wrappers

    def get_tensor_value(self, tensor_wrapper: Any, is_sparse: bool = False) -> Any:
        tensor = tensor_wrapper.tensor
        if not isinstance(tensor, FloatTensor) or self.scales is None:
            return super().get_tensor_value(tensor_wrapper, is_sparse)
        index = tensor_wrapper.tensor_idx
        wrapper = TensorWrapper(index, tensor.quantized, tensor_wrapper.buffer)
        return self.scales[index].floats(super().get_tensor_value(wrapper, is_sparse))

    def _constant_bytes(self, tensor: Any) -> int | None:
        """Return the index of *tensor* if it holds constant bytes that have a scale."""
        constant = tensor.qnn_params and not self.has_expr(tensor.tensor_idx)
        return tensor.tensor_idx if constant and self._dtype(tensor) in BYTES else None

    def has_expr(self, input_tensor_idx: int) -> bool:
        """Return True if it is no number: so are constant bytes that are dequantized."""
        return input_tensor_idx == self.weights or bool(super().has_expr(input_tensor_idx))

    def get_expr(self, input_tensor_idx: int) -> Any:
        """Return an operand; a constant one, too, which some of TVM's converters do not expect."""
        if not self.has_expr(input_tensor_idx):
            return self.get_tensor_expr(self.get_tensors([input_tensor_idx])[0])
        if input_tensor_idx != self.weights and input_tensor_idx not in (self.scales or {}):
            return super().get_expr(input_tensor_idx)
        (tensor,) = super().get_tensors([input_tensor_idx])
        if input_tensor_idx == self.weights:
            value = relax.const(super().get_tensor_value(tensor))
        else:
            value = super().get_expr(input_tensor_idx)
        return self.bb.normalize(self.dequantize(value, tensor))

    def _options(self, op: Any, kind: str) -> Any:
        """Read the operator's options, a table of the schema's *kind*."""
        import tflite

        options = getattr(tflite, kind)()
        options.Init(op.BuiltinOptions().Bytes, op.BuiltinOptions().Pos)
        return options

    def convert_batch_matmul(self, op: Any) -> Any:
        """Convert BATCH_MATMUL: Relax's matmul takes batches of any rank and broadcasts them."""
        left, right = self.get_input_tensors(op)
        options = self._options(op, "BatchMatMulOptions")
        operands = []
        for tensor, transposed in ((left, options.AdjX()), (right, options.AdjY())):
            value = self.bb.normalize(self.get_expr(tensor.tensor_idx))
            rank = value.struct_info.ndim
            axes = [*range(rank - 2), rank - 1, rank - 2]
            operands.append(self.bb.normalize(relax.op.permute_dims(value, axes)) if transposed else value)
        return relax.op.matmul(*operands)

    def convert_batch_to_space_nd(self, op: Any) -> Any:
        """Convert BATCH_TO_SPACE_ND: blocks of the batch go to the axes after it; borders are cut."""
        data, block, crops = self._blocks(op)
        batch, *extents = _extents(data)
        count = len(block)
        smaller = batch // math.prod(block)
        apart = relax.op.reshape(data, [*block, smaller, *extents])
        order = [count, *(axis for i in range(count) for axis in (count + 1 + i, i))]
        apart = relax.op.permute_dims(apart, [*order, *range(2 * count + 1, count + 1 + len(extents))])
        larger = [extent * size for extent, size in zip(extents, block, strict=False)]
        whole = relax.op.reshape(apart, [smaller, *larger, *extents[count:]])
        ends = [extent - after for extent, (_, after) in zip(larger, crops, strict=True)]
        return relax.op.strided_slice(whole, list(range(1, count + 1)), [before for before, _ in crops], ends)

    def convert_resize_bilinear(self, op: Any) -> Any:
        if not self._options(op, "ResizeBilinearOptions").AlignCorners():
            return super().convert_resize_bilinear(op)
        return self._aligned(op, "linear")

    def convert_resize_nearest_neighbor(self, op: Any) -> Any:
        """Convert RESIZE_NEAREST_NEIGHBOR: it rounds only where the corners are aligned."""
        options = self._options(op, "ResizeNearestNeighborOptions")
        if not options.AlignCorners() or options.HalfPixelCenters():
            return super().convert_resize_nearest_neighbor(op)
        return self._aligned(op, "nearest_neighbor")

    def _aligned(self, op: Any, method: str) -> Any:
        """Resize with aligned corners; an axis of one pixel to two, of which the first is taken.

        The distance of the corners is a divisor.
        """
        data, size = self.get_input_tensors(op)
        extents = [int(extent) for extent in self.get_tensor_value(size)]
        resized = relax.op.image.resize2d(
            self.get_tensor_expr(data), [max(extent, 2) for extent in extents], None, "NHWC", method,
            "align_corners", "round_prefer_ceil" if method == "nearest_neighbor" else "",
        )  # fmt: skip
        return relax.op.strided_slice(resized, [1, 2], [0, 0], extents) if 1 in extents else resized

    def convert_space_to_batch_nd(self, op: Any) -> Any:
        """Convert SPACE_TO_BATCH_ND: blocks of padded axes become blocks of the batch."""
        data, block, pads = self._blocks(op)
        batch, *extents = _extents(data)
        count = len(block)
        rest = extents[count:]
        padded = relax.op.nn.pad(data, [0, 0, *itertools.chain(*pads), *[0] * (2 * len(rest))])
        sizes = zip(extents, pads, block, strict=False)
        smaller = [(extent + sum(pair)) // size for extent, pair, size in sizes]
        pairs = itertools.chain(*zip(smaller, block, strict=True))
        apart = relax.op.reshape(padded, [batch, *pairs, *rest])
        order = [*range(2, 2 * count + 1, 2), 0, *range(1, 2 * count, 2)]
        apart = relax.op.permute_dims(apart, [*order, *range(2 * count + 1, 2 * count + 1 + len(rest))])
        return relax.op.reshape(apart, [batch * math.prod(block), *smaller, *rest])

    def _blocks(self, op: Any) -> tuple[Any, list[int], list[list[int]]]:
        """Return data, block shape, and what is padded or cut before and after each of its axes."""
        data, block, borders = self.get_input_tensors(op)
        value = self.bb.normalize(self.get_tensor_expr(data))
        return value, self.get_tensor_value(block).tolist(), self.get_tensor_value(borders).tolist()

    def convert_cast(self, op: Any) -> Any:
        (data,), (result,) = self.get_input_tensors(op), self.get_output_tensors(op)
        return relax.op.astype(self.get_expr(data.tensor_idx), self._dtype(result))

    def convert_cumsum(self, op: Any) -> Any:
        """Convert CUMSUM: sums from the end are those from the start of the reversed axis."""
        options = self._options(op, "CumsumOptions")
        data, axis = self.get_input_tensors(op)
        if not options.Reverse():
            return super().convert_cumsum(op)
        where = int(self.get_tensor_value(axis).reshape(()))
        turned = relax.op.flip(self.get_tensor_expr(data), where)
        return relax.op.flip(relax.op.cumsum(turned, where, None, options.Exclusive()), where)

    def convert_depthwise_conv_2d(self, op: Any) -> Any:
        """Convert DEPTHWISE_CONV_2D: a channel's filters follow one another, as in groups."""
        data, weights, *bias = self.get_input_tensors(op)
        (_, height, width, channels), (_, *reach, filters) = _shape(data), _shape(weights)
        if filters == channels or channels == 1:
            return self.convert_conv(op, "depthwise")
        options = self._options(op, "DepthwiseConv2DOptions")
        strides = [options.StrideH(), options.StrideW()]
        dilation = [options.DilationHFactor(), options.DilationWFactor()]
        pads = [
            get_pad_value(extent, apart * (size - 1) + 1, stride) if options.Padding() == 0 else (0, 0)
            for extent, size, apart, stride in zip((height, width), reach, dilation, strides, strict=True)
        ]
        padding = [*(before for before, _ in pads), *(after for _, after in pads)]
        value, kernel = (self.get_tensor_expr(each) for each in (data, weights))
        kernel = relax.op.reshape(kernel, [*reach, filters, 1])
        out = relax.op.nn.conv2d(value, kernel, strides, padding, dilation, channels, "NHWC", "HWOI")
        return self._biased(out, bias, options)

    def _biased(self, value: Any, bias: list[Any], options: Any) -> Any:
        """Add the operand *bias* where there is one, and apply the fused activation."""
        if bias and bias[0].tensor_idx >= 0:
            value = relax.op.add(value, self.get_tensor_expr(bias[0]))
        return self.convert_fused_activation_function(value, options.FusedActivationFunction())

    def convert_dequantize(self, op: Any) -> Any:
        """Convert DEQUANTIZE: weights in half precision, dense or sparse, become constants in single."""
        (tensor,) = self.get_input_tensors(op)
        if self._dtype(tensor) != "float16":
            return super().convert_dequantize(op)
        if self.has_expr(tensor.tensor_idx):
            return relax.op.astype(self.get_expr(tensor.tensor_idx), "float32")
        value = np.asarray(self.get_tensor_value_or_prefetched(tensor)).astype("float32")
        return self.exp_tab.new_const(value, dtype="float32", source_name=tensor.tensor.Name())

    def convert_expand_dims(self, op: Any) -> Any:
        data, axis = self.get_input_tensors(op)
        where = int(self.get_tensor_value(axis).reshape(()))
        return relax.op.expand_dims(self.get_tensor_expr(data), axis=where)

    def convert_embedding_lookup(self, op: Any) -> Any:
        rows, table = (self.get_tensor_expr(tensor) for tensor in self.get_input_tensors(op))
        return relax.op.take(table, rows, axis=0)

    def convert_fully_connected(self, op: Any) -> Any:
        """Convert FULLY_CONNECTED: rows are as long as the weights', whatever the data's axes."""
        data, weights, *bias = self.get_input_tensors(op)
        options = self._options(op, "FullyConnectedOptions")
        value = self.bb.normalize(self.get_tensor_expr(data))
        extents, (_, length) = _extents(value), _shape(weights)
        rows = extents[:-1] if options.KeepNumDims() else [math.prod(extents) // length]
        if extents != [*rows, length]:
            value = relax.op.reshape(value, [*rows, length])
        columns = relax.op.permute_dims(self.get_tensor_expr(weights), [1, 0])
        return self._biased(relax.op.matmul(value, columns), bias, options)

    def convert_gather(self, op: Any) -> Any:
        """Convert GATHER: the batch's axes join the axis; each place gets indices of its own."""
        data, places = self.get_input_tensors(op)
        options = self._options(op, "GatherOptions")
        value, indices = (self.bb.normalize(self.get_tensor_expr(each)) for each in (data, places))
        extents, counts = _extents(value), _extents(indices)
        axis, batch = options.Axis() % len(extents), options.BatchDims()
        batch += len(counts) if batch < 0 else 0
        if not self.has_expr(places.tensor_idx):
            constant = self.get_tensor_value(places)
            if constant.size and not 0 <= constant.min() <= constant.max() < extents[axis]:
                raise ValueError(f"an index is outside 0 to {extents[axis] - 1}")
        if not batch:
            return relax.op.take(value, indices, axis, mode="fast")
        size, sets = extents[axis], math.prod(extents[:batch])
        before, rest = extents[batch:axis], extents[axis + 1 :]
        order = [*range(batch), axis, *range(batch, axis), *range(axis + 1, len(extents))]
        flat = relax.op.reshape(relax.op.permute_dims(value, order), [sets * size, *before, *rest])
        starts = relax.const(np.arange(sets).reshape(sets, 1) * size, indices.struct_info.dtype)
        indices = relax.op.reshape(indices, [sets, math.prod(counts[batch:])])
        taken = relax.op.take(flat, relax.op.add(indices, starts), 0, mode="fast")
        taken = relax.op.reshape(taken, [*extents[:batch], *counts[batch:], *before, *rest])
        first, last = len(counts), len(counts) + len(before)
        order = [*range(batch), *range(first, last), *range(batch, first), *range(last, last + len(rest))]
        return relax.op.permute_dims(taken, order)

    def convert_gelu(self, op: Any) -> Any:
        if not self._options(op, "GeluOptions").Approximate():
            return super().convert_gelu(op)
        (data,) = self.get_input_tensors(op)
        return relax.op.nn.gelu_tanh(self.get_expr(data.tensor_idx))

    def convert_mirror_pad(self, op: Any) -> Any:
        """Convert MIRROR_PAD: the border is repeated in the symmetric mode (1) only."""
        if self._options(op, "MirrorPadOptions").Mode() != 1:
            return super().convert_mirror_pad(op)
        data, widths = self.get_input_tensors(op)
        value = self.get_tensor_expr(data)
        for axis, width in enumerate(self.get_tensor_value(widths)):
            places = np.pad(np.arange(_shape(data)[axis], dtype="int32"), width, mode="symmetric")
            value = relax.op.take(value, relax.const(places), axis) if any(width) else value
        return value

    def convert_squared_difference(self, op: Any) -> Any:
        pair = [self.get_tensor_expr(each) for each in self.get_input_tensors(op)]
        return relax.op.square(relax.op.subtract(*pair))

    def convert_squeeze(self, op: Any) -> Any:
        """Convert SQUEEZE: without all axes of one element when none is named."""
        (data,) = self.get_input_tensors(op)
        options = self._options(op, "SqueezeOptions")
        axes = [int(options.SqueezeDims(place)) for place in range(options.SqueezeDimsLength())]
        return relax.op.squeeze(self.get_expr(data.tensor_idx), axes or None)

    def convert_stablehlo_composite(self, op: Any) -> Any:
        """Convert STABLEHLO_COMPOSITE to its subgraph, which has the attributes."""
        import tflite

        options = self._get_stablehlo_options(op, tflite.StableHLOCompositeOptions)
        subgraph, table = self.model.Subgraphs(options.DecompositionSubgraphIndex()), ExprTable()
        inner = type(self)(self.model, subgraph, table, self.bb, self.conversion_state)
        given = inner.get_tensors(subgraph.InputsAsNumpy())
        for parameter, tensor in zip(given, self.get_input_tensors(op), strict=True):
            table.set_expr(parameter.tensor.Name().decode(), self.get_tensor_expr(tensor), True)
        inner.convert_op_to_relax()
        for constant in table.params.values():
            self.exp_tab.params[f"_param_{self.exp_tab.const_ctr}"] = constant
            self.exp_tab.const_ctr += 1
        results = list(map(inner.get_tensor_expr, inner.get_tensors(subgraph.OutputsAsNumpy())))
        return results[0] if len(results) == 1 else relax.Tuple(results)

    def convert_softmax(self, op: Any) -> Any:
        (data,) = self.get_input_tensors(op)
        beta, value = self._options(op, "SoftmaxOptions").Beta(), self.get_expr(data.tensor_idx)
        if beta != 1:
            value = relax.op.multiply(value, relax.const(beta, "float32"))
        return relax.op.nn.softmax(value, -1)

    def convert_split_v(self, op: Any) -> Any:
        """Convert SPLIT_V: one size can be -1, which is what the others leave."""
        data, sizes, axis = self.get_input_tensors(op)
        if self.has_expr(sizes.tensor_idx):
            return super().convert_split_v(op)
        value = self.bb.normalize(self.get_expr(data.tensor_idx))
        where, counts = int(self.get_tensor_value(axis).reshape(())), self.get_tensor_value(sizes)
        rest = int(value.struct_info.shape[where]) - int(counts[counts >= 0].sum())
        ends = np.cumsum(np.where(counts < 0, rest, counts))[:-1].tolist()
        return relax.op.split(value, ends, where) if ends else value

    def convert_gather_nd(self, op: Any) -> Any:
        data, indices = (self.get_tensor_expr(tensor) for tensor in self.get_input_tensors(op))
        return relax.op.gather_nd(data, self.bb.normalize(relax.op.astype(indices, "int64")))

    def convert_prelu(self, op: Any) -> Any:
        data, slope = self.get_input_tensors(op)
        value, alpha = self.get_tensor_expr(data), self.get_tensor_expr(slope)
        shape, extents = _extents(alpha), _extents(value)
        if shape and math.prod(shape[:-1]) == 1 and len(shape) <= len(extents) and shape[-1] == extents[-1]:
            flat = self.bb.normalize(relax.op.reshape(alpha, shape[-1:]))
            return relax.op.nn.prelu(value, flat, axis=len(extents) - 1)
        zero = relax.const(0, value.struct_info.dtype)
        below = relax.op.multiply(relax.op.minimum(value, zero), alpha)
        return relax.op.add(relax.op.maximum(value, zero), below)

    def convert_reshape(self, op: Any) -> Any:
        """Convert RESHAPE to the output's shape in the file; it is fixed like every other."""
        (data, *_), (out,) = self.get_input_tensors(op), self.get_output_tensors(op)
        return relax.op.reshape(self.get_tensor_expr(data), _shape(out))

    def convert_transpose_conv(self, op: Any) -> Any:
        """Convert TRANSPOSE_CONV in TVM's layout; the file's result tells what is padded."""
        _, weights, data, *bias = self.get_input_tensors(op)
        (result,) = self.get_output_tensors(op)
        options = self._options(op, "TransposeConvOptions")
        strides = [options.StrideH(), options.StrideW()]
        value, kernel = (self.bb.normalize(self.get_tensor_expr(tensor)) for tensor in (data, weights))
        sizes = zip(_extents(value), _extents(kernel), _shape(result), [1, *strides, 1], strict=True)
        beyond = [(extent - 1) * stride + reach - out for extent, reach, out, stride in sizes][1:3]
        before = [max(0, size) // 2 for size in beyond]
        after = [max(0, size) - first for size, first in zip(beyond, before, strict=True)]
        out = relax.op.nn.conv2d_transpose(
            relax.op.permute_dims(value, [0, 3, 1, 2]),
            relax.op.permute_dims(kernel, [3, 0, 1, 2]),
            strides=strides,
            padding=[*before, *after],
            output_padding=[max(0, -size) for size in beyond],
        )
        return self._biased(relax.op.permute_dims(out, [0, 2, 3, 1]), bias, options)

    def convert_unidirectional_sequence_rnn(self, op: Any) -> Any:
        """Convert a sequence of an RNN: time comes first in the result where it does in the data."""
        value = super().convert_unidirectional_sequence_rnn(op)
        time_first = self._options(op, "SequenceRNNOptions").TimeMajor()
        return relax.op.permute_dims(value, [1, 0, 2]) if time_first else value

    def convert_unpack(self, op: Any) -> Any:
        (data,) = self.get_input_tensors(op)
        options = self._options(op, "UnpackOptions")
        value, axis = self.get_tensor_expr(data), options.Axis()
        if options.Num() == 1:
            return relax.op.squeeze(value, [axis])
        parts = self.bb.normalize(relax.op.split(value, options.Num(), axis))
        return relax.Tuple([relax.op.squeeze(parts[index], [axis]) for index in range(options.Num())])
