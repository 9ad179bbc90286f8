"""`adt doctor` as a program: this machine, real adb, virtual devices, and broken surroundings."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from adt.device import selection
from adt.device.deploy import store
from adt.device.transport import adb
from adt.errors import DeviceError, NoDevice
from adt.host import process
from adt.virtual import state
from support.devices.fixtures import NATIVE, Rack
from support.devices.programs import ADT, adt, command_lines, invoke, real_program, try_program
from support.standins.artefacts import native_bundle as make_bundle
from support.standins.artefacts import native_package as make_package
from support.standins.ndk import make_standin_ndk
from support.waiting import wait_for

FAILED = 26


def doctor(*arguments: object, code: int = 0) -> dict[str, Any]:
    """Run `adt doctor … --json`; the document, with its checks by name."""
    done = invoke("doctor", *arguments, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    document: dict[str, Any] = json.loads(done.stdout)  # one document, also when a check failed
    assert (document["schema"], document["schema_version"]) == ("adt.doctor", 1)
    assert document["passed"] == (code == 0)
    assert sum(document["counts"].values()) == len(document["checks"])
    document["by_name"] = {check["name"]: check for check in document["checks"]}
    return document


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Use an empty cache: the doctor counts files, of which this machine's may have tens of thousands."""
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.usefixtures("own_cache")
def test_this_machine_passes_and_each_check_has_all_its_fields_and_its_area() -> None:
    document = doctor()
    checks = document["by_name"]
    assert checks["TVM"]["status"] == checks["import tvm"]["status"] == "ok"
    for tool in ("cmake", "ninja"):
        assert Path(checks[tool]["origin"].partition(",")[0]).is_file()
    assert checks["compiler for linux-aarch64"]["status"] == "ok"
    assert checks["virtual device: arm64 programs"]["status"] == "ok"
    assert os.environ["ADT_CACHE_DIR"] in checks["cache directory"]["found"]
    assert {check["area"] for check in document["checks"]} == {"host", "ndk", "device", "rpc"}
    for check in document["checks"]:
        assert set(check) == {"area", "name", "status", "found", "origin", "remedy", "fix"}
        assert check["found"] and check["status"] in ("ok", "warning", "failed")
        assert check["remedy"] or check["status"] == "ok", check
    assert len(checks) == len(document["checks"])


@pytest.mark.usefixtures("own_cache")
def test_lines_for_people_where_path_has_no_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    done = invoke("doctor")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "host" and "ndk" in lines
    assert any(line.startswith("  ✓ cmake: ") for line in lines), "adt's own"
    missing = next(row for row, line in enumerate(lines) if line.startswith("  ! NDK: "))
    assert lines[missing + 1].startswith("      → Install one")
    assert any(line.startswith("  ! git: not on PATH") for line in lines)
    compiler = next(row for row, line in enumerate(lines) if "! compiler for linux-aarch64: " in line)
    assert lines[compiler + 1] == "      → apt-get install g++-aarch64-linux-gnu"
    assert lines[-1].endswith("0 ✗") and " checks: " in lines[-1]


def test_output_that_cannot_show_the_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    done = adt("doctor", "rpc", program=ADT)
    assert done.returncode == 0, done.stderr
    assert "  ? ports: " in done.stdout


@pytest.mark.usefixtures("own_cache")
def test_old_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Count an old cmake where adt has none of its own, and name the program."""
    old = tmp_path / "adt-venv/bin"
    old.mkdir(parents=True)
    for name in ("cmake", "ninja"):
        (old / name).write_text("#!/bin/sh\necho version 1.2.3\n")
        (old / name).chmod(0o755)
    code = "import sys; sys.executable = sys.argv.pop(1); from adt.cli.main import main; sys.argv[0] = 'adt'; main()"
    words = (sys.executable, "-c", code, old / "python", "doctor", "host", "--json")
    done = try_program(*words, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    assert done.returncode == FAILED, done.stderr
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["cmake"]["status"] == checks["ninja"]["status"] == "failed"
    assert "1.2.3 is too old: 3.26" in checks["cmake"]["found"]
    assert str(old / "cmake") in checks["cmake"]["origin"]
    # Its Python is no program either: the import of TVM and the trial of namespaces are told, not thrown.
    assert checks["TVM"]["status"] == "failed" or checks["import tvm"]["status"] == "failed"
    assert checks["virtual device"]["status"] == "warning"


def test_ndk_and_a_wrong_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    result = doctor("ndk", "--ndk", empty, code=FAILED)["by_name"]["NDK"]
    assert "source.properties is missing" in result["found"] and result["remedy"]
    standin = make_standin_ndk(tmp_path / "ndk")
    monkeypatch.setenv("ANDROID_NDK_ROOT", str(empty))
    result = doctor("ndk", "--ndk", standin)["by_name"]
    assert "STAND-IN" in result["NDK"]["found"] and result["NDK"]["status"] == "warning"
    assert "clang version" in result["NDK compiler"]["found"]
    assert result["NDK of ANDROID_NDK_ROOT"]["status"] == "warning"
    monkeypatch.setenv("ADT_BUILD_API_LEVEL", "99")
    result = doctor("ndk", "--ndk", standin, code=FAILED)["by_name"]
    assert "21 to 35" in result["API level for android-arm64-v8a"]["found"]
    monkeypatch.setenv("ADT_NO_SUCH", "1")
    assert doctor("host", code=FAILED)["by_name"]["settings"]["status"] == "failed"


# --- adb and devices ---------------------------------------------------------


def kill_server() -> None:
    subprocess.run([adb.find_adb().path, "kill-server"], check=False, capture_output=True)


def test_looking_starts_no_server_and_the_fix_does(native_rack: Rack) -> None:
    kill_server()
    checks = doctor("device")["by_name"]
    assert checks["adb server"]["status"] == "warning"
    assert doctor("device")["by_name"]["adb server"]["status"] == "warning"  # still none
    mended = doctor("device", "--fix", code=FAILED)  # no device: and devices were asked for
    assert [(repair["action"], repair["done"]) for repair in mended["repairs"]] == [
        ("start-adb-server", True)
    ]
    assert mended["by_name"]["adb server"]["status"] == "ok"
    assert str(adb.find_adb().path) in mended["by_name"]["adb server"]["origin"]
    assert mended["by_name"]["devices"]["status"] == "failed"


def fake_adb(directory: Path, version: str, protocol: int) -> None:
    program = directory / "adb"
    program.write_text(
        f"#!/bin/sh\nprintf 'Android Debug Bridge version 1.0.{protocol}\\nVersion {version}\\n'\n"
    )
    program.chmod(0o755)


def test_another_adb_on_path_that_would_kill_the_server(
    native_rack: Rack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    selection.listing()  # a real server
    fake_adb(tmp_path, "28.0.1-1", 39)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    result = doctor("device", code=FAILED)["by_name"]
    assert result["adb"]["status"] == "ok"  # the newer one is taken
    assert f"{tmp_path / 'adb'} speaks 39" in result["adb versions"]["found"]
    monkeypatch.setenv("ADBUTILS_ADB_PATH", str(tmp_path / "adb"))
    result = doctor("device", code=FAILED)["by_name"]
    assert "too old for `adb pair`" in result["adb"]["found"]
    assert "ADBUTILS_ADB_PATH" in result["adb"]["origin"]


def test_a_ready_device_its_deployment_its_package_and_its_room(
    native_rack: Rack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = native_rack.start("good", data_size="128m")
    # No bundle was built there: the doctor has no program with which to try what calls itself OpenCL.
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path / "cache"))
    try:
        package, bundle = make_package(tmp_path / "package"), make_bundle(tmp_path / "bundle")
        store.deploy(device, bundle, package)
        device.script("d=/data/data/org.pocl.libs/files/lib64; mkdir -p $d && touch $d/libpocl.so")
        result = doctor("device", "package", "--package", package.path, "--bundle", bundle.path)["by_name"]
        here = {name.removeprefix(f"{device.serial}: "): check for name, check in result.items()}
        assert {check["status"] for check in result.values()} == {"ok"}
        assert NATIVE.linux_platform in here["platform"]["found"]
        assert here["page size"]["found"] == "4096 bytes"
        assert here["programs"]["found"].startswith("run from")
        assert "1: toy" in here["deployments"]["found"]
        assert "libpocl.so" in here["OpenCL"]["found"] and "not tried" in here["OpenCL"]["found"]
        assert result[f"bundle on {device.serial}"]["status"] == "ok"
        left = device.script("ls -a /data/local/tmp").out.split()
        assert not [name for name in left if "doctor" in name]
        (package.path / "mod.params").write_text("other")
        result = doctor("package", "--package", package.path, "--bundle", bundle.path, code=FAILED)["by_name"]
        assert result["package"]["status"] == "failed" and result["bundle"]["status"] == "ok"
        device.script("head -c 40000000 /dev/zero >/data/local/tmp/fill")
        result = doctor("device", "--serial", device.serial)["by_name"][f"{device.serial}: free space"]
        assert result["status"] == "warning" and "adt clean" in result["remedy"]
        device.script("head -c 85000000 /dev/zero >>/data/local/tmp/fill")
        result = doctor("device", code=FAILED)["by_name"][f"{device.serial}: free space"]
        assert result["status"] == "failed"
    finally:
        native_rack.stop_all()


def test_an_offline_device(native_rack: Rack) -> None:
    info = native_rack.boot("dark", faults=["offline"])

    def connect() -> None:
        with contextlib.suppress(NoDevice, DeviceError):
            selection.connect(info.serial)

    asking = threading.Thread(target=connect)
    asking.start()
    try:
        offline = (info.serial, "offline")
        wait_for(lambda: offline in {(d.serial, d.state) for d in selection.listing()}, "it is offline")
        check: dict[str, Any] = {}
        repair: dict[str, Any] = {}

        def is_offline() -> bool:  # what adb calls it changes by the second
            check.update(doctor("device", code=FAILED)["by_name"].get(f"device {info.serial}", {}))
            return "offline" in check.get("found", "")

        def tried() -> bool:
            for entry in json.loads(invoke("doctor", "device", "--fix", "--json").stdout)["repairs"]:
                repair.update(entry if entry["action"] == "reconnect-offline-devices" else {})
            return bool(repair)

        wait_for(is_offline, "the doctor sees that it is offline")
        assert f"adt adb -s {info.serial} -- reconnect" in check["remedy"]
        wait_for(tried, "the doctor tries to reconnect it")
        assert not repair["done"] and info.serial in repair["said"]  # this one never comes back
    finally:
        native_rack.stop_all()
        asking.join(120)
        assert not asking.is_alive()


def test_a_virtual_device_that_adb_lost_is_connected_again(native_rack: Rack) -> None:
    device = native_rack.start("lost")
    try:
        kill_server()
        selection.listing()
        check = doctor("device")["by_name"]["virtual device lost"]
        assert check["status"] == "warning" and check["remedy"] == f"adb connect {device.serial}"
        mended = doctor("device", "--fix")
        assert [repair["action"] for repair in mended["repairs"]] == ["connect-device"]
        assert mended["by_name"][f"{device.serial}: programs"]["status"] == "ok"
    finally:
        native_rack.stop_all()


# --- the cache, packages of the system, ctrl-C -------------------------------


def test_the_fix_mends_this_machine(
    native_rack: Rack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Mend a dead device's record, a damaged bundle and a missing compiler (apt-get is a stand-in)."""
    info = native_rack.boot("dead")
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path / "cache"))
    record = state.home("dead").record
    os.kill(info.pid, signal.SIGKILL)
    wait_for(lambda: process.start_time(info.pid) is None, "it is gone")
    native_rack._names.remove("dead")
    bundle = tmp_path / "cache/bundles/host-0"
    make_bundle(bundle)
    (bundle / "lib/libone.so").write_bytes(b"cut")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "qemu-aarch64-static", "dpkg-deb", "g++", "git", "env"):
        if program := real_program(name):
            (tools / name).symlink_to(program)
    apt = tools / "apt-get"
    compiler = tools / "aarch64-linux-gnu-g++"
    real = real_program("aarch64-linux-gnu-g++")
    apt.write_text(f'#!/bin/sh\necho "$@" >>"{tmp_path}/apt.log"\n/bin/ln -sf {real} "{compiler}"\n')
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))

    checks = doctor("host")["by_name"]
    assert "dead" in checks["virtual device: records"]["found"] and record.exists()
    assert checks["bundle host-0"]["status"] == "warning"
    assert "3 bytes instead of 3000" in checks["bundle host-0"]["found"]
    missing = {"action": "install-debian-packages", "arguments": ["g++-aarch64-linux-gnu"]}
    assert checks["compiler for linux-aarch64"]["fix"] == missing

    mended = doctor("host", "--fix")
    repairs = {repair["action"]: repair for repair in mended["repairs"]}
    assert repairs.keys() == {
        "remove-stale-emulator-records",
        "remove-damaged-bundle",
        "install-debian-packages",
    }
    assert "virtual device: records" not in mended["by_name"] and not record.exists()
    assert "bundle host-0" not in mended["by_name"] and not bundle.exists()
    installed = repairs["install-debian-packages"]
    if os.geteuid() == 0:
        assert installed["done"]
        log = (tmp_path / "apt.log").read_text()
        assert log == "install -y --no-install-recommends g++-aarch64-linux-gnu\n"
        assert mended["by_name"]["compiler for linux-aarch64"]["status"] == "ok"
    else:
        assert not installed["done"] and "sudo apt-get install" in installed["said"]
        assert not (tmp_path / "apt.log").exists()


def test_ctrl_c_leaves_no_program_behind(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    program = tmp_path / "g++"
    seconds = f"4325.{os.getpid()}"  # another run of the tests has its own
    program.write_text(f'#!/bin/sh\ntouch "{started}"\nsleep {seconds} & sleep {seconds}; wait\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with subprocess.Popen(
        [str(ADT), "doctor", "host"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        wait_for(started.exists, "g++ was asked for its version")
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=300)
    assert running.returncode == 130
    assert b"interrupted" in err and b"Traceback" not in err
    assert not command_lines(f"sleep {seconds}")
