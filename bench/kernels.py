"""Time and check kernels of well-known networks' operators: in textures, in blocks, plain and by CLML.

    python bench/kernels.py [--serial S | --here] [--models resnet-18,…] [--only REGEX]
                            [--precision float32,float16_acc32] [--runs 20] [--jobs N]
                            [--ways texture,buffer,plain,clml] [--batch 12] [--bundle DIR]
                            [-o FILE.json] [--list]

Each operator of the networks (:mod:`kernel_table`), once, at its real shape and with what
follows it in the same kernel. Every kernel is compared with ONNX Runtime: float32 may be off
by 1e-4 of the output's magnitude, float16_acc32 by 1e-2. The times are the device's own
(OpenCL events), mean of the runs. In textures the operator reads and writes images, in buffers the
same blocks of channels, and plain is without them, mostly by TVM's own rules; what packs and unpacks
around it is listed apart. Exits with 1 where a kernel is wrong or cannot be made; its row says why.

On this machine's OpenCL device (--here, the usual), or on a device behind ADB (--serial). Half
precision only where the driver has cl_khr_fp16, CLML only where device and bundle have it.
``--batch 1`` makes each operator a package of its own, whose whole runs are timed, too.
OCL_ICD_VENDORS names the driver where none is registered:
``OCL_ICD_VENDORS=/path/to/libnvidia-opencl.so.1``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Sequence
from importlib import metadata
from pathlib import Path

from kernel_report import Chosen, DeviceFacts, Part, document, faults, table
from kernel_runs import CLML, LIMITS, WAYS, Batch, BatchRun, Found, Settings, Way, measure, processes
from kernel_table import CONV, DENSE, NETWORKS, Op, operators

import adt
from adt.compiler.compilation import CompileJob
from adt.compiler.passes.gpu.choice import TextureChooser
from adt.compiler.passes.layout.signature import convolution, product
from adt.compiler.passes.layout.walk import Moves
from adt.compiler.targets.gpu import ANY_ADRENO
from adt.errors import AdtError, ConfigError, ToolNotFound
from adt.verbs.compile import job_of
from adt.verbs.requests import CompileRequest

WARMUP = 3
INTERRUPTED = "the bench was interrupted before"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--here", action="store_true")
    where.add_argument("--serial")
    parser.add_argument("--models", default=",".join(NETWORKS))
    parser.add_argument("--only", default="")
    parser.add_argument("--precision", default="")
    parser.add_argument("--ways", default=",".join(way.name for way in WAYS))
    parser.add_argument("--runs", type=int)
    parser.add_argument("--jobs", type=int, default=processes())
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--bundle", type=Path)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("-o", dest="out", type=Path)
    given = parser.parse_args(argv)
    try:
        ops = chosen(given.models.split(","), given.only)
        if given.list:
            for op, networks in ops.items():
                print(f"{op.name:48} {op.macs / 1e6:8.1f} MMAC  {' '.join(networks)}")  # noqa: T201
            return 0
        return bench(given, ops)
    except AdtError as why:
        print(f"error: {why.what}\nremedy: {why.remedy}", file=sys.stderr)  # noqa: T201
        return why.exit_code
    except KeyboardInterrupt:
        return 130


def chosen(networks: Sequence[str], only: str) -> dict[Op, dict[str, int]]:
    """The operators to time.

    Raises:
        ConfigError: no such network, or *only* fits none.
    """
    _check("network", networks, NETWORKS)
    found = {op: calls for op, calls in operators(networks).items() if re.search(only, op.name)}
    if not found:
        raise ConfigError(f"{only} is in no operator's name", remedy="See their names with --list.")
    return found


def bench(given: argparse.Namespace, ops: dict[Op, dict[str, int]]) -> int:
    """Time and check *ops* as *given*; prints the tables, and returns the exit code."""
    device = described(given.serial)
    asked = given.precision.split(",") if given.precision else list(LIMITS)
    _check("precision", asked, LIMITS)
    wanted = given.ways.split(",")
    _check("way", wanted, [way.name for way in WAYS])
    ways = tuple(way for way in WAYS if way.name in wanted)
    left_out = []
    if CLML in ways and (why := _without_clml(device, given)):
        ways = tuple(way for way in ways if way != CLML)
        left_out.append(f"clml: {why}")
    runs = given.runs or (20 if device.gpu and not device.emulated else 1)
    parts = []
    interrupted = False
    for precision in asked:
        if precision != "float32" and not device.fp16:
            left_out.append(f"{precision}: the driver has no cl_khr_fp16")
            continue
        began = time.monotonic()
        settings = Settings(
            jobs={way.name: _job(way, precision, given) for way in ways},
            limit=LIMITS[precision],
            processes=given.jobs,
            all_first=device.gpu and not given.serial,
            runs=runs,
            warmup=WARMUP if device.gpu else 0,
            serial=given.serial,
            bundle=given.bundle,
            say=lambda text: print(text, file=sys.stderr, flush=True),  # noqa: T201
        )
        names = tuple(way.name for way in ways)
        results = {(op, way): Found(error=INTERRUPTED) for op in ops for way in names}
        whole: list[BatchRun] = []
        try:
            with tempfile.TemporaryDirectory(prefix="adt-bench-") as scratch:
                work = batches(list(ops), ways, given.batch)
                with contextlib.closing(measure(work, settings, Path(scratch))) as measured:
                    for some, run in measured:
                        results |= some
                        whole += [run] if run else []
        except KeyboardInterrupt:
            interrupted = True
        seconds = time.monotonic() - began
        chosen_forms = choices(ops, settings.jobs[names[0]], precision)
        parts.append(Part(precision, names, ops, results, whole, seconds, chosen_forms))
        print("\n".join(table(device, parts[-1])) + "\n", flush=True)  # noqa: T201
        if interrupted:
            break
    if given.out:
        how = {"runs": runs, "batch": given.batch, "only": given.only, "models": given.models}
        made = document(device, _versions(), how, parts, left_out)
        given.out.write_text(json.dumps(made, indent=1) + "\n")
    wrong = faults(parts)
    print("\n".join([*(f"left out: {one}" for one in left_out), *(f"wrong: {one}" for one in wrong)]))  # noqa: T201
    return 130 if interrupted else int(bool(wrong) or not parts)


def batches(ops: Sequence[Op], ways: tuple[Way, ...], size: int) -> list[Batch]:
    """*ops* in batches of at most *size*, the arithmetic spread over them."""
    count = -(-len(ops) // size)
    dealt: list[list[Op]] = [[] for _ in range(count)]
    for at, op in enumerate(sorted(ops, key=lambda op: -op.macs)):
        turn, place = divmod(at, count)
        dealt[count - 1 - place if turn % 2 else place].append(op)  # there and back: the first gets no more
    return [Batch(tuple(some), ways) for some in dealt]


def described(serial: str | None) -> DeviceFacts:
    """What is at the other end.

    Raises:
        ToolNotFound: it has no OpenCL.
        NoDevice, DeviceError, …: see :func:`adt.probe`.
    """
    if serial is None:
        from adt.package.host_run.opencl import opencl_device

        here = opencl_device()
        if here is None:
            raise ToolNotFound(
                "this machine has no OpenCL device", remedy="apt-get install pocl-opencl-icd gives it one."
            )
        return DeviceFacts(
            label="this machine", serial="", opencl=f"{here.name} ({here.platform})",
            driver=here.driver_version, version=here.version, gpu=here.gpu, emulated=False, fp16=here.fp16,
            clml=(),
        )  # fmt: skip
    from adt.verbs.device import chosen_device, probe_device

    chosen = chosen_device(serial)
    found = probe_device(chosen)
    device = found.opencl.device if found.opencl else None
    if device is None or found.opencl is None or found.opencl.chosen is None:
        raise ToolNotFound(
            f"{serial} has no OpenCL device that TVM's runtime can use",
            remedy=f"adt probe --serial {serial} says what there is.",
        )
    return DeviceFacts(
        label=found.label, serial=serial, opencl=device.name or "", driver=device.driver_version or "",
        version=device.version or "", gpu=device.kind == "gpu", emulated=chosen.facts.emulated,
        fp16=device.fp16, clml=found.opencl.chosen.clml_versions,
    )  # fmt: skip


def _check(what: str, asked: Iterable[str], known: Collection[str]) -> None:
    """
    Raises:
        ConfigError: some of what is *asked* for is not *known*.
    """
    if strange := [one for one in asked if one not in known]:
        raise ConfigError(f"there is no {what} {', '.join(strange)}", remedy=f"Choose of {', '.join(known)}.")


def _without_clml(device: DeviceFacts, given: argparse.Namespace) -> str:
    """Why CLML computes nothing there; empty: it can."""
    if not device.clml:
        return "the device's driver has none"
    bundle = _job(CLML, "float32", given).bundle
    has = bundle is not None and bundle.manifest.options.clml
    return "" if has else "the bundle has none (adt build-target --clml SDK)"


def choices(ops: Iterable[Op], job: CompileJob, precision: str) -> dict[Op, Chosen]:
    """Texture or buffer by adt's model of what they cost, between neighbours that are in textures.

    Args:
        job: what would be compiled with; it has the GPU.
    """
    gpu = job.target().gpu or ANY_ADRENO
    dtype = "float32" if precision == "float32" else "float16"
    made = {}
    for op in ops:
        channels, height, width = op.output
        if op.kind == CONV:
            weight, output = (op.out, op.shape[0] // op.groups, *op.kernel), (1, channels, height, width)
            computes = convolution(dtype, weight, output, (op.stride, op.stride), op.groups)
        elif op.kind == DENSE:
            computes = product(dtype, (1,), op.shape[0], op.out)
        else:
            continue
        choice = TextureChooser(gpu=gpu).choose(computes, op.out, Moves())
        made[op] = Chosen("texture" if choice.blocked else "buffer", choice.reason)
    return made


def job(
    way: Way,
    precision: str,
    *,
    platform: str | None = None,
    like: str | None = None,
    bundle: Path | None = None,
) -> CompileJob:
    """What to compile with by *way*; every operator is in textures, or blocks, that can be.

    Args:
        platform, like, bundle: see :func:`adt.compile`.
    """
    request = CompileRequest(
        Path("kernels.onnx"),
        platform=platform,
        target=way.target,
        bundle=bundle,
        like=like,
        precision=precision,
        accuracy=False,
        offload=way.offload,
        texture_choice=way.blocks,
        check=False,  # the comparison is what this is for
    )
    return job_of(request)


def _job(way: Way, precision: str, given: argparse.Namespace) -> CompileJob:
    here = None if given.serial else "host"
    return job(way, precision, platform=here, like=given.serial, bundle=given.bundle)


def _versions() -> dict[str, str]:
    names = ("apache-tvm", "apache-tvm-ffi", "onnxruntime")
    return {"adt": adt.__version__, **{name: metadata.version(name) for name in names}}


if __name__ == "__main__":
    # As ctrl-C: the compilers end with it, and what is done is told.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
