"""The probe: what the script's output means, what is remembered, what is asked of a device, the page."""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import pytest

from adt.bundle.bundle import TargetBundle, newest_with
from adt.device import opencl, survey
from adt.device import probe as probing
from adt.device.deploy.payload import user_directory
from adt.device.device import Device
from adt.device.probe import Probe, last_probe, package_like
from adt.device.scripts import script
from adt.device.survey import HARDWARE, Cpu, DeviceFacts, Gpu, Memory, Survey, ThermalZone, core_name
from adt.device.transport.shell import Completed
from adt.errors import DeviceError, DeviceFull
from adt.host.directories import resource
from adt.verbs.device import rows
from support.devices.probe_texts import ADRENO, BOARD, MALI, VIRTUAL
from support.devices.programs import run_program
from support.standins.artefacts import make_bundle
from support.standins.opencl_report import NVIDIA, RECORDED, with_device

# ---- what the script prints -------------------------------------------------------------------


def shape(cpu: Cpu | None) -> list[tuple[int, str, int | None]]:
    assert cpu
    return [(len(cluster.cpus), cluster.core, cluster.max_khz) for cluster in cpu.clusters]


def test_a_phone_with_an_adreno() -> None:
    phone = survey.parse(ADRENO)
    assert (
        phone["boot"] == "1e2d3c4b-0001-4000-8000-000000000001"
    )  # the first process's start may not be read
    assert (phone["kernel"], phone.selinux) == ("5.10.149-android12-9", "Enforcing")
    assert shape(phone.cpu) == [
        (4, "Cortex-A510", 1785600),
        (3, "Cortex-A710", 2496000),
        (1, "Cortex-X2", 2995200),
    ]
    assert phone.cpu and phone.cpu.clusters[0].part == "0x41/0xd46"
    first = phone.cpu.clusters[0]
    assert (first.cpus, first.min_khz, first.current_khz, first.governor) == (
        (0, 1, 2, 3),
        300000,
        1171200,
        "walt",
    )
    assert {"asimddp", "fphp", "i8mm"} <= set(phone.cpu.features)
    assert phone.memory == Memory(7602176 * 1024, 3145728 * 1024)
    assert phone.thermal
    assert phone.thermal.zones == (ThermalZone("cpu-0-0", 41.3), ThermalZone("gpuss-0", 38.25))
    assert phone.thermal.unreadable == 2  # not permitted, and a sensor that is off
    assert phone.gpu == Gpu("Adreno730v2", "/sys/class/kgsl/kgsl-3d0/gpu_model")
    assert phone.missing == {}


def test_a_phone_with_a_mali() -> None:
    phone = survey.parse(MALI)
    assert shape(phone.cpu) == [
        (4, "Cortex-A55", 1803000),
        (2, "Cortex-A78", 2253000),
        (2, "Cortex-X1", 2802000),
    ]
    assert phone.gpu == Gpu("Mali-G78", "/sys/class/misc/mali0/device/gpuinfo")
    assert phone.thermal and (phone.thermal.zones, phone.thermal.unreadable) == ((), 2)


def test_a_board() -> None:
    board = survey.parse(BOARD)
    assert shape(board.cpu) == [(4, "Cortex-A72", 1800000)]
    assert board.cpu and "asimddp" not in board.cpu.features
    assert (board.board, board.board_soc) == ("Raspberry Pi 4 Model B Rev 1.4", "brcm,bcm2711")
    assert board.selinux is None and board.gpu is None
    assert set(board.missing) == {"selinux", "gpu"}
    assert board.missing["selinux"] == "getenforce: sh: 1: getenforce: not found"


def test_the_virtual_device() -> None:
    answers = survey.parse(VIRTUAL)
    assert answers["boot"] == "47f755cd-39a1-449d-897a-4ea091806abc 1297422"
    assert shape(answers.cpu) == [(2, "Some CPU of the computer", None)]
    assert answers.cpu and answers.cpu.features == ("fpu", "sse2")  # what every CPU has
    assert set(answers.missing) == {"selinux", "gpu", "thermal"}


@pytest.mark.parametrize(
    "text", ["", "garbage\n==cpus==\nx y\n", "==memory==\nMemTotal: many kB\n==thermal==\n"]
)
def test_a_device_that_says_nothing(text: str) -> None:
    answers = survey.parse(text)
    assert set(answers.missing) == {"cpu", "gpu", "memory", "selinux", "thermal"}
    assert all(answers.missing.values())
    assert (answers.cpu, answers.memory, answers.thermal, answers.gpu, answers.selinux) == (None,) * 5


@pytest.mark.parametrize("text", [ADRENO, MALI, BOARD, VIRTUAL])
def test_an_answer_that_is_cut_off_is_read_as_far_as_it_goes(text: str) -> None:
    for end in range(0, len(text), 5):
        answers = survey.parse(text[:end])
        for part in ("cpu", "memory", "thermal", "gpu", "selinux"):
            assert (getattr(answers, part) is None) == (part in answers.missing)


def test_a_cpu_that_is_offline_joins_its_cluster() -> None:
    """Assign a CPU that /proc/cpuinfo omits to its cluster by its clock, or its register."""
    text = re.sub(r"processor\t: 7\n.*?\n\n", "", MALI, flags=re.DOTALL)
    assert shape(survey.parse(text).cpu)[2] == (2, "Cortex-X1", 2802000)
    by_clock = text.replace("sched_pixel 0x00000000411fd440", "sched_pixel -")
    assert shape(survey.parse(by_clock).cpu)[2] == (2, "Cortex-X1", 2802000)
    by_kind = re.sub(r"^7 .*$", "7 - - - - 0x00000000411fd440", text, flags=re.MULTILINE)
    assert shape(survey.parse(by_kind).cpu)[2] == (2, "Cortex-X1", 2802000)
    unknown = re.sub(r"^7 .*$", "7 - - - - -", text, flags=re.MULTILINE)
    assert shape(survey.parse(unknown).cpu)[0] == (1, "", None)  # could be of any: it stays alone


def test_cores_have_names() -> None:
    assert core_name(0x41, 0xD05) == "Cortex-A55"
    assert core_name(0x51, 0x804) == "Kryo 4xx Gold"
    assert core_name(0x41, 0x123) == core_name(0x99, 0xD05) == ""
    unknown = survey.parse(MALI.replace("0xd44", "0xfff").replace("fd440", "ffff0")).cpu
    assert unknown and (unknown.clusters[2].core, unknown.clusters[2].part) == ("", "0x41/0xfff")


SHELLS = [shell for shell in ("sh", "dash", "bash", "mksh") if shutil.which(shell)]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_runs_here(shell: str) -> None:
    """Find at least memory, CPUs, kernel and boot of this machine."""
    done = run_program(shell, "-c", script("survey"), "sh", *survey.arguments([*survey.FACTS, *HARDWARE]))
    answers = survey.parse(done.stdout)
    assert answers.memory and answers.cpu and answers["kernel"] == os.uname().release
    assert done.stderr == ""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    start = Path("/proc/1/stat").read_text().rpartition(") ")[2].split()[19]
    assert answers["boot"] == f"{boot} {start}"
    assert answers.facts.machine == os.uname().machine and answers.facts.page_size == os.sysconf(
        "SC_PAGESIZE"
    )


# ---- what adt_probe reports -------------------------------------------------------------------


def test_a_report_is_read() -> None:
    report = NVIDIA
    assert [c.outcome for c in report.candidates] == ["answered", "not-loaded", "unusable"]
    assert report.chosen is report.candidates[0] and report.candidates[1].absent
    assert report.device and report.device.name == "NVIDIA H200" and not report.device.fp16
    assert report.device.refused_by_tvm == "" and report.platform and report.platform.name == "NVIDIA CUDA"


def test_what_tvms_runtime_would_compute_on() -> None:
    assert with_device(kind="cpu").device
    assert with_device(kind="accelerator").device is None
    for version in ("OpenCL 1.1 x", "nonsense", None):
        assert with_device(version=version).device is None
    refused = with_device(image_pitch_alignment=None)
    assert refused.device is None and refused.platform is None
    (device,) = refused.candidates[0].platforms[0].devices
    assert "CL_DEVICE_IMAGE_PITCH_ALIGNMENT" in device.refused_by_tvm
    assert replace(NVIDIA, taken=None).device is None


def test_a_library_that_is_absent_in_androids_words() -> None:
    message = 'dlopen failed: library "libOpenCL.so" not found'
    assert replace(NVIDIA.candidates[1], library="libOpenCL.so", said=message).absent
    hidden = (
        'dlopen failed: library "/vendor/lib64/libOpenCL.so" is not accessible for the namespace "default"'
    )
    assert not replace(NVIDIA.candidates[1], library="/vendor/lib64/libOpenCL.so", said=hidden).absent
    other = "libm.so.6: cannot open shared object file: No such file or directory"
    assert not replace(NVIDIA.candidates[1], library="libOpenCL.so", said=other).absent


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": "adt.opencl-probe", "schema_version": 2, "candidates": [], "taken": null}',
        '{"schema": "adt.opencl-probe", "schema_version": 1}',
        '{"schema": "adt.opencl-probe", "schema_version": 1, "candidates": [{}], "taken": null}',
    ],
)
def test_another_document_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        opencl.parse_report(text)


def test_places_are_those_of_the_word_size() -> None:
    wide, narrow = opencl.places("android-arm64-v8a"), opencl.places("android-armeabi-v7a")
    assert "/vendor/lib64/libOpenCL.so" in wide and "/vendor/lib/libOpenCL.so" not in wide
    assert "/vendor/lib/libOpenCL.so" in narrow and "/vendor/lib64/libOpenCL.so" not in narrow
    assert "/usr/lib/aarch64-linux-gnu/libOpenCL.so.1" in opencl.places("linux-aarch64")
    assert "/vendor/lib64/libOpenCL.so" in opencl.places("host"), "whose name does not say it"
    assert len(set(opencl.PLACES)) == len(opencl.PLACES)


def test_the_program_says_what_python_reads() -> None:
    """Compare the keys that the C++ code writes for a device with the fields here."""
    source = (resource("cpp_runner") / "src/probe/ask.cc").read_text()
    body = source.partition("void WriteDevice(")[2].partition("\n}")[0]
    written = re.findall(r'(?:Text|Words|Bool|Count<[^>]+>|Key)\("(\w+)"', body)
    recorded = json.loads(RECORDED)
    assert written == list(recorded["candidates"][0]["platforms"][0]["devices"][0])
    assert set(written) == set(NVIDIA.candidates[0].platforms[0].devices[0].__dataclass_fields__)


# ---- asking a device --------------------------------------------------------------------------


class FakeDevice:
    """Answers the survey with a prepared text, and the program with a prepared report."""

    serial = "S"

    def allow(self, seconds: float) -> float:
        return seconds

    def __init__(self, text: str, report: str = "", **properties: str) -> None:
        machine = "aarch64"
        self.facts = DeviceFacts(
            {key.replace("_", "."): value for key, value in properties.items()}, machine, 4096
        )
        self.text, self.report = text, report
        self.exit_code, self.words = 0, b""
        self.calls: list[str] = []
        self.failure: Exception | None = None

    def survey(self, *parts: str, **_: object) -> Survey:
        assert parts == HARDWARE
        self.calls.append("survey")
        return survey.parse(self.text)

    def script(self, _: str, *arguments: str, **__: object) -> Completed:
        self.calls.append("program")
        assert arguments[0].endswith("/adt_probe") and "/vendor/lib64/libOpenCL.so" in arguments
        return Completed("S", ("sh",), self.exit_code, self.report.encode(), self.words)

    def push(self, local: Path, remote: str, **_: object) -> int:
        if self.failure:
            raise self.failure
        self.calls.append("push")
        assert local.name == "adt_probe" and remote.startswith("/tmp-on-device/")
        return 1


@pytest.fixture(autouse=True)
def places_of_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path / "cache"))

    @contextlib.contextmanager
    def workspace(_device: Device, parent: str) -> Iterator[str]:
        assert parent == f"{user_directory()}/tmp"
        yield "/tmp-on-device"

    monkeypatch.setattr(probing, "workspace", workspace)


@pytest.fixture
def bundle(tmp_path: Path) -> TargetBundle:
    return make_bundle(tmp_path / "bundle", {opencl.PROGRAM: b"program"})


def ask(device: FakeDevice, bundle: TargetBundle | None, *, fresh: bool = False) -> Probe:
    return probing.probe(cast(Device, device), bundle, fresh=fresh)


def test_opencl_is_asked_once_per_boot(bundle: TargetBundle) -> None:
    device = FakeDevice(ADRENO, RECORDED)
    first = ask(device, bundle)
    assert device.calls == ["survey", "push", "program"] and first.opencl == NVIDIA
    second = ask(device, bundle)
    assert device.calls[3:] == ["survey"] and second.opencl == first.opencl
    ask(device, bundle, fresh=True)
    assert device.calls[4:] == ["survey", "push", "program"]
    device.text = ADRENO.replace("1e2d3c4b-0001", "1e2d3c4b-9999")
    ask(device, bundle)
    assert device.calls[7:] == ["survey", "push", "program"]  # the device was restarted
    assert ask(device, None).opencl  # what is known needs no program
    other = replace(bundle, manifest=replace(bundle.manifest, files={opencl.PROGRAM: replace(
        bundle.manifest.files[opencl.PROGRAM], sha256="1" * 64)}))  # fmt: skip
    ask(device, other)
    assert device.calls[-1] == "program"  # another program may know more


def test_clocks_and_temperatures_are_never_remembered(bundle: TargetBundle) -> None:
    device = FakeDevice(ADRENO, RECORDED)
    ask(device, bundle)
    device.text = ADRENO.replace("41300 cpu-0-0", "61300 cpu-0-0")
    again = ask(device, bundle)
    assert again.thermal and again.thermal.zones[0].celsius == 61.3


def test_without_a_program_the_rest_is_there() -> None:
    probe = ask(FakeDevice(ADRENO, ro_product_cpu_abi="arm64-v8a"), None)
    assert probe.opencl is None and probe.program == ""
    assert probe.missing == {
        "opencl": "no bundle for android-arm64-v8a that brings adt_probe was built here: "
        "adt build-target --for android-arm64-v8a"
    }
    assert probe.android and probe.android.abis == ("arm64-v8a",)


def test_the_devices_own_words_are_shown(bundle: TargetBundle) -> None:
    device = FakeDevice(ADRENO)
    device.exit_code = 1
    device.words = b'CANNOT LINK EXECUTABLE "adt_probe": library "libc++_shared.so" not found'
    probe = ask(device, bundle)
    assert probe.opencl is None and 'library "libc++_shared.so" not found' in probe.missing["opencl"]


def test_a_program_that_cannot_run_loses_only_its_part(bundle: TargetBundle) -> None:
    device = FakeDevice(ADRENO, "not JSON")
    assert "cannot be read" in ask(device, bundle).missing["opencl"]
    device.failure = DeviceFull("device S is full", remedy="Remove something.")
    assert ask(device, bundle).missing["opencl"] == "device S is full: Remove something."
    wrong = replace(bundle, manifest=replace(bundle.manifest, platform="android-x86_64"))
    assert "the bundle is for android-x86_64" in ask(device, wrong).missing["opencl"]
    assert last_probe("S", "1e2d3c4b-0001-4000-8000-000000000001")  # what was found


def test_a_device_that_goes_away_is_an_error() -> None:
    device = FakeDevice(ADRENO)

    gone = DeviceError("gone", remedy="Plug it in.")
    device.survey = Mock(side_effect=gone)  # type: ignore[method-assign]
    with pytest.raises(DeviceError):
        ask(device, None)


def test_names_from_properties_and_from_the_device_tree() -> None:
    named = FakeDevice(
        ADRENO,
        ro_product_model="Phone",
        ro_soc_manufacturer="QTI",
        ro_soc_model="SM8450",
        ro_board_platform="taro",
    )
    probe = ask(named, None)
    assert (probe.model, probe.soc) == ("Phone", "QTI SM8450")
    assert ask(FakeDevice(MALI, ro_board_platform="gs201"), None).soc == "gs201"
    board = ask(FakeDevice(BOARD), None)
    assert (board.model, board.soc) == ("Raspberry Pi 4 Model B Rev 1.4", "brcm,bcm2711")
    assert board.missing["android"] == "this is not Android" and board.platforms == ("linux-aarch64",)


def test_the_gpu_is_named_by_opencl_where_the_kernel_does_not(bundle: TargetBundle) -> None:
    assert ask(FakeDevice(BOARD, RECORDED), bundle).gpu == Gpu("NVIDIA H200", "OpenCL")
    report = json.loads(RECORDED)
    report["candidates"][0]["platforms"][0]["devices"][0] |= {
        "name": "QUALCOMM Adreno(TM)",
        "version": "OpenCL 3.0 Adreno(TM) 730",
    }
    phone = ask(FakeDevice(BOARD.replace("0003", "0044"), json.dumps(report)), bundle)
    assert phone.gpu == Gpu("Adreno(TM) 730", "OpenCL"), "the version alone says which"
    assert ask(FakeDevice(BOARD.replace("0003", "0033"), ro_hardware_egl="powervr"), None).gpu == Gpu(
        "powervr", "ro.hardware.egl"
    )


def test_an_emulators_cpu_is_not_shown_as_a_devices() -> None:
    probe = ask(FakeDevice(VIRTUAL, ro_adt_platform="linux-aarch64"), None)
    assert probe.virtual and probe.cpu is None and "no CPU of its own" in probe.missing["cpu"]


# ---- remembered -------------------------------------------------------------------------------


def test_what_is_remembered_belongs_to_one_boot_of_one_device(bundle: TargetBundle) -> None:
    probe = ask(FakeDevice(ADRENO, RECORDED), bundle)
    assert last_probe("S", probe.boot) == last_probe("S", f"{probe.boot}\n") == probe
    assert last_probe("T", probe.boot) is None
    assert last_probe("S", "another") is None and last_probe("S", "") is None


def test_damaged_memory_counts_as_none(bundle: TargetBundle) -> None:
    probe = ask(FakeDevice(ADRENO, RECORDED), bundle)
    (file,) = (Path(os.environ["ADT_CACHE_DIR"]) / "probes").iterdir()
    for text in ("", "{}", file.read_text().replace('"schema_version": 1', '"schema_version": 9', 1)):
        file.write_text(text)
        assert last_probe("S", probe.boot) is None
    probe = ask(FakeDevice(ADRENO, RECORDED), bundle)
    assert last_probe("S", probe.boot) == probe


def test_a_cache_that_cannot_be_written_is_no_error(bundle: TargetBundle) -> None:
    Path(os.environ["ADT_CACHE_DIR"]).write_text("a file where a directory should be")
    assert ask(FakeDevice(ADRENO, RECORDED), bundle).opencl


# ---- which bundle brings the program ----------------------------------------------------------


def test_the_newest_fitting_bundle_brings_the_program() -> None:
    root = Path(os.environ["ADT_CACHE_DIR"]) / "bundles"
    assert newest_with(opencl.PROGRAM, ("linux-aarch64",)) is None
    make_bundle(root / "without")
    assert newest_with(opencl.PROGRAM, ("linux-aarch64",)) is None
    old = make_bundle(root / "old", {opencl.PROGRAM: b"old"})
    new = make_bundle(root / "new", {opencl.PROGRAM: b"new"})
    os.utime(old.path / "bundle.json", (1, 1))
    damaged = root / "damaged"
    damaged.mkdir()
    (damaged / "bundle.json").write_text("{")
    newest = newest_with(opencl.PROGRAM, ("android-arm64-v8a", "linux-aarch64"))
    assert newest and newest.path == new.path
    assert newest_with(opencl.PROGRAM, ("android-arm64-v8a",)) is None


# ---- what compiling takes from it -------------------------------------------------------------


def test_compiling_takes_only_what_every_cpu_has() -> None:
    assert package_like(ask(FakeDevice(ADRENO), None), "AARCH64").cpu_features == (
        "+dotprod",
        "+fullfp16",
        "+i8mm",
        "+bf16",
    )
    mixed = re.sub(r"(processor\t: 7\n.*?)asimddp", r"\1", MALI, flags=re.DOTALL)
    assert package_like(ask(FakeDevice(mixed), None), "AARCH64").cpu_features == ("+fullfp16",)
    assert package_like(ask(FakeDevice(BOARD), None), "AARCH64").cpu_features == ()
    assert (
        package_like(ask(FakeDevice(ADRENO), None), "ARM").cpu_features == ()
    )  # 32-bit code on the same device


def test_compiling_takes_the_limits_of_the_gpu(bundle: TargetBundle) -> None:
    options = package_like(ask(FakeDevice(ADRENO, RECORDED), bundle), "AARCH64")
    assert (options.gpu, options.opencl_driver, options.fp16) == ("Adreno730v2", "580.159.04", False)
    assert options.opencl_limits["texture_spatial_limit"] == 32768
    assert options.opencl_limits["max_num_threads"] == 1024
    assert "image_base_address_alignment" not in options.opencl_limits  # 0: it makes no images from buffers
    without = package_like(ask(FakeDevice(BOARD), None), "AARCH64")
    assert (without.fp16, without.opencl_limits, without.opencl_extensions) == (None, {}, ())


# ---- the page ---------------------------------------------------------------------------------


def page(probe: Probe) -> str:
    return "\n".join(f"{name:<10} {text}".rstrip() for name, text in rows(probe))


def test_the_page_of_a_phone(bundle: TargetBundle) -> None:
    device = FakeDevice(ADRENO, RECORDED, ro_product_cpu_abi="arm64-v8a", ro_build_version_sdk="33")
    device.facts = replace(
        device.facts, properties={**device.facts.properties, "ro.build.version.release": "13"}
    )
    text = page(ask(device, replace(bundle, manifest=replace(bundle.manifest, platform="android-arm64-v8a"))))
    assert "system     Android 13, API 33, Linux 5.10.149-android12-9, aarch64" in text
    assert "CPU        4 × Cortex-A510, 300 to 1785 MHz, now 1171 MHz, governor walt (CPU 0, 1, 2, 3)" in text
    assert "dot products (asimddp)" in text
    assert "memory     7.2 GiB, 3.0 GiB available" in text
    assert "thermal    hottest: cpu-0-0 41.3 °C, gpuss-0 38.2 °C; 2 zones read, 2 not readable" in text
    assert "GPU        Adreno730v2 (from /sys/class/kgsl/kgsl-3d0/gpu_model)" in text
    assert "OpenCL     libOpenCL.so (/lib/x86_64-linux-gnu/libOpenCL.so)" in text
    assert "gpu NVIDIA H200, driver 580.159.04, 132 compute units" in text
    assert "libnvidia-opencl.so.1: unusable: it lacks" in text
    assert "not there: /usr/lib/libOpenCL.so" in text
    assert "unknown  " not in text


def test_the_page_of_a_device_that_says_little() -> None:
    text = page(ask(FakeDevice("", ro_product_model="Thing"), None))
    assert "device     S: Thing" in text
    assert text.count("unknown    ") == len(ask(FakeDevice(""), None).missing) >= 6


def test_the_page_says_why_a_device_is_not_taken(bundle: TargetBundle) -> None:
    document = json.loads(RECORDED)
    document["candidates"][0]["platforms"][0]["devices"][0]["version"] = "OpenCL 1.1 old"
    text = page(ask(FakeDevice(ADRENO, json.dumps(document)), bundle))
    assert "TVM's runtime finds no device in it" in text
    assert "NVIDIA H200: it has OpenCL 1.1 old, and TVM takes OpenCL 1.2 and later" in text
