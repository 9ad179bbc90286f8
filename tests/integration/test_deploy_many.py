"""Deploying to several virtual devices at once, with one that fails."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import adt as api
from adt.device.deploy.payload import user_directory
from adt.device.device import Device
from adt.device.selection import Event
from adt.errors import ConfigError
from adt.virtual import state
from support.devices import faulty
from support.devices.fixtures import Rack, entries
from support.devices.programs import ADT, invoke
from support.devices.remains import soon_nothing, wrong_files
from support.standins.artefacts import native_bundle as make_bundle
from support.standins.artefacts import native_package as make_package
from support.waiting import wait_for

NAMES = ("one", "two", "three")


@pytest.fixture
def phones(native_rack: Rack) -> Iterator[dict[str, Device]]:
    """Yield three virtual devices, the same for all tests, with nothing of ours on them."""
    devices = {name: native_rack.start(name, faults=[]) for name in NAMES}
    for device in devices.values():
        device.shell(["rm", "-rf", "/data/local/tmp/adt"])
    yield devices
    for name in NAMES:
        faulty.set_faults(name, [])


@pytest.fixture
def parts(tmp_path: Path) -> tuple[Path, Path]:
    bundle = make_bundle(tmp_path / "bundle", {"lib/large.so": b"large" * 1_000_000})
    return bundle.path, make_package(tmp_path / "package").path


def test_all_of_them_get_everything(phones: dict[str, Device], parts: tuple[Path, Path]) -> None:
    bundle, package = parts
    serials = [device.serial for device in phones.values()]
    events: list[Event] = []
    outcomes = api.deploy_many(package, serials=serials, bundle=bundle, on_event=events.append)
    assert outcomes.exit_code == 0 and [outcome.serial for outcome in outcomes.all] == serials
    for device, outcome in zip(phones.values(), outcomes.all, strict=True):
        assert outcome.value is not None
        deployment = outcome.value.results[-1].report.deployment
        assert wrong_files(device, deployment.directory, deployment.manifest) == []
    assert {event.serial for event in events if event.done} == set(serials)
    assert any("%" in event.text and "lib/large.so" in event.text for event in events)


def test_one_that_fails_stops_no_other(phones: dict[str, Device], parts: tuple[Path, Path]) -> None:
    bundle, package = parts
    faulty.set_faults("two", ["enospc=100k"])
    done = invoke("deploy", package, "--bundle", bundle, "--all", "--json")
    assert done.returncode == 17, done.stderr
    rows = {row["serial"]: row for row in json.loads(done.stdout)["devices"]}
    assert len(rows) == 3
    failed = rows[phones["two"].serial]
    assert (failed["error"], failed["exit_code"]) == ("DeviceFull", 17)
    assert "adt clean" in failed["remedy"]
    assert {rows[phones[name].serial]["error"] for name in ("one", "three")} == {None}
    assert entries(phones["two"], f"{user_directory()}/deployments") == []

    faulty.set_faults("two", [])
    again = invoke("deploy", package, "--bundle", bundle, "--all")
    assert again.returncode == 0, again.stderr
    lines = {line.split()[0]: line for line in again.stdout.splitlines()}
    assert "sent 0 files" in lines[phones["one"].serial]
    assert "sent 6 files" in lines[phones["two"].serial]


def test_the_summary_names_who_failed(phones: dict[str, Device], parts: tuple[Path, Path]) -> None:
    bundle, package = parts
    named = f"{phones['one'].serial},127.0.0.1:1"
    done = invoke("deploy", package, "--bundle", bundle, "--serial", named)
    assert done.returncode == 13
    assert f"{phones['one'].serial}  sent 6 files" in done.stdout
    assert "127.0.0.1:1" in done.stdout and "1 of 2 devices failed" in done.stderr
    assert "remedy" in done.stderr


def test_nothing_is_done_for_what_is_no_package(phones: dict[str, Device], tmp_path: Path) -> None:
    done = invoke("deploy", tmp_path, "--all")
    assert done.returncode == 11
    with pytest.raises(ConfigError):
        api.deploy_many(serials=["a"], run_as="no app")


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_it_leaves_nothing_anywhere(
    phones: dict[str, Device], parts: tuple[Path, Path], sig: signal.Signals
) -> None:
    bundle, package = parts
    for name in NAMES:
        faulty.set_faults(name, ["bandwidth=400k"])
    running = subprocess.Popen(
        [ADT, "deploy", package, "--bundle", bundle, "--all"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        # Looked at from this side: our own questions would share the slow link.
        inside = f"{user_directory()}/tmp".removeprefix("/data/")
        begun = {name: state.home(name).data / inside for name in NAMES}
        wait_for(
            lambda: all(path.is_dir() and any(path.iterdir()) for path in begun.values()), "all have begun"
        )
        running.send_signal(sig)
        stderr = running.communicate(timeout=300)[1]
    finally:
        running.kill()
        running.wait()
    if sig != signal.SIGKILL:
        assert running.returncode == 128 + sig and "interrupted" in stderr and "Traceback" not in stderr, (
            stderr
        )
    for name, device in phones.items():
        faulty.set_faults(name, [])
        soon_nothing(device)
