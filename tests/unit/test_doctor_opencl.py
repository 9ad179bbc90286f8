"""Verdicts of the doctor on a device's OpenCL, by reports of adt_probe (recorded on a server's GPU,
changed)."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from adt.checkup import device
from adt.checkup.check import Check, Status
from adt.device import place
from adt.device.deploy.store import Deployment
from adt.device.device import Device
from adt.device.opencl import OpenclReport
from adt.device.survey import DeviceFacts
from adt.errors import MismatchError
from adt.verbs import tune_places
from support.standins.opencl_report import NVIDIA, with_device

PHONE = DeviceFacts({"ro.product.cpu.abi": "arm64-v8a"}, "aarch64", 4096)
BOARD = DeviceFacts({}, "aarch64", 4096)
VIRTUAL = DeviceFacts({"ro.adt.platform": "linux-aarch64"}, "aarch64", 4096)
LISTED = "/vendor/lib64/libOpenCL.so /vendor/lib64/libOpenCL.so"
TAKEN, ABSENT, UNUSABLE = NVIDIA.candidates


def checks(
    report: OpenclReport | None, facts: DeviceFacts = PHONE, listed: str = LISTED, reason: str = ""
) -> list[Check]:
    return list(device.check_opencl("S", facts, listed, "libOpenCL.so\n", report, reason))


def test_a_library_that_works_is_told_with_what_it_offers() -> None:
    works, other, apps = checks(NVIDIA)
    assert (works.status, works.name, works.origin) == (Status.OK, "S: OpenCL", "adt_probe on the device")
    assert works.found == (
        "libOpenCL.so: NVIDIA CUDA, gpu NVIDIA H200, driver 580.159.04, images up to 32768 × 32768, fp16 no"
    )
    assert other.name == "S: OpenCL library" and "libnvidia-opencl.so.1 unusable: it lacks" in other.found
    assert apps.found == "apps may open libOpenCL.so"  # what is absent is not told
    assert "no images" in checks(with_device(images=False))[0].found


def test_a_library_that_loads_but_has_no_device_for_tvm() -> None:
    old = checks(with_device(version="OpenCL 1.1 x"))[0]
    assert old.status is Status.WARNING
    assert "takes libOpenCL.so and finds no device: NVIDIA H200: it has OpenCL 1.1 x" in old.found
    assert "--target cpu" in old.remedy
    assert "no GPU and no CPU" in checks(with_device(kind="custom"))[0].found
    crashed = replace(TAKEN, outcome="crashed", said="Aborted (signal 6) while loading it", platforms=())
    broken = replace(NVIDIA, candidates=(crashed, ABSENT))
    assert "finds no device: Aborted (signal 6)" in checks(broken)[0].found


def test_a_library_that_works_but_is_not_opened_by_tvm() -> None:
    path = "/odm/lib64/libOpenCL.so"
    elsewhere = replace(TAKEN, library=path, tvm=False)
    report = OpenclReport((ABSENT, elsewhere), None)
    phone, board = checks(report)[0], checks(report, BOARD)[0]
    assert phone.status is Status.WARNING and f"{path} would answer" in phone.found
    assert "--target cpu" in phone.remedy
    assert board.remedy.endswith(f"ln -s {path} /usr/local/lib/libOpenCL.so")


def test_libraries_of_which_none_opens() -> None:
    refused = replace(UNUSABLE, outcome="not-loaded", said="is not accessible for the namespace")
    none, check, _ = checks(OpenclReport((refused, ABSENT), None))
    assert none.status is Status.WARNING and "opens none of the libraries that are there" in none.found
    assert "not accessible for the namespace" in check.found


@pytest.mark.parametrize(
    ("facts", "remedy"), [(VIRTUAL, "adt emulator start cl --opencl"), (BOARD, "adt probe --serial S")]
)
def test_what_computes_on_opencl_is_refused_where_there_is_none(
    facts: DeviceFacts, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refuse to tune by what a probe says, and explain a run by the runner's exit code."""
    probed = SimpleNamespace(opencl=OpenclReport((ABSENT,), None))
    ended = SimpleNamespace(exit_code=place.NO_DEVICE, out="", err="rtvm: error: Cannot open libOpenCL!")
    phone = Device("S")
    vars(phone).update(facts=facts, script=lambda *_, **__: ended)
    monkeypatch.setattr("adt.verbs.device.probe_device", lambda _: probed)
    monkeypatch.setattr(tune_places.selection, "select", lambda _: phone)
    monkeypatch.setattr(place, "workspace", lambda *_, **__: nullcontext("run"))
    target: Any = SimpleNamespace(device="opencl", cpu_features=())
    deployment = Deployment("S", "m", "0", "/data")
    for work in (
        lambda: tune_places._check_devices(("S",), facts.platforms[0], target),
        lambda: place.DevicePlace(phone, deployment).run(place.RtvmOptions(device="opencl")),
    ):
        with pytest.raises(MismatchError, match="S has no OpenCL that TVM") as caught:
            work()
        assert remedy in caught.value.remedy and "--target cpu" in caught.value.remedy
    probed.opencl = None  # nothing can ask it
    tune_places._check_devices(("S",), facts.platforms[0], target)


def test_nothing_there() -> None:
    report = OpenclReport((ABSENT,), None)
    (phone,) = checks(report, listed="")
    assert phone.status is Status.WARNING and phone.origin == "adt_probe on the device"
    (virtual,) = checks(report, VIRTUAL, "")
    assert virtual.status is Status.OK
    assert checks(None, listed="")[0].origin == "files on the device"


def test_libraries_that_were_not_tried_are_listed_by_name() -> None:
    listed = checks(None, reason="no bundle was built here")[0]
    assert listed.status is Status.OK and listed.origin == "files on the device"
    assert listed.found == "/vendor/lib64/libOpenCL.so; loading was not tried: no bundle was built here"


def test_a_library_with_another_name_counts_when_it_answers() -> None:
    assert checks(NVIDIA, listed="")[0].status is Status.OK
