"""Quantizers of onnxruntime: a float model of fixed shapes becomes one of 8 bits, or of weights of few."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
from onnx import version_converter
from onnxruntime.quantization import (
    CalibrationMethod,
    QDQQuantizer,
    QuantType,
    create_calibrator,
    quant_pre_process,
)
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.quantization.onnx_model import ONNXModel
from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

from adt.compiler.importers.onnx.file import fixed_inputs, input_dtypes, read_onnx, with_fixed_shapes
from adt.compiler.importers.onnx.graph import Graph, attribute, operand, opset
from adt.compiler.importers.onnx.upgrade import upgraded
from adt.compiler.importers.op_table import named_nodes
from adt.compiler.importers.shapes import RequestedShapes
from adt.errors import AdtError, ConfigError, ModelError
from adt.host.disk import disk_errors
from adt.limits import MOST_PROTOBUF
from adt.numerics import Array
from adt.options.option import did_you_mean
from adt.package.manifest import Entry, TensorSpec

log = logging.getLogger("adt.quantize")

QUANTIZED = re.compile(r"(Dynamic)?Quantize|Dequantize|Q(Linear|Gemm|Attention)|.*(Integer|NBits|Bnb4)")
"""Operators of models that are quantized already."""
METHODS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}  # in onnxruntime's words
WEIGHTS = {"int8": 8, "int4": 4}  # bits of weights that alone are quantized
OPERATORS = sorted({*QLinearOpsRegistry, *QDQRegistry})  # that onnxruntime quantizes
BLOCK = 32  # number of weights that share a scale
LEAST_OPSET = 13  # from here on scales may be one for each channel


def read_float_model(path: Path, shapes: RequestedShapes) -> tuple[onnx.ModelProto, Entry]:
    """Read the float32 model in *path* with fixed shapes, and its inputs; ModelError if it is none."""
    model = read_onnx(path)
    inputs = fixed_inputs(model, shapes)
    fixed, dtypes = with_fixed_shapes(model, inputs), input_dtypes(model)
    graph = fixed.graph
    if already := sorted({node.op_type for node in graph.node if QUANTIZED.match(node.op_type)}):
        raise ModelError(
            f"{path.name} is quantized already: it has {', '.join(already)}",
            remedy="Compile it as it is, or quantize the float32 model that it was made of.",
        )
    types = {tensor.data_type for tensor in graph.initializer}
    types |= {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    if types & {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}:
        raise ModelError(
            f"{path.name} is in half precision, from which nothing is quantized",
            remedy="Quantize the float32 model that it was made of.",
        )
    if sum(len(tensor.raw_data) for tensor in graph.initializer) > MOST_PROTOBUF:
        raise ModelError(
            f"{path.name} has over 2 GB of weights, more than a file without external data takes",
            remedy="Quantize its parts one by one (onnx.utils.extract_model).",
        )
    name_nodes(fixed)
    specs = tuple(TensorSpec(name, shape, dtypes[name]) for name, shape in inputs.items() if 0 not in shape)
    return fixed, Entry("main", specs, (), ())


def prepared(model: onnx.ModelProto, directory: Path) -> onnx.ModelProto:
    """Fold normalizations into convolutions, infer shapes and name nodes, in *directory*, to be quantized."""
    path = directory / "prepared.onnx"
    what = "onnxruntime cannot prepare the model for quantizing"
    remedy = "See whether onnxruntime runs it; `adt compile MODEL --explain` lists its operators."
    with onnxruntime_errors(what, remedy), disk_errors(f"writing {path}", path):
        model = _with_one_opset(model)
        if opset(model) < LEAST_OPSET:
            convert = upgraded if opset(model) < 11 else version_converter.convert_version
            model = convert(model, LEAST_OPSET)
            model.ir_version = max(4, model.ir_version)  # before, only inputs could be constants
        onnx.save(model, path)  # of a model in memory it would take the weights away
        quant_pre_process(path, path, skip_symbolic_shape=True)
    result = onnx.load(path)
    name_nodes(result)
    graph = Graph(result, result.graph)
    for node in (node for node in result.graph.node if node.op_type == "Gemm"):
        _simplify_addend(graph, node)
    return result


def name_nodes(model: onnx.ModelProto) -> None:
    """Give each node of *model* a name of its own: onnxruntime takes equal ones for a damaged model."""
    graph, names = Graph(model, model.graph), set[str]()
    for number, node in enumerate(model.graph.node):
        if not node.name or node.name in names:
            node.name = graph.fresh(node.name or f"{node.op_type}_{number}")
        names.add(node.name)


def _with_one_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    """Give *model* one version of ONNX's operators, the last of several, as onnxruntime does."""
    model = deepcopy(model)
    versions = {"" if each.domain == "ai.onnx" else each.domain: each.version for each in model.opset_import}
    del model.opset_import[:]
    for domain, version in versions.items():
        model.opset_import.add(domain=domain, version=version)
    return model


def _simplify_addend(graph: Graph, gemm: onnx.NodeProto) -> None:
    """Write a constant row that *gemm* adds as one axis, times beta: onnxruntime's quantizer reads it so."""
    addend, weight = graph.constant(operand(gemm, 2)), graph.constant(gemm.input[1])
    if addend is None or weight is None or addend.size != np.prod(addend.shape[-1:], dtype=int):
        return
    columns = weight.shape[0 if attribute(gemm, "transB", 0) else 1]
    row = np.full(columns, addend.reshape(-1), "f4") * np.float32(attribute(gemm, "beta", 1.0))
    gemm.input[2] = graph.add_constant(gemm.input[2], row)
    for each in [each for each in gemm.attribute if each.name == "beta"]:
        gemm.attribute.remove(each)


def kept_nodes(model: onnx.ModelProto, keep: Sequence[str]) -> frozenset[str]:
    """Return the nodes of a prepared *model* that *keep* names, each an operator's type or a node."""
    nodes = model.graph.node
    known = {node.op_type for node in nodes} | {node.name for node in nodes}
    for name in keep:
        if name not in known:
            raise ConfigError(
                f"nothing in the model is called {name!r}.{did_you_mean(name, known)}",
                remedy=f"--keep takes nodes and operators: {', '.join(sorted({n.op_type for n in nodes}))}.",
            )
    return frozenset(node.name for node in nodes if node.name in keep or node.op_type in keep)


def calibrated(
    model: onnx.ModelProto, samples: Sequence[Mapping[str, Array]], method: str, directory: Path
) -> Any:
    """Compute every tensor's range of a prepared *model* on *samples*, for onnxruntime's quantizer."""
    path = directory / "calibrated.onnx"
    onnx.save(model, path)
    what = "onnxruntime cannot run the model on the samples"
    remedy = (
        "Check that they are what the model takes, such as indices in its tables. If infinities are right:"
    )
    with onnxruntime_errors(what, f"{remedy} --method minmax"), disk_errors(f"writing {path}", path):
        calibrator = create_calibrator(
            path,
            OPERATORS,
            str(directory / "augmented.onnx"),
            calibrate_method=CalibrationMethod[METHODS[method]],
            extra_options={"symmetric": False},
        )
        for sample in samples:  # one by one: histograms keep every tensor of what they are given
            calibrator.collect_data(SimpleNamespace(get_next=iter([dict(sample), None]).__next__))
        return calibrator.compute_data()


def take_unbounded(ranges: Any, model: onnx.ModelProto) -> frozenset[str]:
    """Take tensors without a finite range out of *ranges*; return the nodes that have or take them."""
    odd = {name for name, each in ranges.items() if not np.isfinite(each.range_value).all()}
    for name in odd:
        del ranges.data[name]
    nodes = {node.name for node in model.graph.node if not odd.isdisjoint((*node.input, *node.output))}
    if nodes:
        log.warning("NaN or infinity on the samples: %s float", named_nodes(sorted(nodes)))
    return frozenset(nodes)


def quantized(
    model: onnx.ModelProto, ranges: Any, activations: str, per_channel: bool, keep: Collection[str]
) -> onnx.ModelProto:
    """Put QuantizeLinear and DequantizeLinear around all nodes of a prepared *model* but *keep*.

    Weights are int8 with all eight bits. Seven, with which x86 without VNNI does not saturate, would cost
    accuracy on every Arm.
    """
    types = {"int8": QuantType.QInt8, "uint8": QuantType.QUInt8}
    quantizer = QDQQuantizer(
        deepcopy(model), per_channel, False, QuantType.QInt8, types[activations], ranges,
        [], sorted(keep), OPERATORS, {},
    )  # fmt: skip
    quantizer.quantize_model()
    quantizer.model.topological_sort()
    return quantizer.model.model


def with_products(model: onnx.ModelProto) -> onnx.ModelProto:
    """Replace each Gemm by constants of a prepared *model* with a MatMul and an Add, where they can do it."""
    products = ONNXModel(deepcopy(model))
    products.replace_gemm_with_matmul()
    return products.model


def with_few_bits(model: onnx.ModelProto, weights: str, keep: Collection[str]) -> onnx.ModelProto:
    """Replace MatMul by constants with MatMulNBits of the same names around 0, but the nodes *keep*."""
    bits = WEIGHTS[weights]
    quantizer = MatMulNBitsQuantizer(
        deepcopy(model), bits=bits, block_size=BLOCK, is_symmetric=True, nodes_to_exclude=sorted(keep)
    )
    quantizer.process()
    result = quantizer.model.model
    for node in result.graph.node:
        if node.op_type == "MatMulNBits":
            node.name = node.name.removesuffix(f"_Q{bits}")
    return result


def is_quantized(model: onnx.ModelProto) -> bool:
    """Return True if an operator of *model* takes or makes quantized tensors."""
    return any(QUANTIZED.match(node.op_type) for node in model.graph.node)


@contextlib.contextmanager
def onnxruntime_errors(what: str, remedy: str) -> Iterator[None]:
    """Turn what onnx and onnxruntime raise within into a ModelError."""
    try:
        yield
    except AdtError:
        raise
    except Exception as error:  # they have no public base in common
        raise ModelError(what, remedy=remedy, details=str(error)) from error
