"""Quantizing a model, what that costs, and models that cannot be quantized."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import adt
from adt.errors import AdtError, ConfigError, DiskError, ModelError, VerifyFailed
from adt.host import isolated
from adt.quantization import quantizer
from adt.verbs.quantize import QuantizeResult
from support.devices.programs import adt as program
from support.models.quantized_onnx import Net, convolutions, transformer

RNG = np.random.default_rng(5)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "float.onnx"
    onnx.save(convolutions(), path)
    return path


def write_samples(path: Path) -> Path:
    np.savez(path, x=np.random.default_rng(1).uniform(-1, 1, (10, 3, 32, 32)).astype(np.float32))
    return path


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    return write_samples(tmp_path / "samples.npz")


def quantize(model: Path, samples: object, **options: Any) -> QuantizeResult:
    return adt.quantize(model, calibrate=[str(samples)], out=model.with_name("q.onnx"), **options)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> QuantizeResult:
    """Quantize the model of the other fixtures with no options, once."""
    directory = tmp_path_factory.mktemp("usual")
    onnx.save(convolutions(), directory / "float.onnx")
    return quantize(directory / "float.onnx", write_samples(directory / "samples.npz"))


def saved(net: Net, output: str, extents: list[int | str], path: Path, kind: int = TensorProto.FLOAT) -> Path:
    graph = net.model({"x": (kind, extents)}, output, []).graph
    graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def linear(path: Path, extents: list[int | str]) -> Path:
    """Return one convolution."""
    net = Net()
    return saved(net, net.add("Conv", "x", net.weight(4, 3, 1, 1)), extents, path)


def test_weights_and_tensors_get_eight_bits(usual: QuantizeResult) -> None:
    result = usual
    graph = onnx.load(result.path).graph
    onnx.checker.check_model(str(result.path))
    kinds = [node.op_type for node in graph.node]
    assert kinds.count("QuantizeLinear") > 8 and {"Conv", "Gemm"} <= {*kinds}
    weights = [t for t in graph.initializer if len(t.dims) == 4]
    assert len(weights) == 6 and {t.data_type for t in weights} == {TensorProto.INT8}
    (row,) = result.outputs
    assert row.name == "y" and 20 < row.metrics.snr_db < 80 and row.metrics.top1 is not None
    assert (result.calibrated_on, result.held_back, result.every, result.made_up) == (8, 2, 5, False)
    assert result.bytes < result.float_bytes and not result.kept
    assert sum(layer.share for layer in result.layers) == pytest.approx(1)
    assert {layer.operator for layer in result.layers} >= {"Conv", "Gemm", "Add"}
    assert all(layer.snr_db >= row.metrics.snr_db - 3 for layer in result.layers), "each alone costs less"


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"activations": "uint8", "per_channel": True}, TensorProto.UINT8),
        ({"method": "entropy"}, TensorProto.INT8),
        ({"method": "percentile"}, TensorProto.INT8),
    ],
)
def test_how_it_is_quantized(model: Path, samples: Path, options: dict[str, Any], kind: int) -> None:
    result = quantize(model, samples, **options)
    graph = onnx.load(result.path).graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    zeros = [constants[node.input[2]] for node in graph.node if node.op_type == "QuantizeLinear"]
    assert {zero.data_type for zero in zeros} == {kind}
    scales = [constants[n.input[1]] for n in graph.node if n.op_type == "DequantizeLinear"]
    assert any(math.prod(scale.dims) > 1 for scale in scales) == ("per_channel" in options)
    assert result.outputs[0].metrics.snr_db > 15


def test_a_transformer_on_integers(tmp_path: Path) -> None:
    onnx.save(transformer(), tmp_path / "bert.onnx")
    result = quantize(tmp_path / "bert.onnx", tokens(tmp_path / "tokens.npz"))
    assert {"MatMul", "Add", "Softmax"} <= {layer.operator for layer in result.layers}
    assert result.outputs[0].metrics.snr_db > 25


def tokens(path: Path) -> Path:
    np.savez(
        path, **{name: np.random.default_rng(2).integers(0, 2, (6, 8)) for name in ("ids", "kinds", "mask")}
    )
    return path


@pytest.mark.parametrize(("weights", "least"), [("int8", 35), ("int4", 10)])
def test_weights_alone(weights: str, least: float, tmp_path: Path) -> None:
    onnx.save(transformer(), tmp_path / "bert.onnx")
    samples = tokens(tmp_path / "tokens.npz")
    result = quantize(tmp_path / "bert.onnx", samples, weights_only=weights)
    assert (result.calibrated_on, result.held_back, result.every) == (0, 6, 1)
    (row,) = result.outputs
    assert least < row.metrics.snr_db < 90
    nodes = [node for node in onnx.load(result.path).graph.node if node.op_type == "MatMulNBits"]
    assert len(nodes) == 7, "of the layer six, and the Gemm at the end"
    assert {layer.name for layer in result.layers} == {node.name for node in nodes}
    bits = {value.i for node in nodes for value in node.attribute if value.name == "bits"}
    assert bits == {int(weights[3:])}


def test_of_weights_alone_those_that_cost_most_stay_float_for_a_target(tmp_path: Path) -> None:
    """Quantize a product in the middle with huge weights for a number that is always 0."""
    net, (first, second, third) = Net(), (RNG.normal(0, 0.3, (32, 32)).astype("f4") for _ in range(3))
    first[:, 0], second[0], value = 0, 1e4, "x"
    for number, weights in enumerate((first, second, third)):
        value = net.add("MatMul", value, net.constant(weights))
        net.nodes[-1].name = f"product{number}"
    model = saved(net, value, [1, 32], tmp_path / "blind.onnx")

    result = quantize(model, "random:4", weights_only="int4")
    assert result.layers[0].name == "product1" and result.outputs[0].metrics.snr_db < 5
    result = quantize(model, "random:4", weights_only="int4", target_snr=12)
    assert result.kept == ("product1",) and result.outputs[0].metrics.snr_db >= 12
    products = [node.op_type for node in onnx.load(result.path).graph.node if node.op_type != "Identity"]
    assert products == ["MatMulNBits", "MatMul", "MatMulNBits"]
    assert quantize(model, "random:4", weights_only="int4", keep=["product0", "product1"]).kept


def test_weights_alone_need_no_samples_and_are_the_same_each_time(tmp_path: Path) -> None:
    onnx.save(transformer(), tmp_path / "bert.onnx")
    written = []
    for number in range(2):
        out = tmp_path / f"q{number}.onnx"
        result = adt.quantize(tmp_path / "bert.onnx", out=out, weights_only="int4")
        assert (result.outputs, result.layers, result.source) == ((), (), "")
        written.append(out.read_bytes())
    assert written[0] == written[1]


def test_options_that_weights_alone_do_not_have(tmp_path: Path) -> None:
    onnx.save(transformer(), tmp_path / "bert.onnx")
    more: list[tuple[dict[str, Any], str]] = [
        ({"per_channel": True}, "--per-channel cannot be given together with --weights-only"),
        ({"method": "entropy"}, "--method cannot be given together with --weights-only"),
        ({"activations": "uint8"}, "--activations cannot be given together with --weights-only"),
        ({"target_snr": 20.0}, "--target-snr can be given only with --calibrate"),
    ]
    for options, message in more:
        with pytest.raises(ConfigError, match=message):
            adt.quantize(tmp_path / "bert.onnx", out=tmp_path / "q.onnx", weights_only="int4", **options)
    with pytest.raises(ConfigError, match="--weights-only: 'int3'"):
        adt.quantize(tmp_path / "bert.onnx", out=tmp_path / "q.onnx", weights_only="int3")
    with pytest.raises(ModelError, match="quantizes none of the operators"):
        adt.quantize(linear(tmp_path / "c.onnx", [1, 3, 4, 4]), out=tmp_path / "q.onnx", weights_only="int4")


def test_the_same_input_gives_the_same_bytes(model: Path, samples: Path) -> None:
    written = []
    for seed in "12":
        out = model.with_name(f"q{seed}.onnx")
        program = f"import adt; adt.quantize({str(model)!r}, calibrate=[{str(samples)!r}], out={str(out)!r})"
        subprocess.run([sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}, check=True)
        written.append(out.read_bytes())
    assert written[0] == written[1]


def test_operators_and_nodes_stay_float(model: Path, samples: Path, usual: QuantizeResult) -> None:
    first = next(layer for layer in usual.layers if layer.operator == "Conv")
    result = quantize(model, samples, keep=["Gemm", first.name])
    assert len(result.kept) == 2 and first.name in result.kept
    assert {first.name, *result.kept}.isdisjoint(layer.name for layer in result.layers)
    graph = onnx.load(result.path).graph
    floats = {t.name for t in graph.initializer if t.data_type == TensorProto.FLOAT}
    assert floats & {*next(node.input for node in graph.node if node.op_type == "Gemm")}
    with pytest.raises(ConfigError, match=r"nothing in the model is called 'Gem'.*Gemm"):
        quantize(model, samples, keep=["Gem"])


def blinded(path: Path) -> Path:
    """Return three convolutions; the one in the middle has huge weights for a channel that is always 0."""
    net, (first, second, third) = Net(), (RNG.normal(0, 0.3, (8, n, 3, 3)).astype("f4") for n in (3, 8, 8))
    first[0], second[:, 0] = 0, 1e4
    value = "x"
    for number, weights in enumerate((first, second, third)):
        value = net.add("Conv", value, net.constant(weights), pads=[1] * 4)
        net.nodes[-1].name = f"conv{number}"
    return saved(net, value, [1, 3, 8, 8], path)


def test_the_layer_that_costs_most_is_named_and_kept_for_a_target(tmp_path: Path) -> None:
    model = blinded(tmp_path / "blind.onnx")
    result = quantize(model, "random:6")
    worst = result.layers[0]
    assert (worst.name, worst.operator) == ("conv1", "Conv") and worst.share > 0.9 and worst.snr_db < 5
    assert result.outputs[0].metrics.snr_db < 5 and result.made_up

    result = quantize(model, "random:6", target_snr=25)
    assert result.kept == ("conv1",) and result.outputs[0].metrics.snr_db >= 25

    (tmp_path / "q.onnx").unlink()
    with pytest.raises(
        VerifyFailed, match=r"SNR of 90 dB was not reached; at best it was SNR \d+.* nodes in float"
    ):
        quantize(model, "random:6", target_snr=90)
    assert not (tmp_path / "q.onnx").exists()
    with pytest.raises(ConfigError, match="no output has scores of classes"):
        quantize(model, "random:6", target_top1=0.9)


def test_open_shapes_are_fixed(tmp_path: Path) -> None:
    model = linear(tmp_path / "open.onnx", ["n", 3, "h", "w"])
    with pytest.raises(ModelError, match="open") as caught:
        quantize(model, "random:2")
    assert any("--shape" in option for option in caught.value.options)
    result = quantize(model, "random:2", shapes=["h=6,w=5"])
    (value,) = onnx.load(result.path).graph.input
    assert [dim.dim_value for dim in value.type.tensor_type.shape.dim] == [1, 3, 6, 5]


def test_an_old_opset_is_brought_to_one_with_scales_by_channel(tmp_path: Path) -> None:
    path = linear(tmp_path / "old.onnx", [1, 3, 4, 4])
    old = onnx.load(path)
    old.opset_import[0].version = 9
    onnx.save(old, path)
    assert onnx.load(quantize(path, "random:2", per_channel=True).path).opset_import[0].version >= 13


def test_models_that_are_not_quantized(samples: Path, usual: QuantizeResult, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="quantized already: it has DequantizeLinear, QuantizeLinear"):
        adt.quantize(usual.path, calibrate=[str(samples)], out=tmp_path / "again.onnx")
    net = Net()
    half = net.add("Mul", "x", net.constant(np.float16([2])))
    path = saved(net, half, [2], tmp_path / "half.onnx", TensorProto.FLOAT16)
    with pytest.raises(ModelError, match="is in half precision"):
        quantize(path, "random:2")
    net = Net()
    path = saved(net, net.add("Erf", "x"), [2], tmp_path / "erf.onnx")
    with pytest.raises(ModelError, match="quantizes none of the operators"):
        quantize(path, "random:2")
    path = tmp_path / "m.tflite"
    path.write_bytes(b"\x1c\0\0\0TFL3" + bytes(64))
    with pytest.raises(ModelError, match="is a model of tflite; onnxruntime quantizes ONNX"):
        quantize(path, "random:2")


def test_inputs_that_onnxruntime_cannot_run(tmp_path: Path) -> None:
    net = Net()
    rows = net.add("Gather", net.weight(3, 8), "x")
    path = saved(
        net, net.add("MatMul", rows, net.weight(8, 4)), [1, 40], tmp_path / "m.onnx", TensorProto.INT64
    )
    with pytest.raises(ModelError, match="cannot run the model on the samples") as caught:
        quantize(path, "random:2")
    assert "indices" in caught.value.remedy and "out of" in caught.value.details


def test_where_it_cannot_be_written(model: Path, samples: Path, tmp_path: Path) -> None:
    def refused(error: type[AdtError], out: Path, message: str) -> None:
        with pytest.raises(error, match=message):
            adt.quantize(model, calibrate=[str(samples)], out=out)

    before = model.read_bytes()
    refused(DiskError, tmp_path, "is a directory")
    refused(ConfigError, tmp_path / "." / model.name, "is the model itself")
    refused(DiskError, model / "q.onnx", r"cannot use .*float.onnx")
    assert model.read_bytes() == before
    with pytest.raises(ConfigError, match="--method: 'max'"):
        quantize(model, samples, method="max")


def test_on_the_command_line(model: Path, tmp_path: Path) -> None:
    words = ["quantize", model.name, "--calibrate", "random:5", "-o", "q.onnx", "--keep", "Gemm,Add"]
    done = program(*words, cwd=tmp_path)
    assert done.returncode == 0 and "on 4 MADE-UP samples, which tell nothing" in done.stdout, done.stderr
    assert "y: SNR" in done.stdout and "2 nodes stay float" in done.stdout
    done = program("quantize", model.name, "--weights-only", "int8", "-o", "weights.onnx", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.startswith("accuracy not measured"), done.stderr
    document = json.loads(program(*words, "--json", cwd=tmp_path).stdout)
    assert document["schema"] == "adt.quantize" and document["made_up"] is True
    assert document["worst"] == document["outputs"][0]["name"] == "y"
    assert document["layers"][0].keys() == {"name", "operator", "snr_db", "share"}
    done = program(*words, "--mean", "0.5", cwd=tmp_path)
    assert done.returncode == 19 and "options of pictures are given, and no picture" in done.stderr


def one_layer(path: Path, operator: str, *constants: np.ndarray, rows: int = 3, **attributes: Any) -> Path:
    """Write a model of one operator."""
    net = Net()
    operands = [net.constant(np.asarray(each, np.float32)) for each in constants]
    return saved(net, net.add(operator, "x", *operands, **attributes), [rows, 16], path)


WEIGHTS = RNG.normal(size=(16, 5)).astype(np.float32)
BIAS = 5 * RNG.normal(size=5)


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize(
    ("constants", "attributes"),
    [
        ((WEIGHTS, BIAS), {"beta": 2.0}),
        ((WEIGHTS.T, BIAS), {"beta": 0.25, "alpha": 0.5, "transB": 1}),
        ((WEIGHTS, BIAS[None]), {}),
        ((WEIGHTS, BIAS[:1]), {}),
        ((WEIGHTS, BIAS[0]), {"beta": 3.0}),
        ((WEIGHTS[:3], BIAS[None]), {"transA": 1, "beta": 2.0}),
    ],
)
def test_what_a_gemm_adds(
    constants: tuple[np.ndarray, ...], attributes: dict[str, Any], per_channel: bool, tmp_path: Path
) -> None:
    model = one_layer(tmp_path / "gemm.onnx", "Gemm", *constants, **attributes)
    result = quantize(model, "random:60", per_channel=per_channel)
    assert not result.kept and result.outputs[0].metrics.snr_db > 30, result.outputs


def behind_a_convolution(path: Path, operator: str, *constants: np.ndarray, **attributes: Any) -> Path:
    """Write a model of a convolution and another operator."""
    net = Net()
    value = net.add("Conv", "x", net.weight(4, 3, 3, 3), pads=[1] * 4)
    operands = [each if isinstance(each, str) else net.constant(each) for each in constants]
    value = net.add(operator, value, *operands, **attributes)
    net.nodes[-1].name = "second"
    return saved(net, value, [1, 3, 8, 8], path)


F = np.float32


@pytest.mark.parametrize(
    ("operator", "constants", "options"),
    [
        ("Clip", (F(1), F(6)), {}),  # taken out, and quanta begin at 0
        ("Clip", ("", F(-0.5)), {}),
        ("LayerNormalization", (np.ones((8, 8), F), np.ones((8, 8), F)), {"per_channel": True}),  # it fails
        ("Add", (np.where(np.arange(8) > 5, -np.inf, 0).astype(F),), {}),  # scales of infinity
        ("Add", (np.full(8, np.nan, F),), {}),
    ],
)
def test_a_node_that_the_quantizer_would_change_stays_float(
    operator: str,
    constants: tuple[np.ndarray, ...],
    options: dict[str, Any],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    attributes = {"axis": 2} if operator == "LayerNormalization" else {}
    model = behind_a_convolution(tmp_path / "m.onnx", operator, *constants, **attributes)
    result = quantize(model, "random:40", **options)
    assert result.kept == ("second",) and "second" in caplog.text
    (kind,) = {node.op_type for node in onnx.load(result.path).graph.node if node.name == "second"}
    assert kind == operator


def wrong(model: onnx.ModelProto, kind: str) -> onnx.ModelProto:
    """Inject a fault in a quantized *model*, as quantizers have had them."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for node in changed.graph.node:
        if kind == "bias" and node.op_type == "Conv":
            del node.input[2:]
        if kind == "attribute" and node.op_type == "Conv":
            next(value for value in node.attribute if value.name == "pads").ints[:] = [0, 0, 2, 2]
        if kind == "order" and node.op_type == "Sub":
            node.input[:] = reversed(node.input)
        if kind == "operator" and node.op_type == "MaxPool":
            node.op_type, shape = (
                "AveragePool",
                [a for a in node.attribute if a.name in ("kernel_shape", "strides")],
            )
            del node.attribute[:]
            node.attribute.extend(shape)
        if kind == "alpha" and node.op_type == "LeakyRelu":
            node.ClearField("attribute")
    for tensor in changed.graph.initializer if kind == "weight" else ():
        if tensor.data_type == TensorProto.INT8 and len(tensor.dims) == 4:
            values = onnx.numpy_helper.to_array(tensor)[..., ::-1]
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    return changed


@pytest.mark.parametrize(
    ("kind", "node"),
    [
        ("bias", "conv"),
        ("attribute", "conv"),
        ("weight", "conv"),
        ("order", "sub"),
        ("operator", "pool"),
        ("alpha", "leaky"),
    ],
)
def test_a_fault_of_a_quantizer_is_found_by_node(
    kind: str, node: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Net()
    value = net.add("Conv", "x", net.weight(4, 3, 3, 3), net.weight(4), pads=[1] * 4)
    value = net.add("LeakyRelu", value, alpha=0.4)
    value = net.add("MaxPool", value, kernel_shape=[2, 2], strides=[2, 2])
    value = net.add("Sub", value, net.weight(4, 4, 4))
    for each, name in zip(net.nodes, ("conv", "leaky", "pool", "sub"), strict=True):
        each.name = name
    model = saved(net, value, [1, 3, 8, 8], tmp_path / "m.onnx")
    right = quantizer.quantized
    monkeypatch.setattr(quantizer, "quantized", lambda *arguments: wrong(right(*arguments), kind))
    monkeypatch.setattr(isolated._Processes, "inside", True)  # else the fault would be in another process
    if kind == "weight":  # which is right again in float
        assert quantize(model, "random:6").kept == (node,)
        return
    with pytest.raises(ModelError, match=f"quantizer does not do the model right: {node}: "):
        quantize(model, "random:6")
    assert not (tmp_path / "q.onnx").exists()


@pytest.mark.parametrize(("opset", "operator"), [(10, "Resize"), (9, "Upsample")])
def test_what_conversion_to_a_later_opset_changes_is_refused(
    opset: int, operator: str, tmp_path: Path
) -> None:
    path = behind_a_convolution(tmp_path / "old.onnx", operator, np.array([1, 1, 2, 2], F), mode="linear")
    old = onnx.load(path)
    old.opset_import[0].version, old.ir_version = opset, 5
    onnx.save(old, path)
    try:
        result = quantize(path, "random:40")
    except ModelError as refused:
        assert "converted to opset 13 the model computes something else" in refused.what
        assert not (tmp_path / "q.onnx").exists()
    else:
        assert result.outputs[0].metrics.snr_db > 30


def test_equal_names_and_an_opset_asked_for_twice(model: Path, samples: Path) -> None:
    odd = onnx.load(model)
    for node in odd.graph.node:
        node.name = "n"
    odd.opset_import.append(helper.make_opsetid("ai.onnx", odd.opset_import[0].version))
    onnx.save(odd, model)
    result = quantize(model, samples)
    assert result.outputs[0].metrics.snr_db > 20
    names = [layer.name for layer in result.layers]
    assert len({*names}) == len(names) and "n" in names
