"""The program adt_probe against PoCL and stand-in libraries here, and `adt probe` on a virtual device."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import adt
from adt.device import opencl
from adt.device.deploy.payload import user_directory
from adt.device.device import Device
from adt.device.probe import _file as remembered_file
from adt.device.survey import Cpu, CpuCluster
from adt.host.directories import resource
from adt.host.process import cmake
from support.devices.fixtures import NATIVE, Rack, entries, processes
from support.devices.programs import (
    command_lines,
    invoke,
    invoke_json,
    program_output,
    run_program,
    try_program,
)
from support.models import vision
from support.models.small import small_model
from support.standins.opencl import DEVICE, make_standin_opencl
from support.waiting import wait_for

# ---- the program, on this machine -------------------------------------------------------------


@pytest.fixture(scope="session")
def program() -> Path:
    return adt.build_target(platform="host").bundle.file(opencl.PROGRAM)


@pytest.fixture(scope="session")
def tree() -> Path:
    return adt.source().path


@pytest.fixture(scope="session")
def headers(tree: Path) -> Path:
    return tree / "3rdparty/OpenCL-Headers"


def run(
    program: Path, *arguments: object, code: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    done = try_program(program, *arguments, **environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def report(program: Path, *arguments: object, **environment: str) -> dict[str, Any]:
    """Return the program's document; what a driver prints is not in it."""
    document: dict[str, Any] = json.loads(run(program, *arguments, **environment).stdout)
    assert (document["schema"], document["schema_version"]) == ("adt.opencl-probe", 1)
    opencl.parse_report(json.dumps(document))  # what Python reads is what C++ writes
    return document


def only(program: Path, library: object, *options: object) -> dict[str, Any]:
    (candidate,) = report(program, "--only", *options, library)["candidates"]
    answer: dict[str, Any] = candidate
    return answer


def listed_by_tvm(tree: Path, system: str) -> list[str]:
    """Return the libraries that the wrapper in TVM's source opens on *system* (``__ANDROID__``,
    ``__linux__``)."""
    source = next(tree.glob("src/**/opencl_wrapper.cc")).read_text()
    block = re.search(rf"defined\({system}\)\n.*?default_so_paths = {{(.*?)}}", source, re.DOTALL)
    assert block
    names = re.findall(r'"([^"]+)"', block[1])
    if system == "__linux__":  # cmake_presets/src/opencl_library.cc
        names.insert(names.index("libOpenCL.so") + 1, "libOpenCL.so.1")
    return names


def test_the_program_asks_what_tvm_would_open_in_its_order(program: Path, tree: Path) -> None:
    names = [candidate["library"] for candidate in report(program)["candidates"]]
    assert names == listed_by_tvm(tree, "__linux__") and names[0] == "libOpenCL.so"


def test_every_path_that_tvm_opens_is_among_the_known_places(tree: Path) -> None:
    for system in ("__ANDROID__", "__linux__"):
        paths = [name for name in listed_by_tvm(tree, system) if name.startswith("/")]
        assert len(paths) > 3 and set(paths) <= set(opencl.PLACES)


def test_pocl_answers(program: Path) -> None:
    """Query a real OpenCL: Debian's loader with PoCL (pocl-opencl-icd, ocl-icd-libopencl1)."""
    candidate = only(program, "libOpenCL.so.1")
    assert candidate["outcome"] == "answered", candidate["said"]
    assert candidate["path"].endswith("libOpenCL.so.1")
    (platform,) = [p for p in candidate["platforms"] if p["name"] == "Portable Computing Language"]
    (device,) = platform["devices"]
    assert device["kind"] == "cpu" and device["version"].startswith("OpenCL 3.0 PoCL")
    assert device["compute_units"] == len(os.sched_getaffinity(0)) or device["compute_units"] >= 1
    assert device["image2d_max_width"] >= 8192 and device["max_allocation"] >= 1 << 27
    assert "cl_khr_byte_addressable_store" in device["extensions"]


ASK_TVM = """
import ctypes, json, sys

class Any(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("pad", ctypes.c_uint32), ("value", ctypes.c_int64)]

class Bytes(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t)]

ffi = ctypes.CDLL(sys.argv[1] + "/libtvm_ffi.so", mode=ctypes.RTLD_GLOBAL)
ctypes.CDLL(sys.argv[1] + "/libtvm_runtime.so", mode=ctypes.RTLD_GLOBAL)
name, function = b"runtime.GetDeviceAttr", ctypes.c_void_p()
assert ffi.TVMFFIFunctionGetGlobal(ctypes.byref(Bytes(name, len(name))), ctypes.byref(function)) == 0

def number(kind):
    arguments = (Any * 3)(*(Any(1, 0, value) for value in (4, 0, kind)))  # 4: kDLOpenCL
    result = Any()
    assert ffi.TVMFFIFunctionCall(function, arguments, 3, ctypes.byref(result)) == 0
    return result.value

print(json.dumps([number(kind) for kind in map(int, sys.argv[2:])]))
"""
"""Asks the bundle's own runtime through its C interface; kinds are those of TVM's DeviceAttrKind."""


def test_tvms_runtime_sees_the_same_device(program: Path, tmp_path: Path) -> None:
    """Compare library, device and limits with TVM's runtime, PoCL being under the name that TVM opens."""
    (loader,) = [c["path"] for c in report(program, "--only", "libOpenCL.so.1")["candidates"]]
    (tmp_path / "libOpenCL.so").symlink_to(loader)
    seen = opencl.parse_report(run(program, LD_LIBRARY_PATH=str(tmp_path)).stdout)
    assert seen.taken == "libOpenCL.so" and seen.device
    lib = adt.build_target(platform="host").bundle.file("lib")
    kinds = {"exists": 0, "threads": 1, "local": 3, "clock": 6, "units": 7}
    words = (sys.executable, "-c", ASK_TVM, lib, *kinds.values())
    printed = program_output(*words, LD_LIBRARY_PATH=str(tmp_path))
    assert dict(zip(kinds, json.loads(printed.splitlines()[-1]), strict=True)) == {
        "exists": 1,
        "threads": seen.device.max_work_group_size,
        "local": seen.device.local_memory,
        "clock": (seen.device.max_clock_mhz or 0) * 1000,
        "units": seen.device.compute_units,
    }


def test_a_library_that_behaves_is_reported_as_it_answers(
    program: Path, headers: Path, tmp_path: Path
) -> None:
    library = make_standin_opencl(tmp_path / "good.so", "CLML", headers=headers)
    candidate = only(program, library)
    assert (candidate["outcome"], candidate["said"], candidate["path"]) == ("answered", "", str(library))
    (platform,) = candidate["platforms"]
    assert platform.pop("devices") == [DEVICE]
    assert platform == {
        "name": "STAND-IN platform",
        "vendor": "adt tests ??",  # what is not ASCII is of unknown encoding
        "version": "OpenCL 3.0 stand-in",
        "extensions": ["cl_khr_icd", "cl_adt_standin"],
        "error": None,
    }
    assert candidate["clml_versions"] == ["3.0", "4.0"]
    assert "STAND-IN: drivers print" in run(program, "--only", library).stderr


@pytest.mark.parametrize(
    ("faults", "outcome", "message"),
    [
        (("CRASH_LOADING",), "crashed", "signal 6) while loading it"),
        (("EXIT_LOADING",), "crashed", "exit code 3) while loading it"),
        (("NO_FUNCTIONS",), "unusable", "it lacks clGetPlatformIDs, clGetPlatformInfo"),
        (("NO_DRIVER",), "unusable", "error -1001, CL_PLATFORM_NOT_FOUND_KHR"),
        (("CRASH_IN_DEVICE",), "crashed", "signal 11) while asking device 0 of platform 0"),
        (("CRASH_IN_DESTRUCTOR",), "answered", ""),
    ],
)
def test_a_library_that_misbehaves_loses_nothing_but_itself(
    program: Path, headers: Path, tmp_path: Path, faults: tuple[str, ...], outcome: str, message: str
) -> None:
    bad = make_standin_opencl(tmp_path / "bad.so", *faults, headers=headers)
    good = make_standin_opencl(tmp_path / "good.so", headers=headers)
    document = report(program, "--only", bad, good)
    first, second = document["candidates"]
    assert first["outcome"] == outcome and message in first["said"]
    assert second["outcome"] == "answered" and second["platforms"][0]["devices"] == [DEVICE]
    assert document["taken"] == str(bad)  # TVM opens it all the same, and would share its fate


def test_what_was_said_before_a_crash_is_kept(program: Path, headers: Path, tmp_path: Path) -> None:
    library = make_standin_opencl(tmp_path / "clml.so", "CLML", "CRASH_IN_CLML", headers=headers)
    candidate = only(program, library)
    assert candidate["outcome"] == "crashed" and "while asking for the versions of CLML" in candidate["said"]
    assert candidate["path"] == str(library) and candidate["platforms"][0]["devices"] == [DEVICE]


def test_a_library_that_hangs_is_given_up(program: Path, headers: Path, tmp_path: Path) -> None:
    library = make_standin_opencl(tmp_path / "slow.so", "HANG_IN_DEVICE", headers=headers)
    candidate = only(program, library, "--timeout", 2)
    assert candidate["outcome"] == "timed-out" and "within 2000 ms while asking device 0" in candidate["said"]


def test_devices_that_cannot_be_had(program: Path, headers: Path, tmp_path: Path) -> None:
    none = only(program, make_standin_opencl(tmp_path / "none.so", "NO_DEVICE", headers=headers))
    assert none["outcome"] == "answered"
    assert (none["platforms"][0]["devices"], none["platforms"][0]["error"]) == ([], None)
    failing = only(program, make_standin_opencl(tmp_path / "fail.so", "DEVICES_FAIL", headers=headers))
    assert "error -6, CL_OUT_OF_HOST_MEMORY" in failing["platforms"][0]["error"]


def test_what_a_driver_does_not_tell_is_null(program: Path, headers: Path, tmp_path: Path) -> None:
    candidate = only(program, make_standin_opencl(tmp_path / "old.so", "NO_PITCH", headers=headers))
    device = candidate["platforms"][0]["devices"][0]
    assert device["image_pitch_alignment"] is None and device["image2d_max_width"] == 16384
    old = opencl.parse_report(json.dumps(report(program, "--only", tmp_path / "old.so")))
    assert old.device is None
    assert "PITCH_ALIGNMENT" in old.candidates[0].platforms[0].devices[0].refused_by_tvm


def test_the_first_of_tvms_libraries_that_loads_is_taken(
    program: Path, headers: Path, tmp_path: Path
) -> None:
    make_standin_opencl(tmp_path / "first/libOpenCL.so", headers=headers)
    other = make_standin_opencl(tmp_path / "other.so", headers=headers)
    absent = report(program, other)
    assert absent["taken"] is None or absent["taken"] in listed_by_tvm(adt.source().path, "__linux__")
    assert absent["candidates"][-1] | {"platforms": []} == {
        "library": str(other),
        "tvm": False,
        "outcome": "answered",
        "said": "",
        "path": str(other),
        "platforms": [],
        "clml_versions": [],
    }
    probe = report(program, other, LD_LIBRARY_PATH=str(tmp_path / "first"))
    assert probe["taken"] == "libOpenCL.so"
    assert probe["candidates"][0]["path"] == str(tmp_path / "first/libOpenCL.so")
    read = opencl.parse_report(json.dumps(probe))
    assert read.device and read.device.name == "STAND-IN GPU" and read.device.fp16
    assert read.device.qualcomm == ("cl_qcom_ml_ops",)


def test_googles_phones_switch_opencl_on_first(program: Path, headers: Path, tmp_path: Path) -> None:
    make_standin_opencl(tmp_path / "libOpenCL-pixel.so", "PIXEL", headers=headers)
    asked = ("--only", "libOpenCL-pixel.so")
    (candidate,) = report(program, *asked, LD_LIBRARY_PATH=str(tmp_path))["candidates"]
    assert candidate["outcome"] == "answered" and candidate["platforms"][0]["devices"] == [DEVICE]
    make_standin_opencl(tmp_path / "libOpenCL-pixel.so", headers=headers)  # without those functions
    document = report(program, *asked, LD_LIBRARY_PATH=str(tmp_path))
    assert "enableOpenCL" in document["candidates"][0]["said"] and document["taken"] is None


def test_the_list_is_read_from_whatever_tree_is_built(tree: Path, tmp_path: Path) -> None:
    """Read the list for Android and Linux by CMake, which names a linked library and warns without a list."""
    module = resource("cmake_presets") / "modules/TvmTree.cmake"

    def read(*definitions: str, root: Path = tree) -> tuple[list[str], str]:
        script = tmp_path / "read.cmake"
        script.write_text(
            f'include("{module}")\nadt_read_opencl_libraries("{root}")\nmessage("list=${{ADT_OPENCL_LIBRARIES}}")\n'
        )
        done = run_program(cmake().path, *(f"-D{word}" for word in definitions), "-P", script)
        return done.stderr.rpartition("list=")[2].strip().split(";"), done.stderr

    assert read() == (names := listed_by_tvm(tree, "__linux__"), f"list={';'.join(names)}\n")
    assert read("ANDROID=1")[0] == listed_by_tvm(tree, "__ANDROID__")
    assert read("OpenCL_LIBRARIES=/sdk/libOpenCL.so") == (["libOpenCL.so"], "list=libOpenCL.so\n")
    wrapper = tmp_path / "src/runtime/opencl/opencl_wrapper/opencl_wrapper.cc"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text("something else")
    libraries, warning = read(root=tmp_path)
    assert libraries == ["libOpenCL.so"] and "does not list the OpenCL libraries" in warning


def test_a_wrong_command_line_is_refused(program: Path) -> None:
    for words in (["--bad"], ["--timeout"], ["--timeout", "x"], ["--timeout", "0"], ["--only"], [""]):
        done = run(program, *words, code=2)
        assert done.stdout == "" and "adt_probe: error: " in done.stderr and "remedy: " in done.stderr
    assert "LIBRARY" in run(program, "--help").stdout


def test_killing_the_program_leaves_no_child(program: Path, headers: Path, tmp_path: Path) -> None:
    library = make_standin_opencl(tmp_path / "slow-one.so", "HANG_IN_DEVICE", headers=headers)

    started = subprocess.Popen([str(program), "--only", str(library)], stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: len(command_lines(str(library))) == 2, "the child starts")
    finally:
        os.kill(started.pid, signal.SIGKILL)
        started.wait()
    wait_for(lambda: not command_lines(str(library)), "the child ends with its parent")


def test_the_program_needs_no_library_of_the_bundle(program: Path) -> None:
    bundle = adt.build_target(platform="host").bundle
    needed = set(bundle.manifest.files[opencl.PROGRAM].needed)
    assert needed and not needed & {Path(name).name for name in bundle.manifest.files}
    assert not any("c++" in name or "stdc" in name for name in needed)


# ---- the verb, on a virtual device ------------------------------------------------------------


@pytest.fixture(scope="module")
def bundle() -> Path:
    return Path(invoke_json("build-target", "--for", "linux-aarch64")["path"])


def asked(serial: str, *more: object) -> tuple[dict[str, Any], bool]:
    """Run `adt probe --json -v`; return the document, and whether the program was sent."""
    done = invoke("probe", "--serial", serial, "--json", "-v", *more)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document, "/adt_probe" in done.stderr


def test_a_virtual_device_is_probed_once_per_boot(bundle: Path, rack: Rack) -> None:
    phone = rack.start("probed")
    probe, sent = asked(phone.serial)
    assert sent and (probe["schema"], probe["schema_version"]) == ("adt.probe", 1)
    assert probe["virtual"] and probe["platforms"] == ["linux-aarch64"] and probe["machine"] == "aarch64"
    assert probe["memory"]["total"] > probe["memory"]["available"] > 0 and probe["page_size"] == 4096
    assert probe["cpu"] is None and "no CPU of its own" in probe["missing"]["cpu"]
    assert probe["android"] is None and probe["selinux"] is None
    names = [candidate["library"] for candidate in probe["opencl"]["candidates"]]
    assert names[0] == "libOpenCL.so" and probe["opencl"]["taken"] is None
    assert {candidate["outcome"] for candidate in probe["opencl"]["candidates"]} == {"not-loaded"}

    again, sent_again = asked(phone.serial)
    assert not sent_again and again["opencl"] == probe["opencl"] and again["boot"] == probe["boot"]
    assert asked(phone.serial, "--fresh")[1]
    assert entries(phone, f"{user_directory()}/tmp") == []
    assert not [row for row in processes(phone) if "adt_probe" in row]

    rack.kill("probed")
    restarted = rack.boot("probed", port=int(phone.serial.rpartition(":")[2]))
    invoke_json("devices")
    after, sent_after = asked(restarted.serial)
    assert restarted.serial == phone.serial and after["boot"] != probe["boot"] and sent_after


@pytest.fixture(scope="module")
def phone(rack: Rack) -> Device:
    """Start a virtual device for tests that change nothing on it."""
    return rack.start("page")


def test_the_page_for_people(bundle: Path, phone: Device) -> None:
    done = invoke("probe", "--serial", phone.serial)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"device     {phone.serial}: ") and "no speed" in lines[0]
    assert "OpenCL     TVM's runtime finds no library" in lines
    assert any(line.startswith("           not there: libOpenCL.so, ") for line in lines)
    assert any(line.startswith("unknown    cpu: ") for line in lines)


def test_a_library_on_the_device_is_found_and_judged(
    bundle: Path, headers: Path, tmp_path: Path, rack: Rack
) -> None:
    """Put a stand-in for arm64 where TVM's runtime for Linux does not look."""
    phone = rack.start("vendor")
    place = "/data/data/org.pocl.libs/files/lib64/libpocl.so"
    assert place in opencl.PLACES

    def put(*faults: str) -> None:
        library = tmp_path / f"{'-'.join(faults) or 'good'}.so"
        make_standin_opencl(library, *faults, headers=headers, compiler="aarch64-linux-gnu-gcc")
        phone.shell(["mkdir", "-p", place.rpartition("/")[0]])
        phone.push(library, place, mode=0o644)

    def judged(name: str) -> dict[str, Any]:
        checks = invoke_json("doctor", "device", "--serial", phone.serial)["checks"]
        (check,) = [check for check in checks if check["name"] == f"{phone.serial}: {name}"]
        return dict(check)

    put()
    document, _ = asked(phone.serial, "--fresh")
    candidates = {candidate["library"]: candidate for candidate in document["opencl"]["candidates"]}
    assert candidates[place]["outcome"] == "answered" and not candidates[place]["tvm"]
    assert candidates[place]["platforms"][0]["devices"] == [DEVICE]
    assert document["opencl"]["taken"] is None and document["gpu"] is None
    verdict = judged("OpenCL")
    assert verdict["status"] == "warning" and verdict["origin"] == "adt_probe on the device"
    assert f"{place} would answer, but TVM's runtime does not open it" in verdict["found"]
    assert verdict["remedy"].endswith(f"ln -s {place} /usr/local/lib/libOpenCL.so")

    put("CRASH_IN_DEVICE")
    document, _ = asked(phone.serial, "--fresh")
    assert document["opencl"]["candidates"][-1]["outcome"] == "crashed"
    assert f"{place} crashed: " in judged("OpenCL library")["found"]


@pytest.mark.usefixtures("program")
def test_a_device_that_does_not_carry_stderr_apart(headers: Path, tmp_path: Path, rack: Rack) -> None:
    """Keep the output of a driver out of the report."""
    phone = rack.start("old", faults=["no-shell-v2"], abi=NATIVE.name)
    library = tmp_path / "chatty.so"
    make_standin_opencl(library, headers=headers)
    place = "/data/data/org.pocl.libs/files/lib64/libpocl.so"
    phone.shell(["mkdir", "-p", place.rpartition("/")[0]])
    phone.push(library, place, mode=0o644)
    probe, sent = asked(phone.serial)
    assert sent and probe["opencl"]["candidates"][-1]["outcome"] == "answered"


def test_without_a_bundle_the_rest_is_still_told(
    rack: Rack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone = rack.start("bare", abi=NATIVE.name)
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path))
    probe = invoke_json("probe", "--serial", phone.serial)
    assert probe["opencl"] is None and probe["memory"]
    assert probe["missing"]["opencl"].endswith(f"adt build-target --for {NATIVE.linux_platform}")
    assert remembered_file(phone.serial).is_file()
    checks = invoke_json("doctor", "device", "--serial", phone.serial)["checks"]
    assert [c["status"] for c in checks if c["name"] == f"{phone.serial}: OpenCL"] == ["ok"]


def test_compile_like_a_device(bundle: Path, phone: Device, tmp_path: Path) -> None:
    model = small_model(tmp_path / "small.onnx")
    package = invoke_json("compile", model, "--like", phone.serial, "-o", tmp_path / "pkg")["package"]
    assert package["target"]["platform"] == "linux-aarch64"
    assert "virtual device" in package["like"]["device"] and package["like"]["cpu_features"] == []
    assert invoke("run", tmp_path / "pkg", "--serial", phone.serial).returncode == 0  # rtvm reads mod.json
    done = invoke("compile", model, "--like", phone.serial, "--for", "host", "-o", tmp_path / "other")
    assert done.returncode == 12 and "is linux-aarch64, not host" in done.stderr
    assert invoke("compile", model, "--like", "absent", "-o", tmp_path / "x").returncode == 13


def test_code_for_the_features_of_a_device_runs(
    bundle: Path, phone: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compile for a made-up device; the emulator's CPU has its features."""
    from adt.verbs import compile as compiling

    clusters = (CpuCluster((0,), "Cortex-A55", "0x41/0xd05", None, None, None, ""),)
    made_up = Cpu(clusters, ("fp", "asimd", "fphp", "asimdhp", "asimddp"))
    real = compiling.probe_device
    monkeypatch.setattr(compiling, "probe_device", lambda device: replace(real(device), cpu=made_up))
    model = vision.mixed_blocks(tmp_path / "mixed.onnx")
    package = adt.compile(model, like=phone.serial, out=tmp_path / "pkg")
    assert package.manifest.like and package.manifest.like.cpu_features == ("+dotprod", "+fullfp16")
    assert package.manifest.target.spec["mattr"] == ["+dotprod", "+fullfp16"]
    assert adt.verify(package.path, serial=phone.serial, bundle=bundle, seed=3).verification.passed


@pytest.mark.nightly
def test_pocl_on_a_virtual_device(bundle: Path, rack: Rack) -> None:
    """Compute by a real OpenCL for arm64 on the (emulated) processor."""
    (machine,) = invoke_json("emulator", "start", "pocl", "--opencl")["emulators"]
    try:
        probe, _ = asked(machine["serial"])
        assert probe["opencl"]["taken"] == "libOpenCL.so"
        read = opencl.parse_report(
            json.dumps({"schema": "adt.opencl-probe", "schema_version": 1, **probe["opencl"]})
        )
        assert read.platform and read.platform.name == "Portable Computing Language"
        assert read.device and read.device.kind == "cpu" and read.device.images
        checks = invoke_json("doctor", "device", "--serial", machine["serial"])["checks"]
        (verdict,) = [c for c in checks if c["name"] == f"{machine['serial']}: OpenCL"]
        assert verdict["status"] == "ok" and "libOpenCL.so: Portable Computing Language" in verdict["found"]
    finally:
        invoke_json("emulator", "stop", "pocl")


def test_tvm_takes_the_limits_of_a_device(program: Path, headers: Path, tmp_path: Path) -> None:
    import tvm

    from adt.device.probe import opencl_limits

    library = make_standin_opencl(tmp_path / "good.so", headers=headers)
    read = opencl.parse_report(json.dumps(report(program, "--only", library)))
    assert read.device
    limits = opencl_limits(read.device)
    assert limits == {
        "max_num_threads": 512,
        "max_threads_per_block": 512,
        "max_shared_memory_per_block": 32768,
        "texture_spatial_limit": 16383,
        "texture_depth_limit": 2047,
        "image_base_address_alignment": 64,
    }
    target = tvm.target.Target({"kind": "opencl", "device": "adreno", **limits})
    assert {name: int(target.attrs[name]) for name in limits} == limits
