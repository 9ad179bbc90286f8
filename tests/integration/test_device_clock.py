"""A device whose clock jumps back and forth by years: what adt does there is right all the same."""

import time
from pathlib import Path

import numpy as np
import pytest

import adt as api
from adt.device.deploy.payload import user_directory
from adt.device.deploy.store import DeployReport
from adt.device.deploy.workspace import AWAKE, awake, clean, workspace
from adt.device.device import Device
from adt.device.place import DevicePlace, RtvmOptions
from support.devices import clock
from support.devices.fixtures import Rack, entries
from support.devices.ports import free_span
from support.devices.programs import invoke, invoke_json
from support.devices.remains import soon_nothing, wrong_files
from support.models.small import small_model

LATER, EARLIER = 12, -50
"""Years; the first is after 2038's January, as 32 bits of seconds end."""


@pytest.fixture(scope="module")
def phone(native_rack: Rack, tmp_path_factory: pytest.TempPathFactory) -> Device:
    clock.start("clock", tmp_path_factory.mktemp("clock"))
    return native_rack.start("clock")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    api.build_target(platform="host")
    top = tmp_path_factory.mktemp("packages")
    paths = []
    for op in ("Relu", "Abs"):
        (top / op).mkdir()
        model = small_model(top / op / "small.onnx", op=op)
        paths.append(api.compile(model, out=top / op / "package", platform="host").path)
    return paths[0], paths[1]


def jump(device: Device, years: int) -> None:
    """Let the device's clock be off by *years*."""
    device.script(f'echo "$1" >{clock.YEARS}', str(years))


def put(device: Device, package: Path) -> DeployReport:
    return api.deploy(package, serial=device.serial).results[-1].report


def year(device: Device) -> int:
    return int(device.shell(["date", "+%Y"]).out)


def test_what_was_used_last_stays_whatever_the_clock_says(phone: Device, packages: tuple[Path, Path]) -> None:
    jump(phone, 0)
    now = year(phone)
    jump(phone, LATER)
    assert year(phone) >= now + LATER - 1, "the clock does jump"
    first = put(phone, packages[0]).deployment
    jump(phone, EARLIER)
    second = put(phone, packages[1]).deployment
    assert clean(phone, keep=1, dry_run=True).removed == (f"small.{first.digest}",)
    jump(phone, 2 * EARLIER)
    assert invoke("run", packages[0], "--serial", phone.serial).returncode == 0, "a use"
    with workspace(phone, f"{user_directory()}/runs", uses=first.digest):
        jump(phone, LATER)
        report = clean(phone, keep=0)
        assert report.in_use == (f"small.{first.digest}",) and report.leftovers == 0
    assert report.removed == (f"small.{second.digest}",)
    assert wrong_files(phone, first.directory, first.manifest) == []
    assert put(phone, packages[0]).sent_bytes == 0
    soon_nothing(phone)


@pytest.mark.parametrize("years", [LATER, EARLIER])
def test_results_and_times_are_right(phone: Device, packages: tuple[Path, Path], years: int) -> None:
    jump(phone, years)
    assert invoke("verify", packages[0], "--serial", phone.serial).returncode == 0
    words = ("--serial", phone.serial, "--protocol", "quick", "--no-record")
    assert invoke_json("bench", packages[0], *words)["correct"] is True
    began = time.monotonic()
    place = DevicePlace(phone, put(phone, packages[0]).deployment)
    times = place.run(RtvmOptions(run_count=20, keep_times=True)).times
    assert (
        len(times["run_ms"]) == 20 and (times["run_ms"] > 0).all() and (np.diff(times["start_ms"]) > 0).all()
    )
    assert times["run_ms"].sum() < 1000 * (time.monotonic() - began)
    soon_nothing(phone)


@pytest.mark.parametrize("years", [LATER, EARLIER])
def test_what_holds_the_device_lets_it_go(phone: Device, years: int) -> None:
    setting = ["settings", "get", "global", "stay_on_while_plugged_in"]
    jump(phone, 0)
    before = phone.shell(setting).out
    with awake(phone):
        assert phone.shell(setting).out == "7\n"
        jump(phone, years)
        with awake(phone):
            pass
        assert phone.shell(setting).out == "7\n", "the other one still holds it"
    assert phone.shell(setting).out == before and entries(phone, AWAKE) == []
    span = free_span(20)
    server = api.rpc_start(serial=phone.serial, use_tracker=False, port=span, port_end=span + 19)
    jump(phone, -years)
    assert [known.state for known in api.rpc_status().servers if known.serial == phone.serial] == ["ready"]
    assert server.pid
    api.rpc_stop(serial=phone.serial)
    soon_nothing(phone)
    assert phone.shell(setting).out == before
