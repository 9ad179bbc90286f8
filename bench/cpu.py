"""Time networks on this machine's processor, untuned, against onnxruntime; or check them on emulated ones.

    python bench/cpu.py [--models resnet18,mobilenet_v2,…] [--threads 1,2] [--cpu NAME] [--avx2]
                        [--xnnpack] [--rounds 3]
    python bench/cpu.py --emulated linux-aarch64 [--models …] [--cpu cortex-a76] [--precision float16]

Each network is compiled for this machine, checked against onnxruntime by ``adt verify``, and timed
by ``rtvm`` (the median and the minimum of its runs) in turns with onnxruntime on random inputs and
as many threads. What counts is the ratio: both share the machine's noise. With ``--xnnpack`` also with
what XNNPACK takes handed to it, for which there must be a bundle (``adt build-target --for host
--xnnpack``). With ``--avx2`` all believe that this processor has no AVX-512 (no_avx512.c). With
``--emulated`` nothing is timed: it is compiled for that platform and compared with onnxruntime, once,
by ``rtvm`` in qemu. Exits with 1 where a network is wrong.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))
NETWORKS = (
    "resnet18,resnet50,mobilenet_v1,mobilenet_v2,mobilenet_v3,squeezenet,inception_v3,efficientnet,yolov8n,unet,"
    "super_resolution,text_recognition,mixed_blocks,shufflenet,resnet3d,image_translation,bert_4x256,bert_12x768,"
    "gru,lstm,vit,gpt2_step,convnext"
)
SECONDS = 2.0
"""About so long onnxruntime runs in each turn, and rtvm as many runs."""
LEAST_RUNS = 5
AVX2 = "haswell"
"""The oldest processor with AVX2 and FMA."""
EMULATED = {"linux-aarch64": "cortex-a76", "linux-armhf": "cortex-a7"}
"""Platform to the processor that code is for if none is named."""
LONGEST = 3600
"""Seconds that an emulated run may take."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--models", default=NETWORKS)
    parser.add_argument("--threads", default="1")
    parser.add_argument("--cpu", default="")
    parser.add_argument("--emulated", choices=EMULATED, help="check, on this platform's emulated processor")
    parser.add_argument("--precision", default="float32", help="that is checked")
    parser.add_argument("--avx2", action="store_true")
    parser.add_argument("--xnnpack", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(argv)
    if given.avx2:
        hide_avx512()
        given.cpu = AVX2
    rows = []
    with tempfile.TemporaryDirectory() as place:
        if given.emulated:
            verdicts = [right_when_emulated(Path(place), name, given) for name in given.models.split(",")]
            return int(not all(verdicts))
        for name in given.models.split(","):
            for threads in map(int, given.threads.split(",")):
                rows.append(measure(Path(place), name, threads, given))
                _print(rows[-1])
    mean = geometric_mean([row["ratio"] for row in rows])
    sys.stdout.write(f"geometric mean of the ratios: {mean:.2f}\n")
    return int(not all(row["right"] for row in rows))


def hide_avx512() -> None:
    """Start this program anew, if need be, as on a processor without AVX-512: so do its children."""
    if "no_avx512" in os.environ.get("LD_PRELOAD", ""):
        return
    with tempfile.TemporaryDirectory() as place:
        library = Path(place, "no_avx512.so")
        compiled(HERE / "no_avx512.c", library, "-shared", "-fPIC")
        environment = {**os.environ, "LD_PRELOAD": str(library)}
        sys.exit(
            subprocess.run([sys.executable, *sys.orig_argv[1:]], env=environment, check=False).returncode
        )


def compiled(source: Path, out: Path, *flags: str) -> None:
    """Compile a C file with this machine's compiler."""
    subprocess.run(["cc", "-O2", *flags, source, "-o", out], check=True)


def measure(place: Path, name: str, threads: int, given: argparse.Namespace) -> dict[str, Any]:
    """Measure one network with *threads* threads."""
    import adt

    model, package = model_file(place, name), place / f"{name}-package"
    began, seconds = time.process_time(), 0.0
    if not package.exists():
        adt.compile(model, out=package, platform="host", cpu=given.cpu or "native")
        seconds = time.process_time() - began
    verified = adt.verify(package)
    offloaded = place / f"{name}-xnnpack"
    if given.xnnpack and not offloaded.exists():
        adt.compile(model, out=offloaded, platform="host", cpu=given.cpu or "native", offload="xnnpack")
    right = verified.verification.passed and (not given.xnnpack or agrees(model, offloaded))
    session, feeds = onnxruntime_session(model, threads)
    ours: list[float] = []
    theirs: list[float] = []
    by_xnnpack: list[float] = []
    for _ in range(given.rounds):
        theirs += timed(session, feeds)
        runs = min(max(LEAST_RUNS, round(SECONDS * 1000 / min(theirs))), 2000)
        ours += run(package, runs, threads)
        by_xnnpack += run(offloaded, runs, threads) if given.xnnpack else []
    with_xnnpack = {"xnnpack_ms": [min(by_xnnpack), median(by_xnnpack)]} if by_xnnpack else {}
    return {
        **with_xnnpack,
        "model": name,
        "threads": threads,
        "right": right,
        "adt_ms": [min(ours), median(ours)],
        "onnxruntime_ms": [min(theirs), median(theirs)],
        "ratio": min(ours) / min(theirs),
        "ratio_of_medians": median(ours) / median(theirs),
        "compile_cpu_s": seconds,
    }


def agrees(model: Path, package: Path) -> bool:
    """Return True if a package for this machine gives onnxruntime's outputs by rtvm."""
    import adt

    session, feeds = onnxruntime_session(model, 1)
    return agree(session, feeds, dict(adt.run(package, inputs=feeds).outputs), "float32").passed


def agree(session: Any, feeds: dict[str, Any], outputs: dict[str, Any], precision: str) -> Any:
    """Compare *outputs* with onnxruntime's."""
    from adt.measure.verify import compare
    from adt.options.resolve import load_settings

    names = [output.name for output in session.get_outputs()]
    references = dict(zip(names, session.run(None, feeds), strict=True))
    return compare(outputs, references, load_settings({}).settings.verify, precision)


def right_when_emulated(place: Path, name: str, given: argparse.Namespace) -> bool:
    """Return True if a network gives onnxruntime's outputs on an emulated processor."""
    import adt
    from support.devices.emulated import outputs_of

    model, package = model_file(place, name), place / f"{name}-{given.emulated}"
    cpu = given.cpu or EMULATED[given.emulated]
    offload = "xnnpack" if given.xnnpack else "none"
    adt.compile(
        model, out=package, platform=given.emulated, cpu=cpu, precision=given.precision, offload=offload
    )
    session, feeds = onnxruntime_session(model, 1)
    try:
        outputs = outputs_of(package, feeds, timeout=LONGEST)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        right, words = False, str(error)
    else:
        compared = agree(session, feeds, outputs, given.precision)
        right = compared.passed
        words = f"at most {max(output.max_rel for output in compared.outputs):.1e} of the largest value off"
    sys.stdout.write(
        f"{name:24} {cpu}, {given.precision}, emulated  {'right' if right else 'WRONG'}: {words}\n"
    )
    sys.stdout.flush()
    return right


def run(package: Path, runs: int, threads: int) -> list[float]:
    """Return the milliseconds of each run by rtvm."""
    import adt
    from adt.device.place import RtvmOptions

    report = adt.run(package, run_count=runs, warmup_runs=3, options=RtvmOptions(threads=threads)).report
    return list(report["run_ms"])


def model_file(place: Path, name: str) -> Path:
    """Return the file of a network that the tests generate, a published one of theirs, or a file."""
    from adt.compiler.networks import known
    from support.models import published, sequences, transformers, vision

    if Path(name).is_file():
        return Path(name)
    if name in {model.name for model in published.REAL_MODELS}:
        return published.named(name).path()
    file = place / f"{name}.onnx"
    if file.exists():
        return file
    if network := known.known_name(name):
        return known.write_network(network, file, known.summary(network).size)
    for module in (vision, sequences, transformers):
        if hasattr(module, name):
            return Path(getattr(module, name)(file))
    raise SystemExit(f"there is no network {name}")


def onnxruntime_session(model: Path, threads: int, profile: Path | None = None) -> tuple[Any, dict[str, Any]]:
    """Make onnxruntime's session, which writes a *profile* if asked to, and random inputs."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    if profile:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    feeds = {}
    for model_input in session.get_inputs():
        shape = [extent if isinstance(extent, int) else 1 for extent in model_input.shape]
        whole = "int" in model_input.type
        feeds[model_input.name] = (
            random.integers(0, 2, shape) if whole else random.normal(size=shape).astype(np.float32)
        )
    return session, feeds


def timed(session: Any, feeds: dict[str, Any]) -> list[float]:
    """Measure the milliseconds of each run of a turn."""
    times = []
    session.run(None, feeds)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < LEAST_RUNS:
        began = time.perf_counter()
        session.run(None, feeds)
        times.append((time.perf_counter() - began) * 1000)
    return times


def median(times: Sequence[float]) -> float:
    return sorted(times)[len(times) // 2]


def geometric_mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def _print(row: dict[str, Any]) -> None:
    ours, theirs = row["adt_ms"], row["onnxruntime_ms"]
    xnnpack = "XNNPACK {:8.2f} ms ({:.2f})  ".format(*row["xnnpack_ms"]) if "xnnpack_ms" in row else ""
    sys.stdout.write(
        f"{row['model']:24} {row['threads']} thread(s)  adt {ours[0]:8.2f} ms (median {ours[1]:.2f})  "
        f"{xnnpack}onnxruntime {theirs[0]:8.2f} ms ({theirs[1]:.2f})  "
        f"ratio {row['ratio']:.2f} ({row['ratio_of_medians']:.2f})  {'right' if row['right'] else 'WRONG'}\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
