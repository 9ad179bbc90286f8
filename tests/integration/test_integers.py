"""Quantized models are computed in integers, with what each processor has for them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static

import adt
from adt.compiler.assemble import preparation
from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.rewriter import bindings_of
from adt.compiler.networks.builder import Network
from adt.compiler.passes.gpu.rows import LEAST_SHARED
from adt.compiler.passes.records.schedules import Untuned
from adt.errors import ConfigError
from adt.package.graphs import reference_file
from adt.package.host_run.run import run_package
from adt.package.package import ModelPackage
from adt.tuning.tasks import extract
from adt.verbs.compile import CompileRequest, job_of
from support.devices.emulated import outputs_of
from support.devices.programs import adt as run_adt
from support.devices.programs import adt_json
from support.models import quantized_layers, quantized_tflite, quantized_tflite_layers
from support.models.quantized_onnx import Examples, Net, written_by_onnxruntime
from support.models.vision import VisionNetwork, mobilenet_v2, residual_blocks, resnet18
from support.sampling import matrix, of_each_run

HERE = frozenset(Path("/proc/cpuinfo").read_text().split())
PROCESSORS = {"x86-64": "sse2", "haswell": "avx2", "skylake-avx512": "avx512bw", "cascadelake": "avx512_vnni"}
"""Processor to the feature that a machine runs its code with."""
ARM = {"cortex-a72": "sadalp", "cortex-a76": "sdot", "snapdragon-8gen2": "smmla"}
"""Processors that qemu has, and the instruction that each adds."""
INSTRUCTIONS = {
    **dict.fromkeys(PROCESSORS, "vpmaddwd"),
    "x86-64": "pmaddwd",
    "cascadelake": "vpdpbusd",
    **ARM,
}
"""Processor to the instruction that sums products."""
WRITTEN = ("convolutions", "transformer")
KINDS = ("QDQ uint8", "QOperator int8")
EACH_RUN = ("cascadelake", "x86-64", "snapdragon-8gen2", "cortex-a76")
BY_NIGHT = ("haswell", "skylake-avx512", "cortex-a72")
"""Processors of what onnxruntime writes; in each run test_networks has all of them."""


@pytest.fixture
def cpu(request: pytest.FixtureRequest) -> str:
    """Return the processor, or the widest before it that this machine or qemu runs code for."""
    names = list(PROCESSORS)
    if request.param in ARM:
        return str(request.param)
    return next(name for name in names[names.index(request.param) :: -1] if PROCESSORS[name] in HERE)


def platform_of(cpu: str) -> str:
    """Return the platform that has the processor *cpu*."""
    return "linux-aarch64" if cpu in ARM else "host"


def quantized(
    network: Callable[[Path, int], Path],
    activations: QuantType,
    directory: Path,
    weights: QuantType = QuantType.QInt8,
) -> Path:
    """Quantize the *network* of 40 pixels; *weights* of uint8 take all 256 values around any zero point."""
    source = network(directory / "float.onnx", 40)
    return quantize(source, activations, weights, per_channel=True, reduce_range=weights == QuantType.QInt8)


def quantize(source: Path, activations: QuantType, weights: QuantType, **options: bool) -> Path:
    """Quantize the model *source* by onnxruntime's quantizer."""
    quantize_static(
        source, source.with_name("q.onnx"), Examples(onnx.load(source)), quant_format=QuantFormat.QDQ,
        activation_type=activations, weight_type=weights, **options,
    )  # fmt: skip
    return source.with_name("q.onnx")


Run = Callable[..., Mapping[str, np.ndarray]]


def inputs_of(model: Path) -> dict[str, np.ndarray]:
    random = np.random.default_rng(5)
    return {
        spec.name: random.integers(0, 2, spec.shape)
        if "int" in spec.type
        else random.uniform(-1, 1, spec.shape).astype(np.float32)
        for spec in onnxruntime.InferenceSession(str(model)).get_inputs()
    }


def distance(model: Path, package: ModelPackage, run: Run = outputs_of) -> float:
    """Return the largest distance of the package's one output from onnxruntime's."""
    (output,) = run(package.path, inputs_of(model)).values()
    (expected,) = onnxruntime.InferenceSession(str(model)).run(None, inputs_of(model))
    step = max(package.manifest.made.quanta.values(), default=0)
    assert output.shape == expected.shape and np.abs(expected).max() > max(2 * step, 0.05)
    return float(np.abs(output - expected).max())


def steps_off(model: Path, package: ModelPackage, run: Run = outputs_of) -> float:
    """Return :func:`distance` in quantization steps of the output."""
    (step,) = package.manifest.made.quanta.values()
    return distance(model, package, run) / step


@pytest.mark.parametrize(
    ("written", "cpu"),
    [
        *matrix(itertools.product(WRITTEN, KINDS), EACH_RUN),
        *of_each_run(0, *itertools.product(itertools.product(WRITTEN, KINDS), BY_NIGHT)),
    ],
    indirect=["cpu"],
)
def test_what_onnxruntime_writes(written: tuple[str, str], cpu: str, tmp_path: Path) -> None:
    network, kind = written
    model = written_by_onnxruntime(network, kind, tmp_path)

    package = adt.compile(model, out=tmp_path / "package", platform=platform_of(cpu), cpu=cpu)

    assert steps_off(model, package) <= 2.01
    inspection = adt.inspect(package.path)
    assert f"\t{INSTRUCTIONS[cpu]}\t" in inspection.assembly()
    assert package.manifest.made.integers
    assert {operator.reason for operator in package.manifest.made.integers} == {""}
    assert {"plain loops"}.isdisjoint(kernel.schedule for kernel in inspection.cpu())
    of_depthwise = [row.dtype for row in inspection.params() if len(row.shape) == 4]
    assert {*of_depthwise} == ({"int8"} if network == "convolutions" else set())


def test_embeddings_stay_bytes(tmp_path: Path) -> None:
    """Keep bytes whatever their zero point is."""
    net = Net()
    table = np.linspace(-0.2, 1, 50 * 16, dtype=np.float32).reshape(50, 16)
    rows = net.add("Gather", net.constant(table), "ids")
    product = net.add("MatMul", rows, net.weight(16, 16, scale=0.2))
    network = net.model({"ids": (onnx.TensorProto.INT64, [8])}, product, [8, 16])
    onnx.save(network, tmp_path / "float.onnx")
    model = quantize(tmp_path / "float.onnx", QuantType.QInt8, QuantType.QInt8)

    package = adt.compile(model, out=tmp_path / "package", platform="host", cpu="x86-64")

    types = {tuple(row.shape): row.dtype for row in adt.inspect(package.path).params()}
    assert types[50, 16] == "uint8"
    assert steps_off(model, package) <= 1.01


@pytest.mark.parametrize("cpu", of_each_run(1, "cascadelake", "x86-64"), indirect=True)
def test_what_is_quantized_at_run_time(cpu: str, tmp_path: Path) -> None:
    model = written_by_onnxruntime("transformer", "dynamic", tmp_path)

    package = adt.compile(model, out=tmp_path / "package", platform="host", cpu=cpu)

    assert distance(model, package) <= 1e-5
    assert f"\t{INSTRUCTIONS[cpu]}\t" in adt.inspect(package.path).assembly()


@pytest.mark.parametrize(
    ("cpu", "of_weights"),
    matrix(
        ["haswell", "cascadelake", "cortex-a76"],
        [(QuantType.QInt8, False), (QuantType.QInt8, True), (QuantType.QUInt8, False)],
    ),
    indirect=["cpu"],
)
def test_convolutions_of_what_is_quantized_at_run_time(
    cpu: str, of_weights: tuple[QuantType, bool], tmp_path: Path
) -> None:
    """Pad with the zero point, and without; in groups, depthwise, and of points."""
    weights, per_channel = of_weights
    net = Network((1, 3, 24, 24))
    x = net.conv("x", 32, 3, 2, norm=False)
    x = net.conv(net.relu(net.conv(x, 32, groups=32, norm=False)), 32, groups=2, norm=False)
    x = net.conv(net.conv(x, 24, 1, norm=False), 16, padded=False, norm=False)
    net.save(tmp_path / "float.onnx", x, (1, 16, 10, 10))
    model = tmp_path / "q.onnx"
    quantize_dynamic(
        tmp_path / "float.onnx", model, op_types_to_quantize=["Conv"], weight_type=weights,
        per_channel=per_channel,
    )  # fmt: skip

    package = adt.compile(model, out=tmp_path / "package", platform=platform_of(cpu), cpu=cpu)

    assert [row.reason for row in package.manifest.made.integers] == [""] * 5
    assert distance(model, package) <= 1e-5


@pytest.mark.parametrize(
    ("layer", "cpu"),
    matrix(
        [
            (32, 24, 2, 2, 0, 0, QuantType.QInt8),
            (32, 16, 3, 2, 1, 1, QuantType.QInt8),
            (16, 3, 4, 2, 1, 0, QuantType.QUInt8),
        ],
        ["x86-64", "cascadelake"],
    ),
    indirect=["cpu"],
)
def test_transposed_convolutions(layer: tuple[Any, ...], cpu: str, tmp_path: Path) -> None:
    channels, filters, extent, stride, pads, more, weights = layer
    net = Net()
    net.add(
        "ConvTranspose", "x", net.weight(channels, filters, extent, extent, scale=0.2), net.weight(filters),
        strides=[stride] * 2, pads=[pads] * 4, output_padding=[more] * 2,
    )  # fmt: skip
    sizes = [stride * (size - 1) + extent - 2 * pads + more for size in (9, 11)]
    inputs = {"x": (onnx.TensorProto.FLOAT, [1, channels, 9, 11])}
    network = net.model(inputs, net.add("Relu", net.nodes[-1].output[0]), [1, filters, *sizes])
    onnx.save(network, tmp_path / "float.onnx")
    per_channel = weights == QuantType.QInt8
    model = quantize(tmp_path / "float.onnx", QuantType.QUInt8, weights, per_channel=per_channel)

    package = adt.compile(model, out=tmp_path / "package", platform="host", cpu=cpu)

    assert steps_off(model, package) <= 1.01
    assert [operator.reason for operator in package.manifest.made.integers] == [""]


def test_what_stays_in_floats_says_why(tmp_path: Path) -> None:
    """Refuse a product of what is not quantized, and one by a vector of two."""
    net = Net()
    net.add("MatMul", "x", net.weight(16, 16, scale=0.2))
    first = net.nodes[-1].output[0]
    quanta = net.constant(np.float32(0.05)), net.constant(np.int8(3))
    quantized = net.add("DequantizeLinear", net.add("QuantizeLinear", first, *quanta), *quanta)
    rows = [net.add("Slice", quantized, *map(net.constant, ([start], [start + 2], [0]))) for start in (0, 2)]
    product = net.add("MatMul", rows[0], net.add("Transpose", rows[1], perm=[1, 0]))
    onnx.save(net.model({"x": (onnx.TensorProto.FLOAT, [4, 16])}, product, [2, 2]), tmp_path / "m.onnx")

    package = adt.compile(tmp_path / "m.onnx", out=tmp_path / "package", platform="host", cpu="x86-64")

    shown = adt_json("inspect", tmp_path / "package", "--int8")["int8"]
    reasons = [operator["reason"] for operator in shown["operators"]]
    assert reasons == [
        "its input is not quantized",
        "it has under 4 rows, or sums of no multiple of 2 products",
    ]
    lines = run_adt("inspect", tmp_path / "package", "--int8").stdout
    assert lines.startswith("0 of 2 convolutions and products are in integers, 0% of the arithmetic\n")
    assert "0 of 2 convolutions" in run_adt("inspect", tmp_path / "package").stdout
    assert distance(tmp_path / "m.onnx", package) <= 1e-5


def assert_each_layer(model: Path, directory: Path, run: Run = outputs_of, **target: Any) -> ModelPackage:
    """Check that no layer's element is over two steps off its runtime's, and one in a thousand over one."""
    of_format = quantized_tflite_layers if model.suffix == ".tflite" else quantized_layers
    exposed = of_format.with_layers(model, directory / f"layers{model.suffix}")
    package = adt.compile(exposed, out=directory / "package", **target)
    random = np.random.default_rng(5)
    (spec,) = package.manifest.entry().inputs
    feeds = {spec.name: random.uniform(-1, 1, spec.shape).astype(np.float32)}
    layers = dict(of_format.quanta_off(exposed, feeds, run(package.path, feeds)))
    assert len(layers) > 3
    for name, off in layers.items():
        assert off.max() <= 2 and (off > 1).mean() <= 0.001, name
    assert {operator.reason for operator in package.manifest.made.integers} == {""}
    for kernel in adt.inspect(package.path).cpu() if package.manifest.target.device == "cpu" else ():
        if kernel.name.startswith(("fused_conv_blocks", "fused_product_blocks")):
            assert "at once" in kernel.schedule, kernel
    assert "int16" not in {row.dtype for row in adt.inspect(package.path).params()}
    return package


def products(path: Path, _extent: int) -> Path:
    """Write products of 10 and of 20 numbers, which are no whole blocks, and of 24."""
    net = Network((6, 10))
    value, before = "x", 10
    for after in (20, 24, 12):
        value, before = net.op("MatMul", [value, net.drawn((before, after), 1)], after), after
    return net.save(path, value, (6, 12))


RUN = partial(run_package, timeout=300)


@pytest.mark.parametrize(
    ("network", "target"), [("convolutions", "opencl"), ("products", "opencl"), ("convolutions", "adreno")]
)
def test_on_opencl(network: str, target: str, tmp_path: Path) -> None:
    """Multiply four integers at once, one by one for a compiler without the instruction."""
    if network == "products":
        model = quantized(products, QuantType.QInt8, tmp_path)
    else:
        model = written_by_onnxruntime(network, "QDQ uint8", tmp_path)

    package = assert_each_layer(
        model, tmp_path, run=RUN, platform="host", target=target, check=False, texture_choice="always"
    )

    sources = "".join(file.read_text() for file in package.path.glob("inspect/opencl/*.cl"))
    assert sources.count("= adt_dots(") > 3
    assert "adt_word(" not in sources.replace("#define adt_word(", "")  # words are read as they lie
    of_sums = re.findall(r"^__kernel void fused_(?:conv|product)_blocks\w+\((.*)\)", sources, re.MULTILINE)
    reference_file(package)  # is read, as `verify --layers` does
    # The input, constants (in buffers one: weights, scales, what is added to sums with the bias in it), the
    # output, and two of other layers.
    constants = 3 if target == "adreno" else 1
    assert of_sums and all(len(arguments.split(",")) <= constants + 2 + 2 for arguments in of_sums)


def test_who_tunes_runs_both_schedules_of_a_kernel_on_the_same_arguments(tmp_path: Path) -> None:
    model = written_by_onnxruntime("convolutions", "QDQ uint8", tmp_path)
    request = CompileRequest(model, platform="host", target="opencl", check=False)

    tasks = extract(job_of(request).load(accuracy=False)).tasks

    baselines = [tvm.ir.load_json(task.baseline)["main"] for task in tasks]
    assert len(tasks) > 3
    assert [len(task.arguments) for task in tasks] == [len(baseline.params) for baseline in baselines]


@pytest.mark.parametrize("kind", ["QDQ uint8", "dynamic"])
def test_half_precision_is_for_floats(kind: str, tmp_path: Path) -> None:
    model = written_by_onnxruntime("transformer", kind, tmp_path)

    with pytest.raises(ConfigError, match="this one is quantized") as caught:
        adt.compile(model, out=tmp_path / "package", platform="host", precision="float16")
    assert "Leave --precision out" in caught.value.remedy


def test_attention_on_opencl(tmp_path: Path) -> None:
    """Read and write computed floats where they lie in products."""
    model = written_by_onnxruntime("transformer", "QDQ uint8", tmp_path)

    package = adt.compile(model, out=tmp_path / "package", platform="host", target="opencl", check=False)

    assert steps_off(model, package, RUN) <= 2.01
    assert "transpose" not in (package.path / "inspect" / "relax.py").read_text()


@pytest.mark.parametrize(
    ("cpu", "weights"),
    matrix(["haswell", "cascadelake", "cortex-a76"], [QuantType.QInt8, QuantType.QUInt8]),
    indirect=["cpu"],
)
def test_products_of_what_is_quantized_at_run_time(cpu: str, weights: QuantType, tmp_path: Path) -> None:
    """Keep weights in bytes that have a scale and a zero point for each output."""
    model = dynamic_products(tmp_path, per_channel=True, weight_type=weights)

    package = adt.compile(model, out=tmp_path / "package", platform=platform_of(cpu), cpu=cpu)

    assert [row.reason for row in package.manifest.made.integers] == [""] * 5
    assert distance(model, package) <= 1e-5


def dynamic_products(directory: Path, **options: Any) -> Path:
    """Write five products by constants, each of what is quantized at run time with *options*."""
    net, value = Net(), "x"
    for terms, columns in ((16, 64), (64, 16)) * 2:
        product = net.add("MatMul", value, net.weight(terms, columns, scale=terms**-0.5))
        value = net.add("Add", net.add("Relu", product), net.weight(columns))
    first = net.add("Gather", value, net.constant(0), axis=1)
    scores = net.add("MatMul", first, net.weight(16, 3))
    onnx.save(
        net.model({"x": (onnx.TensorProto.FLOAT, [1, 8, 16])}, scores, [1, 3]), directory / "float.onnx"
    )
    quantize_dynamic(directory / "float.onnx", directory / "q.onnx", **options)
    return directory / "q.onnx"


def dynamic_transformer(directory: Path) -> Path:
    return written_by_onnxruntime("transformer", "dynamic", directory)


@pytest.mark.parametrize("network", of_each_run(1, dynamic_products, dynamic_transformer))
def test_on_opencl_what_is_quantized_at_run_time(network: Callable[[Path], Path], tmp_path: Path) -> None:
    """Share the search for the extrema among many work-items, and compute the scale where it is read."""
    model = network(tmp_path)

    package = adt.compile(model, out=tmp_path / "package", platform="host", target="opencl", check=False)

    assert distance(model, package, RUN) <= 1e-5
    sources = {file.stem: file.read_text() for file in package.path.glob("inspect/opencl/*.cl")}
    extremes = [text for name, text in sources.items() if re.match(r"(extremes|max)\d*_kernel", name)]
    assert any("barrier(" in text for text in extremes)
    alone = [
        int(terms) for text in extremes if "barrier(" not in text for terms in re.findall(r"< (\d+);", text)
    ]
    assert all(terms < LEAST_SHARED for terms in alone)
    calls = (package.path / "inspect" / "relax.py").read_text()
    assert len(re.findall(r"^ +extremes\d*\(", calls, re.MULTILINE)) > 3
    assert not re.search(r"alloc_tensor\(.*R\.shape\(\[\]\)", calls)


def parts(path: Path, extent: int) -> Path:
    """Build halves of a map behind SiLU, one of which goes on, and what joins them, as in YOLOv8."""
    net = VisionNetwork((1, 3, extent, extent))

    def layer(x: str, out: int) -> str:
        return net.silu(net.conv(x, out, norm=False))

    left, right = net.split(layer("x", 32))
    joined = net.concat(left, right, net.add(right, layer(right, 16)))
    return net.save(path, net.conv(layer(joined, 32), 16, 1, norm=False), (1, 16, extent, extent))


def gates(path: Path, extent: int) -> Path:
    """Build means of a map that its channels are multiplied by, and pools, as in MobileNet-v3."""
    net = VisionNetwork((1, 3, extent, extent))
    x = net.squeeze_excite(net.hard_swish(net.conv("x", 16, norm=False)), 8)
    x = net.average_pool(net.conv(x, 16, 1, norm=False), 2, 2, padded=False)
    return net.save(path, net.conv(x, 16, norm=False), (1, 16, extent // 2, extent // 2))


def inverted_block(path: Path, extent: int) -> Path:
    """Write the first convolution of a ResNet, a sum, and a block of MobileNet-v2."""
    net = VisionNetwork((1, 3, extent, extent))
    x = net.max_pool(net.relu(net.conv("x", 24, 7, 2)), 3, 2)
    x = net.relu(net.add(x, net.conv(x, 24)))
    y = net.relu6(net.conv(net.relu6(net.conv(x, 40, 1)), 40, 3, 2, groups=40))
    return net.save(path, net.classifier(net.conv(y, 24, 1), 10), (1, 10))


NETWORKS = [
    *((products, QuantType.QUInt8, QuantType.QInt8, cpu) for cpu in PROCESSORS),
    *((products, QuantType.QInt8, QuantType.QInt8, cpu) for cpu in ARM),
    (products, QuantType.QUInt8, QuantType.QUInt8, "haswell"),
    (residual_blocks, QuantType.QUInt8, QuantType.QUInt8, "cascadelake"),
    (inverted_block, QuantType.QInt8, QuantType.QInt8, "x86-64"),
    (inverted_block, QuantType.QUInt8, QuantType.QInt8, "cortex-a72"),
    (residual_blocks, QuantType.QUInt8, QuantType.QInt8, "snapdragon-8gen2"),
]
NIGHTLY = [
    *(
        (residual_blocks, QuantType.QUInt8, QuantType.QInt8, cpu)
        for cpu in ("haswell", "cortex-a72", "cortex-a76")
    ),
    (residual_blocks, QuantType.QInt8, QuantType.QInt8, "x86-64"),
    (parts, QuantType.QUInt8, QuantType.QInt8, "cortex-a76"),
    (mobilenet_v2, QuantType.QUInt8, QuantType.QUInt8, "haswell"),
    (resnet18, QuantType.QInt8, QuantType.QInt8, "x86-64"),
    (resnet18, QuantType.QUInt8, QuantType.QInt8, "snapdragon-8gen2"),
    (mobilenet_v2, QuantType.QUInt8, QuantType.QInt8, "cortex-a72"),
]


@pytest.mark.parametrize(
    ("network", "activations", "weights", "cpu"),
    [*NETWORKS, *of_each_run(0, *NIGHTLY)],
    indirect=["cpu"],
)
def test_networks(
    network: Callable[[Path, int], Path], activations: QuantType, weights: QuantType, cpu: str, tmp_path: Path
) -> None:
    model = quantized(network, activations, tmp_path, weights)

    package = assert_each_layer(model, tmp_path, platform=platform_of(cpu), cpu=cpu)

    assert f"\t{INSTRUCTIONS[cpu]}\t" in adt.inspect(package.path).assembly()


@pytest.mark.parametrize(
    ("network", "cpu"), matrix([parts, gates], ["haswell", "cascadelake"]), indirect=["cpu"]
)
def test_maps_stay_bytes(network: Callable[[Path, int], Path], cpu: str, tmp_path: Path) -> None:
    model = quantized(network, QuantType.QUInt8, tmp_path)
    assert_each_layer(model, tmp_path, platform="host", cpu=cpu)

    compilation = job_of(CompileRequest(model, platform="host", cpu=cpu)).load(accuracy=False)
    with preparation(compilation, Untuned()) as prepared:
        calls = [binding.value for binding in bindings_of(prepared.module)]

    kernels = [call.sinfo_args[0] for call in calls if operator_name(call) == "relax.call_tir"]
    *inner, _, _ = kernels  # the output, which is floats, and its order
    maps = [result for result in inner if list(result.shape.values)[2:4] != [1, 1]]
    assert len(maps) > 2 and {result.dtype for result in maps} == {"uint8"}


@pytest.mark.parametrize("cpu", of_each_run(1, "cascadelake", "x86-64"), indirect=True)
def test_a_tflite_network(cpu: str, tmp_path: Path) -> None:
    """Compare with its interpreter, which rounds in fixed point."""
    model = quantized_tflite.network(tmp_path / "m.tflite")

    package = assert_each_layer(model, tmp_path, platform="host", cpu=cpu)

    assert len(package.manifest.made.integers) == 4


@pytest.mark.parametrize("cpu", ARM)
def test_the_least_weights_on_arm64(cpu: str, tmp_path: Path) -> None:
    """Add twice -128 · -128, which 16 bits do not hold."""
    net = Net()
    one, large, zero = map(net.constant, (np.float32(1), np.float32(2048), np.int8(0)))
    x = net.add("DequantizeLinear", net.add("QuantizeLinear", "x", one, zero), one, zero)
    weights = net.add("DequantizeLinear", net.constant(np.full((8, 8), -128, np.int8)), one, zero)
    sums = net.add("QuantizeLinear", net.add("MatMul", x, weights), large, zero)
    output = net.add("DequantizeLinear", sums, large, zero)
    onnx.save(net.model({"x": (onnx.TensorProto.FLOAT, [2, 8])}, output, [2, 8]), tmp_path / "q.onnx")

    package = adt.compile(tmp_path / "q.onnx", out=tmp_path / "package", platform="linux-aarch64", cpu=cpu)

    (have,) = outputs_of(package.path, {"x": np.full((2, 8), -128, np.float32)}).values()
    assert (have == 64 * 2048).all()
