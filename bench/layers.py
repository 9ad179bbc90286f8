"""Time and check single layers, untuned: on this machine's processor against onnxruntime, or with OpenCL.

    python bench/layers.py [--layers 3x3,points,…] [--threads 1,2] [--cpu NAME] [--avx2] [--rounds 3]
    python bench/layers.py --opencl [--serial S] [--ways texture,buffer,plain,clml] [--layers …]
                           [--precision float16_acc32] [--rounds 3]

Each layer is a convolution with a bias and ReLU (``depthwise+relu6``: another activation), or a product by a
constant matrix, whose weights may have few bits (``row_4096+int4``). The time is the sum of its kernels in
``adt profile``, the minimum of the rounds, without conversions of the layout. ``adt verify`` compares
the outputs with onnxruntime's; the program exits with 1 where they are wrong.

On the processor, onnxruntime's nodes by its profiler are timed in turns with adt's. The share is of the
multiply-adds that one core was measured to start (core_peak.c), or, with weights of few bits, of the bytes
that it was measured to read from a buffer of that size.

With ``--opencl``, on this machine's OpenCL device or on a device behind ADB: in textures, in the same blocks
of channels in buffers, plain (mostly TVM's rules), and by CLML, for which the bundle and the driver must have
it. A virtual device has no times (nan), and PoCL's are no GPU's. OCL_ICD_VENDORS names the driver where none
is registered.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cpu import AVX2, HERE, compiled, geometric_mean, hide_avx512, model_file, onnxruntime_session

RUNS = 100
"""Runs of each side in a turn."""
WAYS = {
    "texture": {"target": "adreno", "texture_choice": "always"},
    "buffer": {"target": "adreno-buffer", "texture_choice": "always"},
    "plain": {"target": "adreno-buffer", "texture_choice": "never"},
    "clml": {"target": "adreno-buffer", "texture_choice": "always", "offload": "clml"},
}
"""Way to compute a layer with OpenCL to the options of ``adt compile``."""
LAYERS = {
    "3x3": ((1, 64, 56, 56), 64, 3, 1, 1),
    "3x3@28": ((1, 128, 28, 28), 128, 3, 1, 1),
    "3x3@14": ((1, 256, 14, 14), 256, 3, 1, 1),
    "3x3@7": ((1, 512, 7, 7), 512, 3, 1, 1),
    "3x3s2": ((1, 64, 56, 56), 128, 3, 2, 1),
    "first": ((1, 3, 224, 224), 64, 7, 2, 1),
    "first3x3": ((1, 3, 224, 224), 32, 3, 2, 1),
    "points": ((1, 96, 56, 56), 24, 1, 1, 1),
    "points@28": ((1, 144, 28, 28), 32, 1, 1, 1),
    "points@14": ((1, 576, 14, 14), 96, 1, 1, 1),
    "points@7": ((1, 960, 7, 7), 320, 1, 1, 1),
    "depthwise": ((1, 144, 56, 56), 144, 3, 1, 144),
    "depthwise@14": ((1, 576, 14, 14), 576, 3, 1, 576),
    "depthwise@7": ((1, 960, 7, 7), 960, 3, 1, 960),
    "depthwise_s2": ((1, 144, 56, 56), 144, 3, 2, 144),
    "depthwise_s2@14": ((1, 576, 14, 14), 576, 3, 2, 576),
    "depthwise5": ((1, 240, 28, 28), 240, 5, 1, 240),
}
"""Name to input shape, output channels, size of the window, stride and groups of a convolution."""
PRODUCTS = {
    "product": (128, 768, 768),
    "product_wide": (128, 768, 3072),
    "row": (1, 512, 1000),
    "row_wide": (1, 768, 3072),
    "row_4096": (1, 4096, 4096),
    "row_8192": (1, 2048, 8192),
    "decode": (1, 4096, 4096),
    "rows2": (2, 768, 3072),
    "rows4": (4, 768, 768),
    "rows8": (8, 768, 3072),
}
"""Name to the rows, columns and output columns of a product by a constant matrix."""
CHAINS = {"decode": 6}
"""Number of products in a row: no cache holds their weights, as in a language model's step."""
WEIGHTS = ("+int4", "+int8")
"""Suffix of a product by weights of few bits."""
FEW_BITS = [row + weights for row in ("row_4096", "row_8192", "decode") for weights in WEIGHTS]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--layers", default="")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--cpu", default="native")
    parser.add_argument("--avx2", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--opencl", action="store_true")
    parser.add_argument("--serial")
    parser.add_argument("--ways", default="texture,buffer,plain")
    parser.add_argument("--precision", default="float32")
    options = parser.parse_args(argv)
    if options.avx2:
        hide_avx512()
        options.cpu = AVX2
    with tempfile.TemporaryDirectory() as directory:
        time_layers = time_opencl if options.opencl else time_cpu
        return int(not time_layers(Path(directory), options))


def time_cpu(directory: Path, options: argparse.Namespace) -> bool:
    """Print a line for each layer and number of threads; False if an output is wrong."""
    import adt

    all_right, ratios = True, []
    program = core_peak(directory, options.cpu)
    peak_flops = peak(program)
    for name in (options.layers or ",".join([*LAYERS, *PRODUCTS, *FEW_BITS])).split(","):
        model, package = layer_file(directory, name), directory / name
        adt.compile(model, out=package, platform="host", cpu=options.cpu)
        right = adt.verify(package).verification.passed
        all_right &= right
        size = (package / "mod.params").stat().st_size if name.endswith(WEIGHTS) else 0
        for threads in map(int, options.threads.split(",")):
            ours, theirs, read = math.inf, math.inf, 0.0
            for _ in range(options.rounds):
                ours = min(ours, kernel_us(package, threads=threads))
                theirs = min(theirs, onnxruntime_us(directory, model, threads))
                read = max(read, peak(program, size) if size else 0)
            ratios.append(ours / theirs)
            share = f"{2e-3 * multiply_adds(name) / ours / (peak_flops * threads):4.0%}"
            if size:
                rate = size / ours / 1e3
                share = f"{rate:5.1f} GB/s, {rate / read:4.0%}"
            sys.stdout.write(
                f"{name:16} {threads} thread(s)  adt {ours:9.1f} µs  onnxruntime {theirs:7.0f} µs  ratio "
                f"{ours / theirs:.2f}  {share} of the peak  {'right' if right else 'WRONG'}\n"
            )
            sys.stdout.flush()
    sys.stdout.write(f"geometric mean of the ratios: {geometric_mean(ratios):.2f}\n")
    return all_right


def time_opencl(directory: Path, options: argparse.Namespace) -> bool:
    """Print a line for each layer, with the time of each way; False if an output is wrong."""
    import adt

    ways, all_right = options.ways.split(","), True
    place = {"like": options.serial} if options.serial else {"platform": "host"}
    sys.stdout.write("".join([f"{'µs':16}", *(f"{way:>12}" for way in ways), "   first/second\n"]))
    for name in (options.layers or ",".join([*LAYERS, *PRODUCTS])).split(","):
        model, times = layer_file(directory, name), []
        for way in ways:
            package = directory / f"{name}-{way}"
            adt.compile(model, out=package, **WAYS[way], **place, precision=options.precision, accuracy=False)
            right = adt.verify(package, serial=options.serial).verification.passed
            all_right &= right
            rounds = [kernel_us(package, serial=options.serial) for _ in range(options.rounds)]
            times.append(min(rounds) if right else math.inf)
        cells = "".join(f"{'WRONG':>12}" if math.isinf(time) else f"{time:12.1f}" for time in times)
        sys.stdout.write(f"{name:16}{cells}   {times[0] / times[1] if times[1:] else 1:.2f}\n")
        sys.stdout.flush()
    return all_right


def kernel_us(package: Path, **options: object) -> float:
    """Return the microseconds of the kernels that compute, by adt; NaN on a virtual device."""
    import adt

    profile = adt.profile(package, runs=RUNS, **options)
    if profile.emulated:
        return math.nan
    return sum(call.min_us for call in profile.calls if call.flops or call.device == "library")


def core_peak(place: Path, cpu: str) -> Path:
    """Compile the program that measures what one core can do with the vectors of *cpu*."""
    wide = cpu == "native" and "avx512f" in Path("/proc/cpuinfo").read_text()
    program = place / "core_peak"
    flags = ("-march=native" if cpu == "native" else f"-march={cpu}", f"-DBYTES={64 if wide else 32}")
    compiled(HERE / "core_peak.c", program, "-ffp-contract=fast", *flags)
    return program


def peak(program: Path, size: int = 0) -> float:
    """Return the GFLOP/s of one core, or the GB/s at which it reads *size* bytes."""
    command = [str(program), *([str(size)] if size else [])]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def onnxruntime_us(place: Path, model: Path, threads: int) -> int:
    """Return the microseconds of the nodes that compute, by onnxruntime."""
    session, feeds = onnxruntime_session(model, threads, profile=place / "onnxruntime")
    for _ in range(RUNS):
        session.run(None, feeds)
    nodes: dict[str, int] = {}
    for event in json.loads(Path(session.end_profiling()).read_text()):
        operator = event.get("args", {}).get("op_name", "")
        if event["cat"] == "Node" and not operator.startswith("Reorder"):
            nodes[event["name"]] = min(event["dur"], nodes.get(event["name"], event["dur"]))
    return sum(nodes.values())


def layer_file(place: Path, name: str, *, followed: bool = False) -> Path:
    """Write a layer or product as a model; a network is one that ``bench/cpu.py`` takes.

    Args:
        name: may end with another activation than ReLU, ``depthwise+relu6``, or with the type of a product's
            weights.
        followed: a convolution to 8 channels reads it, since what the last one gives is not rounded to half.
    """
    from adt.compiler.networks.builder import Network

    file = place / f"{name}.onnx"
    layer, _, more = name.partition("+")
    if layer in PRODUCTS and more:
        import adt

        return adt.quantize(layer_file(place, layer), out=file, weights_only=more).path
    if name in PRODUCTS:
        rows, columns, outputs = PRODUCTS[name]
        net, y = Network((rows, columns)), "x"
        for _ in range(CHAINS.get(name, 1)):
            y = net.op("MatMul", [y, net.drawn((columns, outputs), 1)], outputs)
        if followed:
            last = net.drawn((outputs, 8), 1)
            y, outputs = net.op("MatMul", [y, last], 8), 8
        return net.save(file, y, (rows, outputs))
    if layer in LAYERS:
        shape, channels, window, stride, groups = LAYERS[layer]
        net = Network(shape)
        y = getattr(net, more or "relu")(net.conv("x", channels, window, stride, groups))
        if followed:
            y, channels = net.conv(y, 8, 1), 8
        return net.save(file, y, (1, channels, *(-(-extent // stride) for extent in shape[2:])))
    return model_file(place, name)


def multiply_adds(name: str) -> int:
    """Return the multiply-adds of the layer or product *name*."""
    if (product := name.partition("+")[0]) in PRODUCTS:
        rows, columns, outputs = PRODUCTS[product]
        return rows * columns * outputs * CHAINS.get(product, 1)
    (_, inputs, height, width), channels, window, stride, groups = LAYERS[name]
    positions = -(-height // stride) * -(-width // stride)
    return positions * channels * inputs // groups * window * window


if __name__ == "__main__":
    sys.exit(main())
