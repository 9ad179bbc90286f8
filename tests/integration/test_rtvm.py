"""The work of rtvm itself: number of runs, measurements, files that it keeps, and compiled OpenCL programs.

OpenCL is this machine's, PoCL as a rule: results and bookkeeping count, no time does.
"""

import hashlib
import itertools
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adt
from adt.bundle.bundle import TargetBundle
from adt.compiler.networks.builder import Network
from adt.package.inputs.random import random_inputs
from adt.package.inspection.inspection import load_arrays
from adt.package.package import ModelPackage
from support.devices.ports import free_port
from support.devices.programs import Finished
from support.models.broken_kernels import with_library

USAGE, PACKAGE, INPUT, RUN = 2, 3, 4, 5
OFF = {"state": "off", "file": None, "warning": None, "take_ms": None, "keep_ms": None}


@dataclass(frozen=True)
class Rtvm:
    """The program, in an environment where it finds OpenCL and where nothing is kept unless asked for."""

    program: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str | Path, **environment: str) -> Finished:
        return Finished.of(self.program, *arguments, **(self.environment | environment))

    def run(self, package: ModelPackage, *arguments: str | Path, **environment: str) -> dict[str, Any]:
        return self("--model", package.path, "--json", *arguments, **environment).json


@pytest.fixture(scope="module")
def rtvm(host_bundle: TargetBundle, tmp_path_factory: pytest.TempPathFactory) -> Rtvm:
    environment = {
        "POCL_CACHE_DIR": str(tmp_path_factory.mktemp("pocl")),
        "ADT_PROGRAM_CACHE": "off",
    }
    return Rtvm(host_bundle.path / "bin" / "rtvm", environment)


def model(path: Path) -> Path:
    """Build two convolutions and what lies between, so small that PoCL compiles it in seconds."""
    net = Network((1, 4, 8, 8))
    y = net.relu(net.conv("x", 8))
    y = net.conv(net.add(net.conv(y, 8, 1), y), 4, 1)
    return net.save(path, y, (1, 4, 8, 8))


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model(tmp_path_factory.mktemp("models") / "small.onnx")


def compiled(onnx_file: Path, target: str) -> ModelPackage:
    out = onnx_file.parent / target
    return adt.compile(onnx_file, out=out, platform="host", target=target, check=False)


@pytest.fixture(scope="module")
def on_cpu(onnx_file: Path) -> ModelPackage:
    return compiled(onnx_file, "cpu")


@pytest.fixture(scope="module")
def textured(onnx_file: Path) -> ModelPackage:
    return compiled(onnx_file, "adreno")


def reference(onnx_file: Path, package: ModelPackage, seed: int) -> np.ndarray:
    import onnxruntime

    inputs = random_inputs(package.manifest.entry().inputs, seed=seed)
    (output,) = onnxruntime.InferenceSession(str(onnx_file)).run(None, dict(inputs))
    return np.asarray(output)


# ---- the command line ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--warmup-ms", "soon"], "--warmup-ms takes a number"),
        (["--min-seconds", "-1"], "--min-seconds takes a number"),
        (["--min-seconds", "0x10"], "--min-seconds takes a number"),
        (["--max-seconds", "1e99"], "--max-seconds takes a number"),
        (["--min-seconds", "3", "--max-seconds", "2"], "--max-seconds is less than --min-seconds"),
        (["--fill-mode", "empty"], "--fill-mode takes random, zeros, ones or arange"),
        (["--threads", "0"], "--threads takes a number from 1"),
        (["--affinity", "fast"], "--affinity takes big, little, all"),
        (["--affinity", "4095"], "4095"),
        (["--calls", "1:2"], "--dump-calls"),
        (["--dump-calls", "f", "--calls", "2"], "--calls takes A:B"),
        (["--dump-calls", "f", "--calls", "2:2"], "no call in it"),
        (["--program-cache", "off", "--pre-compiled", "f"], "one place"),
        (["--device", "opencl", "--zero-copy"], "--zero-copy is for cpu"),
        (["--sysfs", "/"], "--sample-ms"),
        (["--sample-ms", "0"], "--sample-ms takes a number from 1"),
        (["--end-to-end=yes"], "--end-to-end takes no value"),
        (["--entry", "decode"], "no entry decode"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_command_lines(rtvm: Rtvm, on_cpu: ModelPackage, arguments: list[str], words: str) -> None:
    rtvm("--model", on_cpu.path, *arguments).refused(USAGE, words)


def test_help_names_every_option_and_exit_code(rtvm: Rtvm) -> None:
    text = rtvm("--help").out
    assert all(f"\n  {code}  " in text for code in (0, *range(2, 10)))
    for option in (
        "model", "device", "input", "output", "dump-meta", "pre-compiled", "program-cache", "profile", "dry-run",
        "run-count", "zero-copy", "json", "threads", "affinity", "seed", "fill-mode", "warmup-ms", "min-seconds", "max-seconds",
        "entry", "end-to-end", "times", "sample-ms", "dump-calls", "calls", "sysfs", "verbose", "version", "help",
    ):  # fmt: skip
        assert f"\n  --{option} " in text, option


# ---- runs ---------------------------------------------------------------------------------------


def test_the_document_has_all_its_fields(rtvm: Rtvm, on_cpu: ModelPackage, tmp_path: Path) -> None:
    document = rtvm.run(on_cpu, "--program-cache", tmp_path / "programs")
    assert document["schema"] == "adt.rtvm-run"
    assert document["schema_version"] == 2
    assert {key: document[key] for key in (
        "end_to_end", "zero_copy", "threads", "affinity", "times_file", "samples", "profile", "call_dump",
    )} == {
        "end_to_end": False, "zero_copy": False, "threads": None, "affinity": None, "times_file": None,
        "samples": [], "profile": None, "call_dump": None,
    }  # fmt: skip
    assert document["device"]["type"] == "cpu"
    assert document["device"]["driver"] is None
    assert document["first_run_ms"] == document["run_ms"][0]
    assert document["program_cache"] == OFF and list(tmp_path.iterdir()) == [], "nothing to keep on a CPU"
    assert document["memory"]["peak_kb"] > document["memory"]["before_load_kb"] > 0


def test_runs_go_on_until_the_number_and_the_time_are_reached(rtvm: Rtvm, on_cpu: ModelPackage) -> None:
    by_number = rtvm.run(on_cpu, "--run-count", "40", "--min-seconds", "0.00001", "--dry-run", "3")
    assert (by_number["timed_runs"], by_number["warmup_runs"]) == (40, 3)

    by_time = rtvm.run(on_cpu, "--run-count", "2", "--min-seconds", "0.3", "--warmup-ms", "100")
    assert by_time["timed_runs"] > 2
    assert by_time["warmup_runs"] > 0
    assert sum(by_time["run_ms"]) > 30  # most of 300 ms, on the busiest machine


def test_no_run_begins_after_the_longest_time(rtvm: Rtvm, on_cpu: ModelPackage, tmp_path: Path) -> None:
    document = rtvm.run(
        on_cpu, "--run-count", "1000000000", "--max-seconds", "0.2", "--times", tmp_path / "t.npz"
    )
    assert 0 < document["timed_runs"] < 1000000000
    assert document["run_ms"] is None
    with np.load(tmp_path / "t.npz") as times:
        assert sorted(times) == ["run_ms", "start_ms"]
        run, start = times["run_ms"], times["start_ms"]
    assert run.dtype == start.dtype == np.float64
    assert len(run) == len(start) == document["timed_runs"]
    assert (run > 0).all()
    assert (np.diff(start) >= run[:-1] * 0.999).all()  # one after the other
    # The last one may have been begun in time, and held up before it read the clock.
    assert (start[:-1] - start[0] <= 200).all()
    assert rtvm.run(on_cpu, "--run-count", "9", "--max-seconds", "0")["timed_runs"] == 1


@pytest.mark.parametrize("options", [["--zero-copy"], ["--end-to-end"], ["--zero-copy", "--end-to-end"]])
def test_copies_do_not_change_the_numbers(
    rtvm: Rtvm, on_cpu: ModelPackage, onnx_file: Path, tmp_path: Path, options: list[str]
) -> None:
    document = rtvm.run(on_cpu, *options, "--seed", "5", "--run-count", "3", "--output", tmp_path / "o.npz")
    assert document["zero_copy"] == ("--zero-copy" in options)
    assert document["end_to_end"] == ("--end-to-end" in options)
    with np.load(tmp_path / "o.npz") as arrays:
        (output,) = arrays.values()
    np.testing.assert_allclose(output, reference(onnx_file, on_cpu, 5), rtol=1e-4, atol=1e-5)


def test_threads_and_processors(rtvm: Rtvm, on_cpu: ModelPackage) -> None:
    plain = rtvm.run(on_cpu)
    processors = os.sched_getaffinity(0)
    first = str(min(processors))
    pinned = rtvm.run(on_cpu, "--threads", "1", "--affinity", first)
    assert (pinned["threads"], pinned["affinity"]) == (1, first)
    assert rtvm.run(on_cpu, "--affinity", "all")["threads"] == len(processors)
    assert pinned["outputs"] == plain["outputs"]
    rtvm("--model", on_cpu.path, "--threads", "4096").refused(USAGE, "threads")


# ---- sensors ------------------------------------------------------------------------------------

KERNEL_FILES = {
    "class/thermal/thermal_zone0/type": "cpu-0-0\n", "class/thermal/thermal_zone0/temp": "41500\n",
    "class/thermal/thermal_zone1/type": "gpu\n", "class/thermal/thermal_zone1/temp": "38\n",
    "class/thermal/thermal_zone2/type": "off\n", "class/thermal/thermal_zone2/temp": "-274000\n",
    "class/thermal/thermal_zone10/type": "gpu\n", "class/thermal/thermal_zone10/temp": "39000\n",
    "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1800000\n",
    "devices/system/cpu/cpu10/cpufreq/scaling_cur_freq": "2841600\n",
    "devices/system/cpu/cpufreq/scaling_cur_freq": "1\n",
    "class/kgsl/kgsl-3d0/gpuclk": "587000000\n",
    "class/power_supply/usb/type": "USB\n", "class/power_supply/usb/voltage_now": "5000000\n",
    "class/power_supply/battery/type": "Battery\n", "class/power_supply/battery/current_now": "-310000\n",
    "class/power_supply/battery/voltage_now": "4123000\n", "class/power_supply/battery/charge_counter": "2700000\n",
    "class/powercap/intel-rapl:0/energy_uj": "1000\n", "class/powercap/intel-rapl:1/energy_uj": "20\n",
    "class/powercap/intel-rapl:0:0/energy_uj": "700\n",
}  # fmt: skip


def kernel_files(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def test_what_the_kernel_tells_is_sampled(rtvm: Rtvm, on_cpu: ModelPackage, tmp_path: Path) -> None:
    document = rtvm.run(
        on_cpu, "--sample-ms", "20", "--sysfs", kernel_files(tmp_path, KERNEL_FILES), "--min-seconds", "0.2"
    )
    samples = document["samples"]
    assert len(samples) > 2  # before, after, and between
    at = [sample["at_ms"] for sample in samples]
    assert all(later - earlier >= 20 for earlier, later in itertools.pairwise(at[:-1]))
    for sample in samples:
        assert sample["temperatures"] == {"cpu-0-0": 41.5, "gpu": 38, "gpu (thermal_zone10)": 39}
        assert sample["frequencies_mhz"] == {"cpu0": 1800, "cpu10": 2841.6, "gpu": 587}
        assert sample["power"] == {
            "current_ua": -310000, "voltage_uv": 4123000, "charge_uah": 2700000, "energy_uj": 1020,
        }  # fmt: skip


def test_what_the_kernel_does_not_tell_is_absent(rtvm: Rtvm, on_cpu: ModelPackage, tmp_path: Path) -> None:
    nothing = kernel_files(tmp_path, {"class/thermal/thermal_zone0/temp": "not now\n"})
    samples = rtvm.run(on_cpu, "--sample-ms", "1", "--sysfs", nothing)["samples"]
    assert len(samples) >= 2  # before and after, and between the runs that take longer than a millisecond
    for sample in samples:
        assert sample["temperatures"] == sample["frequencies_mhz"] == sample["power"] == {}
    assert "nothing readable" in rtvm("--model", on_cpu.path, "--sample-ms", "1", "--sysfs", nothing).out


# ---- calls --------------------------------------------------------------------------------------


def test_every_call_is_timed(rtvm: Rtvm, on_cpu: ModelPackage) -> None:
    document = rtvm.run(on_cpu, "--profile", "3")
    profile = document["profile"]
    assert profile["runs"] == len(profile["total_us"]) == 3
    assert [call["index"] for call in profile["calls"]] == list(range(len(profile["calls"])))
    kernels = [call for call in profile["calls"] if not call["builtin"]]
    assert {call["name"] for call in kernels} == {kernel.name for kernel in on_cpu.manifest.kernels}
    assert all(call["name"].startswith("vm.builtin.") for call in profile["calls"] if call["builtin"])
    for call in profile["calls"]:
        assert len(call["host_us"]) == 3
        assert call["device_us"] is None
        assert call["depth"] == 0
    for run, total in enumerate(profile["total_us"]):
        assert 0 < sum(call["host_us"][run] for call in profile["calls"]) < total
    assert kernels[0]["arguments"][0] == {"shape": [1, 4, 8, 8], "dtype": "float32", "scope": "global"}
    assert document["outputs"] == rtvm.run(on_cpu)["outputs"]


def test_upstreams_command_line(rtvm: Rtvm, on_cpu: ModelPackage, tmp_path: Path) -> None:
    """Give --profile no value, as upstream does."""
    done = rtvm(
        f"--model={on_cpu.path}", "--device=cpu", "--profile", "--dry-run=1", "--run-count=2",
        f"--output={tmp_path / 'o.npz'}", "--json",
    )  # fmt: skip
    assert (done.json["profile"]["runs"], done.json["warmup_runs"], done.json["timed_runs"]) == (10, 1, 2)
    assert rtvm.run(on_cpu, "--profile")["profile"]["runs"] == 10
    rtvm("--model", on_cpu.path, "--profile=fast").refused(USAGE, "--profile takes a number")


def test_calls_tensors_are_kept(rtvm: Rtvm, on_cpu: ModelPackage, tmp_path: Path) -> None:
    files = tmp_path / "calls.npz", tmp_path / "some.npz"
    document = rtvm.run(on_cpu, "--profile", "1", "--dump-calls", files[0], "--output", tmp_path / "o.npz")
    kernels = [call for call in document["profile"]["calls"] if not call["builtin"]]
    with np.load(files[0]) as calls, np.load(tmp_path / "o.npz") as outputs:
        assert document["call_dump"] == {"file": str(files[0]), "arrays": len(calls.files), "left_out": []}
        expected = {
            f"{call['index']:05d}|{call['name']}|{number}": (tuple(argument["shape"]), argument["dtype"])
            for call in kernels
            for number, argument in enumerate(call["arguments"])
        }
        assert {name: (array.shape, array.dtype.name) for name, array in calls.items()} == expected
        last = f"{kernels[-1]['index']:05d}|{kernels[-1]['name']}|{len(kernels[-1]['arguments']) - 1}"
        (output,) = outputs.values()
        np.testing.assert_array_equal(calls[last].ravel(), output.ravel())
        middle = kernels[1]["index"]
        rtvm.run(on_cpu, "--dump-calls", files[1], "--calls", f"{middle}:{middle + 1}")
        with np.load(files[1]) as some:
            assert set(some) == {name for name in expected if name.startswith(f"{middle:05d}|")}
            for name in some:
                np.testing.assert_array_equal(some[name], calls[name])
    rtvm("--model", on_cpu.path, "--dump-calls", tmp_path / "no" / "f.npz").refused(INPUT, "cannot write")


# ---- OpenCL -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cached(rtvm: Rtvm, textured: ModelPackage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Write the file of the textured package's programs by a first load."""
    directory = tmp_path_factory.mktemp("programs") / "made" / "here"
    document = rtvm.run(textured, "--program-cache", directory)
    assert document["program_cache"]["state"] == "written"
    assert document["program_cache"]["warning"] is None
    assert document["program_cache"]["keep_ms"] > 0
    (file,) = directory.iterdir()
    assert document["program_cache"]["file"] == str(file)
    yield file


def test_textures_are_timed_and_kept(
    rtvm: Rtvm, textured: ModelPackage, cached: Path, onnx_file: Path, tmp_path: Path
) -> None:
    document = rtvm.run(
        textured, "--program-cache", cached.parent, "--seed", "7", "--profile", "2",
        "--dump-calls", tmp_path / "calls.npz", "--output", tmp_path / "o.npz",
    )  # fmt: skip
    assert document["device"]["kind"] == "opencl"
    assert document["device"]["driver"]
    assert document["device"]["type"] in ("cpu", "gpu", "accelerator")
    kernels = [call for call in document["profile"]["calls"] if not call["builtin"]]
    for call in kernels:
        assert len(call["device_us"]) == 2
        assert all(
            0 < device <= host for device, host in zip(call["device_us"], call["host_us"], strict=True)
        )
    assert all(call["device_us"] is None for call in document["profile"]["calls"] if call["builtin"])
    images = [
        (call, number)
        for call in kernels
        for number, argument in enumerate(call["arguments"])
        if argument["scope"] == "global.texture"
    ]
    assert images
    assert {argument["scope"] for call in kernels for argument in call["arguments"]} == {
        "global", "global.texture",
    }  # fmt: skip
    with np.load(tmp_path / "o.npz") as outputs:
        (output,) = outputs.values()
    expected = reference(onnx_file, textured, 7)
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
    packed = dict(load_arrays(textured))
    weights = [packed[name] for name in textured.manifest.entry().images]
    with np.load(tmp_path / "calls.npz") as calls:
        # What one kernel reads from an image is a weight, or what another one has written into it.
        written = {}
        for call, number in images:
            array = calls[f"{call['index']:05d}|{call['name']}|{number}"]
            assert np.isfinite(array).all()
            assert np.abs(array).max() > 0
            if number == len(call["arguments"]) - 1:
                written[call["index"]] = array
            else:
                assert any(np.array_equal(array, before) for before in (*written.values(), *weights))
        last = f"{kernels[-1]['index']:05d}|{kernels[-1]['name']}|{len(kernels[-1]['arguments']) - 1}"
        np.testing.assert_array_equal(calls[last].ravel(), output.ravel())


def test_programs_are_taken_from_the_cache(rtvm: Rtvm, textured: ModelPackage, cached: Path) -> None:
    before = cached.read_bytes()
    document = rtvm.run(textured, ADT_PROGRAM_CACHE=str(cached.parent))
    assert document["program_cache"]["take_ms"] > 0
    program_cache = {**document["program_cache"], "take_ms": None}
    assert program_cache == {**OFF, "state": "hit", "file": str(cached)}
    assert cached.read_bytes() == before
    assert rtvm.run(textured)["program_cache"]["state"] == "off"
    assert rtvm.run(textured, "--program-cache", "off")["outputs"] == document["outputs"]


def test_the_cache_is_where_caches_are(
    rtvm: Rtvm, textured: ModelPackage, cached: Path, tmp_path: Path
) -> None:
    home = {"ADT_PROGRAM_CACHE": "", "XDG_CACHE_HOME": "", "HOME": str(tmp_path)}
    directory = tmp_path / ".cache" / "adt" / "programs"
    directory.mkdir(parents=True)
    shutil.copy(cached, directory)
    program_cache = rtvm.run(textured, **home)["program_cache"]
    assert (program_cache["state"], program_cache["file"]) == ("hit", str(directory / cached.name))
    nowhere = {**home, "HOME": "/dev/null"}
    assert rtvm.run(textured, **nowhere)["program_cache"] == OFF


def damaged(data: bytes) -> dict[str, bytes]:
    def flipped(at: int) -> bytes:
        changed = bytearray(data)
        changed[at] ^= 1
        return bytes(changed)

    key = data.index(b"driver: ")
    return {
        "magic": flipped(0), "version": flipped(8), "key length": flipped(12), "top of key length": flipped(15),
        "length": flipped(16), "top of length": flipped(23), "digest": flipped(24), "last of digest": flipped(87),
        "key": flipped(90), "driver": flipped(key + 8), "programs": flipped(len(data) // 2),
        "last byte": flipped(len(data) - 1), "empty": b"", "half a header": data[:50], "only a header": data[:88],
        "half": data[: len(data) // 2], "all but one byte": data[:-1], "one byte more": data + b"\0",
        "something else": b"hello" * 100,
    }  # fmt: skip


def test_a_file_of_no_use_is_replaced(
    rtvm: Rtvm, textured: ModelPackage, cached: Path, tmp_path: Path
) -> None:
    good = cached.read_bytes()
    for damage, content in damaged(good).items():
        file = tmp_path / cached.name
        file.write_bytes(content)
        done = rtvm("--model", textured.path, "--json", "--program-cache", tmp_path)
        assert done.json["program_cache"]["state"] == "rebuilt", damage
        assert str(file) in done.json["program_cache"]["warning"], damage
        assert "rtvm: warning: " in done.err, damage
        assert rtvm.run(textured, "--program-cache", tmp_path)["program_cache"]["state"] == "hit", damage
    assert [path.name for path in tmp_path.iterdir()] == [cached.name]


def test_programs_that_the_driver_refuses(
    rtvm: Rtvm, textured: ModelPackage, cached: Path, tmp_path: Path
) -> None:
    """Load anew the module that took half of an undamaged file without usable programs."""
    good = cached.read_bytes()
    key_end = 88 + int.from_bytes(good[12:16], "little")
    programs = good[key_end:].replace(b"pocl", b"lcop")
    assert programs != good[key_end:]
    digest = hashlib.sha256(programs).hexdigest().encode()
    (tmp_path / cached.name).write_bytes(good[:24] + digest + good[88:key_end] + programs)
    document = rtvm.run(textured, "--program-cache", tmp_path)
    assert document["program_cache"]["state"] == "rebuilt"
    assert "refused by the OpenCL driver" in document["program_cache"]["warning"]
    again = rtvm.run(textured, "--program-cache", tmp_path)
    assert again["program_cache"]["state"] == "hit"
    assert again["outputs"] == document["outputs"] == rtvm.run(textured)["outputs"]


def test_the_named_file(rtvm: Rtvm, textured: ModelPackage, cached: Path, tmp_path: Path) -> None:
    file = tmp_path / "kernels.bin"
    first = rtvm.run(textured, "--pre-compiled", file)["program_cache"]
    assert (first["state"], first["file"], first["warning"]) == ("written", str(file), None)
    assert file.read_bytes()[:88] == cached.read_bytes()[:16] + file.read_bytes()[16:88]
    assert rtvm.run(textured, "--pre-compiled", file)["program_cache"]["state"] == "hit"

    file.write_bytes(file.read_bytes()[:-1])
    assert rtvm.run(textured, "--pre-compiled", file)["program_cache"]["state"] == "rebuilt"
    assert rtvm.run(textured, "--pre-compiled", file)["program_cache"]["state"] == "hit"

    theirs = tmp_path / "letter.txt"
    theirs.write_text("Dear reader")
    program_cache = rtvm.run(textured, "--pre-compiled", theirs)["program_cache"]
    assert program_cache["state"] == "rebuilt"
    assert "left as it is" in program_cache["warning"]
    assert theirs.read_text() == "Dear reader"


def test_where_nothing_can_be_written(rtvm: Rtvm, textured: ModelPackage, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    program_cache = rtvm.run(textured, "--program-cache", tmp_path / "file" / "directory")["program_cache"]
    assert program_cache["state"] == "rebuilt"
    assert "cannot keep compiled kernels" in program_cache["warning"]
    (tmp_path / "taken").mkdir()
    program_cache = rtvm.run(textured, "--pre-compiled", tmp_path / "taken")["program_cache"]
    assert program_cache["state"] == "rebuilt"
    assert "is no file" in program_cache["warning"]


def test_what_others_may_have_written_is_not_given_to_the_driver(
    rtvm: Rtvm, textured: ModelPackage, cached: Path, tmp_path: Path
) -> None:
    place = tmp_path / "programs"
    place.mkdir(mode=0o700)
    file = place / cached.name

    def cache_state() -> tuple[str, str]:
        cache = rtvm.run(textured, "--program-cache", place)["program_cache"]
        return cache["state"], cache["warning"] or ""

    def faults() -> Iterator[str]:
        file.chmod(0o666)
        yield "may be written by other users"
        shutil.copy(cached, tmp_path / "elsewhere")
        file.unlink()
        file.symlink_to(tmp_path / "elsewhere")
        yield "cannot be read"
        if os.geteuid() == 0:
            os.chown(file, 65534, -1)
            yield "is another user's"

    shutil.copy(cached, file)
    file.chmod(0o600)
    assert cache_state() == ("hit", "")
    for words in faults():
        state, warning = cache_state()
        assert state == "rebuilt" and words in warning, warning
        assert file.stat().st_mode & 0o777 == 0o600 and not file.is_symlink()
        assert cache_state() == ("hit", "")
    place.chmod(0o777)
    state, warning = cache_state()
    assert state == "rebuilt" and "may be written by other users" in warning


def test_programs_are_of_the_kernels_whatever_the_package_says(
    rtvm: Rtvm, textured: ModelPackage, cached: Path, tmp_path: Path
) -> None:
    (tmp_path / "programs").mkdir(mode=0o700)
    library = (textured.path / "mod.so").read_bytes()
    assert b"__kernel void" in library
    same_kernels = with_library(textured.path, tmp_path / "same", library + bytes(16))
    same = rtvm("--model", same_kernels, "--json", "--program-cache", cached.parent)
    assert same.json["program_cache"]["state"] == "hit"
    broken = with_library(
        textured.path, tmp_path / "broken", library.replace(b"__kernel void", b"__kernel vuid")
    )
    shutil.copy(cached, tmp_path / "programs" / cached.name)
    refused = rtvm("--model", broken, "--program-cache", tmp_path / "programs")
    refused.refused(RUN, "OpenCL build error", "vuid")  # in the driver's words
    assert [path.name for path in (tmp_path / "programs").iterdir()] == [cached.name]


def test_what_killed_writers_left_goes(
    rtvm: Rtvm, textured: ModelPackage, cached: Path, tmp_path: Path
) -> None:
    old, young = (tmp_path / f"{number:064x}.programs.new-1-{number}" for number in range(2))
    for path in (old, young):
        path.write_text("half")
    os.utime(old, (1_000_000_000, 1_000_000_000))
    assert rtvm.run(textured, "--program-cache", tmp_path)["program_cache"]["state"] == "written"
    assert {path.name for path in tmp_path.iterdir()} == {cached.name, young.name}


def test_programs_are_built_when_the_package_is_loaded(
    rtvm: Rtvm, textured: ModelPackage, cached: Path
) -> None:
    kernels = len(textured.manifest.kernels)
    document = rtvm.run(textured, "--program-cache", "off")
    built = document["program_build"]
    assert (built["built"], built["ready"]) == (kernels, 0)
    assert 0 < built["ms"] < document["load_ms"]
    for threads in (1, 100):
        other = rtvm.run(textured, "--program-cache", "off", "--build-threads", threads)
        assert other["program_build"]["built"] == kernels
        assert other["outputs"] == document["outputs"]
    lazily = rtvm.run(textured, "--program-cache", "off", "--build-threads", "off")
    assert lazily["program_build"] == {"built": 0, "ready": 0, "ms": 0}
    assert lazily["outputs"] == document["outputs"]
    hit = rtvm.run(textured, "--program-cache", cached.parent)
    assert (hit["program_build"]["built"], hit["program_build"]["ready"]) == (0, kernels)
    done = rtvm("--model", textured.path, "--program-cache", "off")
    assert f"built     {kernels} programs in " in done.out
    rtvm("--model", textured.path, "--build-threads", "0").refused(USAGE, "--build-threads")


def test_the_cache_does_not_grow_for_ever(
    rtvm: Rtvm, textured: ModelPackage, cached: Path, tmp_path: Path
) -> None:
    names = [f"{number:064x}.programs" for number in range(70)]
    for age, name in enumerate(names):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (1_000_000_000 - age, 1_000_000_000 - age))
    (tmp_path / "letter.txt").write_text("Dear reader")
    os.utime(tmp_path / "letter.txt", (1, 1))
    assert rtvm.run(textured, "--program-cache", tmp_path)["program_cache"]["state"] == "written"
    assert {path.name for path in tmp_path.iterdir()} == {cached.name, "letter.txt", *names[:63]}


# ---- the RPC server's functions -----------------------------------------------------------------


def test_calls_are_timed_over_rpc(host_bundle: TargetBundle, on_cpu: ModelPackage, tmp_path: Path) -> None:
    """Find adt.profile by TVM's own client in tvm_rpc, which is linked with the runner."""
    import tvm
    from tvm import relax, rpc

    port = free_port()
    command = [
        str(host_bundle.path / "bin" / "tvm_rpc"), "server", "--host=127.0.0.1", f"--port={port}",
        f"--port-end={port + 1}",
    ]  # fmt: skip
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            remote = connected(rpc, port)
            version = remote.get_function("adt.runner_version")()
            assert (
                version
                == f"{adt.__version__} (TVM {host_bundle.manifest.tvm.version}, tvm-ffi {host_bundle.manifest.tvm.ffi_version})"
            )
            remote.upload(str(on_cpu.path / "mod.so"))
            vm = relax.VirtualMachine(remote.load_module("mod.so"), remote.cpu())
            entry = on_cpu.manifest.entry()
            inputs = random_inputs(entry.inputs, seed=2)
            params = tvm.runtime.load_param_dict_from_file(str(on_cpu.path / "mod.params"))
            arguments = [inputs[spec.name] for spec in entry.inputs]
            arguments += [params[name].numpy() for name in entry.params]
            vm.set_input("main", *[tvm.runtime.tensor(a, remote.cpu()) for a in arguments])
            profile = json.loads(remote.get_function("adt.profile")(vm.module, "main", 2))
            with pytest.raises(Exception, match="number of runs"):
                remote.get_function("adt.profile")(vm.module, "main", 0)
            vm.invoke_stateful("main")  # the VM is as it was
        finally:
            server.kill()
    kernels = [call for call in profile["calls"] if not call["builtin"]]
    assert {call["name"] for call in kernels} == {kernel.name for kernel in on_cpu.manifest.kernels}
    assert profile["runs"] == len(profile["total_us"]) == len(kernels[0]["host_us"]) == 2


def connected(rpc: Any, port: int) -> Any:
    for _ in range(600):
        try:
            return rpc.connect("127.0.0.1", port)
        except Exception:
            time.sleep(0.1)
    raise AssertionError("tvm_rpc does not answer")
