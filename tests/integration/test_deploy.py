"""Deploying and running on a real virtual device through the real adb, with stand-in payloads.

The payloads are small files with valid manifests and a script in place of rtvm;
a real model's way is tested with the whole chain.
"""

import signal
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adt.bundle.bundle import TargetBundle
from adt.device import selection
from adt.device.app import copy_into_app
from adt.device.deploy import store
from adt.device.deploy.store import DeployReport, deploy, payload_of
from adt.device.deploy.workspace import Agent
from adt.device.device import Device
from adt.device.place import DevicePlace, RtvmOptions
from adt.device.transport import adb
from adt.errors import (
    ConfigError,
    DeviceError,
    DeviceFull,
    DeviceNotReady,
    InputError,
    MismatchError,
    NoDevice,
    PackageError,
    RunError,
)
from adt.package.package import ModelPackage
from support.devices import faulty
from support.devices.fixtures import Rack, child, entries, processes
from support.devices.remains import soon_nothing, wrong_files
from support.standins.artefacts import native_bundle as make_bundle
from support.standins.artefacts import native_package as make_package
from support.waiting import wait_for

BASE = "/data/local/tmp/adt/tester"
X = {"x": np.arange(4, dtype=np.float32).reshape(1, 4)}


@pytest.fixture
def phone(native_rack: Rack) -> Device:
    """Return a virtual device with nothing of ours on it; it runs until a test stops all there are."""
    device = native_rack.start("phone", faults=[])
    device.shell(["rm", "-rf", "/data/local/tmp/adt"])
    return device


@pytest.fixture
def bundle(tmp_path: Path) -> TargetBundle:
    return make_bundle(tmp_path / "bundle", {"lib/large one.so": b"large" * 100_000})


@pytest.fixture
def package(tmp_path: Path) -> ModelPackage:
    return make_package(tmp_path / "package")


def put(device: Device, bundle: TargetBundle, package: ModelPackage | None) -> DeployReport:
    return deploy(device, bundle, package, user="tester")


def runs(device: Device, report: DeployReport) -> bool:
    """Return True if the deployment still answers with the inputs it is given."""
    result = DevicePlace(device, report.deployment).run(RtvmOptions(), X, timeout=60)
    return bool(np.array_equal(result.outputs["x"], X["x"]))


def test_a_deployment_runs_and_the_second_one_sends_nothing(
    phone: Device, bundle: TargetBundle, package: ModelPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, int, int]] = []
    first = deploy(phone, bundle, package, user="tester", progress=lambda *step: steps.append(step))
    assert len(first.sent_files) == 6
    total = sum(
        path.stat().st_size for path in (*bundle.path.rglob("*"), *package.path.rglob("*")) if path.is_file()
    )
    assert first.sent_bytes == total - (bundle.path / "bundle.json").stat().st_size
    assert steps[-1][1:] == (first.sent_bytes, first.sent_bytes)
    assert runs(phone, first)

    def no_sync(*_: object, **__: object) -> None:
        raise AssertionError("a second deploy opened a connection for files")

    monkeypatch.setattr(Device, "sync", no_sync)
    second = put(phone, bundle, package)
    assert (second.sent_bytes, second.sent_files, len(second.reused_files)) == (0, (), 6)
    assert second.deployment == first.deployment


def test_only_the_changed_file_is_sent(phone: Device, bundle: TargetBundle, package: ModelPackage) -> None:
    old = put(phone, bundle, package)
    changed = make_package(package.path, params=b"other params of another length")
    new = put(phone, bundle, changed)
    assert set(new.sent_files) == {"model/mod.params", "model/mod.json"}  # mod.json names the other's sha256
    assert runs(phone, new)
    assert runs(phone, old), "the older deployment is still whole"

    only_library = make_bundle(bundle.path, {"lib/large one.so": b"small"})
    report = put(phone, only_library, changed)
    assert report.sent_files == ("lib/large one.so",)
    assert report.sent_bytes == 5


@pytest.mark.parametrize("damage", ["echo bad >", "rm -f", ": >"])
def test_a_damaged_store_entry_is_sent_again(
    phone: Device, bundle: TargetBundle, package: ModelPackage, damage: str
) -> None:
    first = put(phone, bundle, package)
    entry = f"{BASE}/store/{bundle.manifest.files['lib/libone.so'].sha256}"
    phone.script(f'chmod 755 "$1"; {damage} "$1"', entry)
    again = put(phone, bundle, package)
    assert again.sent_files == ("lib/libone.so",)
    assert again.mended_files == (() if damage.startswith("rm") else ("lib/libone.so",))
    assert again.deployment == first.deployment
    assert put(phone, bundle, package).sent_bytes == 0


def test_a_lost_link_is_made_again_without_sending(
    phone: Device, bundle: TargetBundle, package: ModelPackage
) -> None:
    report = put(phone, bundle, package)
    phone.shell(["rm", f"{report.deployment.directory}/bin/rtvm"])
    assert put(phone, bundle, package).sent_bytes == 0
    assert runs(phone, report)


def test_two_users_do_not_share(phone: Device, bundle: TargetBundle, package: ModelPackage) -> None:
    put(phone, bundle, package)
    other = deploy(phone, bundle, package, user="other/../one")
    assert other.sent_bytes > 0
    assert other.deployment.base == "/data/local/tmp/adt/other____one"


def test_what_does_not_fit_is_not_sent(phone: Device, bundle: TargetBundle, package: ModelPackage) -> None:
    wrong = replace(package, manifest=replace(package.manifest, alignment=64))
    with pytest.raises(MismatchError):
        put(phone, bundle, wrong)
    assert entries(phone, BASE) == []


def test_a_file_that_changed_since_its_manifest_does_not_count(
    phone: Device, bundle: TargetBundle, package: ModelPackage
) -> None:
    old = put(phone, bundle, package)
    fresh = make_package(package.path, library=b"new library")
    fresh.files[0].write_bytes(b"tampered with")
    with pytest.raises(PackageError, match=r"mod\.so is not the file"):
        put(phone, bundle, fresh)
    assert runs(phone, old)
    assert entries(phone, f"{BASE}/tmp") == []


@pytest.mark.parametrize("known_before", [True, False], ids=["seen before", "seen while sending"])
def test_a_full_device_loses_nothing(
    native_rack: Rack, tmp_path: Path, known_before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = native_rack.start("small", data_size="4m")
    try:
        bundle, package = make_bundle(tmp_path / "b"), make_package(tmp_path / "p")
        old = put(device, bundle, package)
        large = make_bundle(tmp_path / "b", {"lib/huge.so": bytes(8 << 20)})
        with pytest.raises(DeviceFull) as caught:
            if known_before:
                put(device, large, package)
            else:
                monkeypatch.setattr(store, "parse_free", lambda _text: None)
                put(device, large, package)
        assert "free" in caught.value.what
        assert "adt clean --serial" in caught.value.remedy
        assert runs(device, old)
        assert entries(device, f"{BASE}/tmp") == []
        assert put(device, bundle, package).sent_bytes == 0
    finally:
        native_rack.stop_all()


def test_a_run_brings_outputs_back_and_leaves_no_directory(
    phone: Device, bundle: TargetBundle, package: ModelPackage
) -> None:
    deployment = put(phone, bundle, package).deployment
    arrays = {"x": X["x"], "file": np.array(3, np.int64), "a:b": np.zeros((0, 2), np.float16)}
    result = DevicePlace(phone, deployment).run(RtvmOptions(), arrays, timeout=60)
    assert result.outputs.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(result.outputs[name], array)
        assert result.outputs[name].dtype == array.dtype
    assert result.report["standin"] is True
    assert result.report["cwd"].startswith(f"{BASE}/runs/")
    assert result.report["libraries"] == f"{deployment.directory}/lib"
    assert entries(phone, f"{BASE}/runs") == []


@pytest.mark.parametrize(
    ("entry", "kind", "message", "remedy"),
    [
        ("fit", MismatchError, "another module ABI", "compile it again"),
        ("input", InputError, "wrong shape", "give 1x4"),
        ("fail", RunError, "out of luck", ""),
        ("segv", RunError, "SIGSEGV", "logcat"),
        ("mute", RunError, "report", ""),
        ("silent", RunError, "report", ""),
    ],
)
def test_a_failed_run_says_what_rtvm_said_and_leaves_nothing(
    phone: Device,
    bundle: TargetBundle,
    package: ModelPackage,
    entry: str,
    kind: type[Exception],
    message: str,
    remedy: str,
) -> None:
    deployment = put(phone, bundle, package).deployment
    with pytest.raises(kind, match=message) as caught:
        DevicePlace(phone, deployment).run(RtvmOptions(entry=entry), X, timeout=60)
    assert remedy in caught.value.remedy  # type: ignore[attr-defined]
    assert entries(phone, f"{BASE}/runs") == []


def test_a_run_that_takes_too_long_is_ended(
    phone: Device, bundle: TargetBundle, package: ModelPackage
) -> None:
    deployment = put(phone, bundle, package).deployment
    with pytest.raises(DeviceError, match="longer than 2 s"):
        DevicePlace(phone, deployment).run(RtvmOptions(entry="hang"), X, timeout=2)
    wait_for(lambda: not [line for line in processes(phone) if "sleep 4321" in line], "it is ended")
    wait_for(lambda: entries(phone, f"{BASE}/runs") == [], "the run's directory is removed")


RUN = """
import sys
from adt.device import selection
from adt.device.deploy.store import Deployment
from adt.device.place import DevicePlace
from adt.device.place import RtvmOptions
import numpy as np
place = DevicePlace(selection.select(sys.argv[1]), Deployment(*sys.argv[1:5]))
place.run(RtvmOptions(entry="hang"), {"x": np.zeros(1)})
"""


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_run_leaves_neither_process_nor_directory(
    phone: Device, bundle: TargetBundle, package: ModelPackage, sig: signal.Signals
) -> None:
    d = put(phone, bundle, package).deployment
    with child(RUN, d.serial, d.name, d.digest, d.base) as running:
        wait_for(lambda: any("sleep 4321" in line for line in processes(phone)), "the run has started")
        running.send_signal(sig)
        assert running.wait(120) != 0
    wait_for(lambda: not any("sleep 4321" in line for line in processes(phone)), "the program is ended")
    wait_for(lambda: entries(phone, f"{BASE}/runs") == [], "the run's directory is removed")


def test_a_stopped_device_makes_a_run_fail(
    native_rack: Rack, bundle: TargetBundle, package: ModelPackage
) -> None:
    device = native_rack.start("brief")
    deployment = put(device, bundle, package).deployment
    native_rack.stop("brief")
    with pytest.raises((NoDevice, DeviceNotReady, DeviceError)):
        DevicePlace(device, deployment).run(RtvmOptions(), X, timeout=60)


def test_a_deploy_that_finds_all_there_takes_three_services_of_the_device(
    phone: Device, bundle: TargetBundle, package: ModelPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(phone, bundle, package)
    opened: list[str] = []
    open_device = adb.open_device

    def counting(serial: str, service: str, **options: Any) -> adb.Wire:
        opened.append(serial)
        return open_device(serial, service, **options)

    monkeypatch.setattr(adb, "open_device", counting)
    fresh = selection.select(phone.serial)
    assert put(fresh, bundle, package).sent_bytes == 0
    assert len(opened) <= 3, "one for the device's facts, one for the look"
    opened.clear()
    changed = make_package(package.path, params=b"other params")
    many = {f"lib/small{n}.so": b"%d" % n * 100 for n in range(200)}
    assert len(put(selection.select(phone.serial), make_bundle(bundle.path, many), changed).sent_files) == 202
    assert len(opened) <= 4, "one more for all the files"


def test_nothing_is_hashed_again_that_was_not_touched(
    phone: Device, bundle: TargetBundle, package: ModelPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(phone, bundle, package)
    asked: list[str] = []
    ask = Agent.ask

    def noting(self: Agent, *words: str, **options: Any) -> Any:
        asked.append(words[0])
        return ask(self, *words, **options)

    monkeypatch.setattr(Agent, "ask", noting)
    put(phone, bundle, package)
    assert asked == ["look", "used"]
    asked.clear()
    phone.script('chmod 555 "$1"/store/*', BASE)  # the bytes are the same, but that must be looked at
    assert put(phone, bundle, package).sent_bytes == 0
    assert asked == ["look", "hash", "seal", "used"]
    asked.clear()
    deploy(phone, bundle, package, user="tester", full_hash=True)
    assert "hash" in asked
    phone.script('mv "$1"/sealed-* "$1"/sealed-of-the-last-boot', BASE)
    asked.clear()
    put(phone, bundle, package)
    assert "hash" in asked
    assert len([name for name in entries(phone, BASE) if name.startswith("sealed-")]) == 1


def test_damage_that_keeps_size_and_modification_time_is_seen(
    phone: Device, bundle: TargetBundle, package: ModelPackage
) -> None:
    put(phone, bundle, package)
    entry = f"{BASE}/store/{bundle.manifest.files['lib/libone.so'].sha256}"
    phone.script(
        'cd "${1%/*}" && touch -r "$1" stamp && chmod 755 "$1" && '
        'printf X | dd of="$1" conv=notrunc bs=1 2>/dev/null && touch -r stamp "$1" && chmod 555 "$1" && rm stamp',
        entry,
    )
    assert put(phone, bundle, package).mended_files == ("lib/libone.so",)


def test_a_dry_run_says_what_would_be_sent_and_sends_nothing(
    phone: Device, bundle: TargetBundle, package: ModelPackage
) -> None:
    report = deploy(phone, bundle, package, user="tester", dry_run=True)
    assert len(report.sent_files) == 6 and not report.applied and report.free
    assert entries(phone, f"{BASE}/store") == entries(phone, f"{BASE}/deployments") == []
    assert put(phone, bundle, package).sent_files == report.sent_files


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "adt.deployment"}'])
def test_a_stale_manifest_is_written_again(
    phone: Device, bundle: TargetBundle, package: ModelPackage, text: str
) -> None:
    report = put(phone, bundle, package)
    phone.push(text.encode(), report.deployment.manifest)
    assert put(phone, bundle, package).sent_bytes == 0
    assert wrong_files(phone, report.deployment.directory, report.deployment.manifest) == []


def test_a_run_of_what_was_removed_says_so(
    phone: Device, bundle: TargetBundle, package: ModelPackage
) -> None:
    report = put(phone, bundle, package)
    phone.shell(["rm", report.deployment.manifest])
    with pytest.raises(RunError, match="not on the device any more"):
        runs(phone, report)


FAULTS = {
    "dropped while it looks": "drop-after=2k@once",
    "dropped while it sends": "drop-after=300k@once",
    "restarted while it sends": "reboot-after=300k@once",
    "silent while it sends": "stall-after=300k@once",
    "full while it sends": "enospc=200k",
    "full at once": "enospc",
    "not what was sent": "wrong-hash@once",
    "cut-off answers": "truncate",
    "read-only": "readonly=/data/local/tmp/adt",
}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            fault, id=name, marks=[pytest.mark.nightly] * ("stall" in fault)
        )  # waits for time limits
        for name, fault in FAULTS.items()
    ],
)
def test_whatever_ends_a_deploy_early_harms_nothing(phone: Device, tmp_path: Path, fault: str) -> None:
    bundle, package = make_bundle(tmp_path / "b"), make_package(tmp_path / "p")
    old = put(phone, bundle, package)
    larger = make_bundle(tmp_path / "b", {f"lib/part{n}.so": bytes([n]) * 200_000 for n in range(5)})
    faulty.set_faults("phone", [fault])
    try:
        with pytest.raises((DeviceError, DeviceNotReady, NoDevice, DeviceFull)) as caught:
            patience = 4 if "stall" in fault else 300
            deploy(Device(phone.serial, timeout=patience), larger, package, user="tester")
        assert isinstance(caught.value, DeviceFull) == ("enospc" in fault)
        assert caught.value.remedy
    finally:
        faulty.set_faults("phone", [])
    wait_for(lambda: _usable(phone.serial), "the device is back")
    back = selection.select(phone.serial)
    assert wrong_files(back, old.deployment.directory, old.deployment.manifest) == []
    new = put(back, larger, package)
    assert wrong_files(back, new.deployment.directory, new.deployment.manifest) == []
    soon_nothing(back)


def _usable(serial: str) -> bool:
    try:
        selection.select(serial).shell(["true"], timeout=30)
    except (DeviceError, DeviceNotReady, NoDevice):
        return False
    return True


PIECES = st.sampled_from(
    ["a", "b c", " lead", "trail ", "'", '"', "$(touch pwned)", "`x`", "*", "?", "[a]", "-rf", "~", "#", ";", "ü", "…", "&", "|"]
)  # fmt: skip
NAMES = st.lists(st.lists(PIECES, min_size=1, max_size=3).map("".join), min_size=1, max_size=3).map("/".join)


@given(st.lists(NAMES, min_size=12, max_size=12, unique=True))
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_name_that_a_file_can_have_arrives_as_it_is(
    phone: Device, tmp_path: Path, names: list[str]
) -> None:
    with tempfile.TemporaryDirectory(dir=tmp_path) as directory:
        odd = {f"odd/{number}/{name}": name.encode() for number, name in enumerate(names)}
        bundle = make_bundle(Path(directory), odd)
        report = put(phone, bundle, None)
        assert odd.keys() <= {*report.sent_files, *report.reused_files}
        assert wrong_files(phone, report.deployment.directory, report.deployment.manifest) == []
        assert put(phone, bundle, None).sent_bytes == 0
        assert not [entry for entry in entries(phone, report.deployment.directory) if entry == "pwned"]


# A stand-in for Android's run-as: one app is there and debuggable, and its directory is a plain one.
RUN_AS = """#!/system/bin/sh
case $1 in
  com.example.good) shift; mkdir -p /data/standin/app; cd /data/standin/app && exec "$@";;
  com.example.release) echo "run-as: package not debuggable: $1" >&2; exit 1;;
  *) echo "run-as: unknown package: $1" >&2; exit 1;;
esac
"""


def test_a_copy_in_an_apps_own_directory(
    phone: Device, bundle: TargetBundle, package: ModelPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone.push(RUN_AS.encode(), "/data/local/tmp/standin/run-as", mode=0o755)
    shell = Device.shell

    def with_standin(self: Device, argv: Any, **options: Any) -> Any:
        return shell(
            self, ["/data/local/tmp/standin/run-as", *argv[1:]] if argv[0] == "run-as" else argv, **options
        )

    with pytest.raises(DeviceError, match="no run-as"):
        copy_into_app(
            phone, put(phone, bundle, package).deployment, payload_of(bundle, package), "com.example.good"
        )
    monkeypatch.setattr(Device, "shell", with_standin)
    report = put(phone, bundle, package)
    payload = payload_of(bundle, package)
    copy = copy_into_app(phone, report.deployment, payload, "com.example.good")
    assert copy.copied and copy.directory == f"/data/standin/app/files/adt/{report.deployment.digest}"
    assert wrong_files(phone, copy.directory, report.deployment.manifest) == []
    assert not copy_into_app(phone, report.deployment, payload, "com.example.good").copied
    phone.script(
        'chmod 700 "$1"/lib/*; echo damage >"$1/lib/libone.so"; mkdir "$1/../.x.999999"', copy.directory
    )
    assert copy_into_app(phone, report.deployment, payload, "com.example.good").copied
    assert wrong_files(phone, copy.directory, report.deployment.manifest) == []
    assert phone.script('ls -A "$1/.."', copy.directory).out.split() == [report.deployment.digest]
    for app, message in (("com.example.release", "not debuggable"), ("com.example.none", "no app")):
        with pytest.raises(ConfigError, match=message):
            copy_into_app(phone, report.deployment, payload, app)
    soon_nothing(phone)
