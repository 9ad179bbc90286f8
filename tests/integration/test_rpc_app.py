"""TVM's RPC server in an app: made, installed, started, used, watched and stopped.

The device is the virtual one, which is no Android: `pm` is a stand-in, and `am` is one that has what plays
Android for the app's library (tests/support/standins/libandroid) load it. The APK, the library, the server in
it, adb, tracker and clients are real.
"""

import re
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adt as api
from adt.bundle.bundle import ACTIVITY, TargetBundle
from adt.device.deploy.payload import user_directory
from adt.device.device import Device
from adt.device.transport import forwards
from adt.errors import ConfigError, RpcError
from adt.host import manifest
from adt.integrate.contents import BENCH_PLAN, OPENCL_LIBRARIES
from adt.package.package import load_package
from adt.rpc.session import remote_model
from support.devices.fixtures import Rack, entries
from support.devices.ports import free_span
from support.devices.programs import invoke_json, program_output
from support.models.kernels import add_one, compile_add_one
from support.models.small import small_model
from support.standins.ndk import make_player, make_standin_ndk
from support.waiting import wait_for

APP = "com.example.adt_rpc"
HOME = "/data/local/tmp/standin"
PM = """#!/system/bin/sh
[ -s "$4" ] && echo Success
"""
AM = f"""#!/system/bin/sh
cd {HOME} || exit 1
echo "$*" >>calls
[ "$1" = start ] && [ -f absent ] && echo "Error: Activity class {{x}} does not exist." && exit 1
stop() {{ [ -f pid ] && kill -9 -- "-$(cat pid)"; rm -f pid in; }}
case $1 in
  force-stop) stop ;;
  start)
    stop
    shift 4
    : >words
    while [ $# -gt 0 ]; do echo "$2=$3" >>words; shift 3; done
    printf 'create\\nresume\\n' >>words
    mkdir -p internal external
    mkfifo in
    LD_LIBRARY_PATH={HOME}/lib setsid sh -c '{{ cat words; exec sleep 3600; }} >in & echo $$ >pid
      exec ./play libadt_activity.so assets internal external "" 0 0 <in' >out 2>>/data/log/main &
    echo "Starting: Intent"
    ;;
esac
"""
PIDOF = f"""#!/system/bin/sh
read -r pid <{HOME}/pid && [ -d /proc/$pid ] && echo $pid
"""


@dataclass(frozen=True)
class Site:
    """The devices and programs of every test."""

    device: Device
    ndk: str
    bundle: TargetBundle
    apk: Path
    kernel: Path
    tracker: str

    def install(self, *words: str) -> dict[str, Any]:
        words = (*words, "--tracker", self.tracker, "--key", "phone")
        return invoke_json("install", self.apk, "--serial", self.device.serial, "--run", *words)

    @property
    def status(self) -> dict[str, Any]:
        (server,) = invoke_json("rpc", "status")["servers"]
        return dict(server)

    def session(self) -> Any:
        return api.rpc_session(key="phone", tracker=self.tracker, wait=240)


@pytest.fixture(scope="module")
def site(rack: Rack, workdir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    ports = free_span(8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADT_DATA_DIR", str(tmp_path_factory.mktemp("data")))
        patch.setenv("ADT_RPC_PORT", str(ports))
        patch.setenv("ADT_RPC_PORT_END", str(ports + 6))
        ndk = make_standin_ndk()
        bundle = api.build_target(platform="android-arm64-v8a", ndk=str(ndk)).bundle
        apk = workdir / "rpc.apk"
        invoke_json("apk", "--rpc-server", "--bundle", bundle.path, "--ndk", ndk, "-o", apk)
        options = {"platform": "android-arm64-v8a", "ndk": str(ndk), "bundle": bundle.path}
        kernel = compile_add_one(workdir / "add_one.so", **options)
        device = rack.start_with("app", {"pm": PM, "am": AM, "pidof": PIDOF}, workdir)
        put_android(device, make_player(ndk, workdir), apk)
        tracker = api.tracker_start(port=ports + 7).address
        yield Site(device, str(ndk), bundle, apk, kernel, tracker)
        api.rpc_stop(all=True)
        api.tracker_stop()


def put_android(device: Device, player: tuple[Path, Path], apk: Path) -> None:
    """Push the stand-ins, with what the APK carries unpacked for them."""
    program, system = player
    device.push(program, f"{HOME}/play", mode=0o755)
    for name in ("libandroid.so", "liblog.so"):
        device.push(system / name, f"{HOME}/lib/{name}", mode=0o644)
    with zipfile.ZipFile(apk) as archive:
        for name in archive.namelist():
            if name.startswith("lib/"):
                device.push(archive.read(name), f"{HOME}/lib/{Path(name).name}", mode=0o644)
        device.push(archive.read(BENCH_PLAN), f"{HOME}/{BENCH_PLAN}", mode=0o644)


def test_the_apk_asks_for_the_network_and_only_adb_may_start_it(site: Site) -> None:
    badging = program_output("aapt", "dump", "badging", site.apk)
    assert re.findall(r"uses-permission: name='(.*)'", badging) == ["android.permission.INTERNET"]
    assert f"package: name='{APP}'" in badging and "launchable-activity" not in badging
    tree = program_output("aapt", "dump", "xmltree", site.apk, "AndroidManifest.xml")
    assert '"android.permission.DUMP"' in tree
    assert re.findall(r'"(lib\w.*?\.so)" \(Raw', tree) == list(OPENCL_LIBRARIES)
    with zipfile.ZipFile(site.apk) as archive:
        assert [name for name in archive.namelist() if "mod.json" in name] == []
        assert f"lib/arm64-v8a/{Path(ACTIVITY).name}" in archive.namelist()


def test_what_cannot_be_asked_for(site: Site, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="together with --rpc-server: clients send what they run"):
        api.apk(tmp_path / "pkg", rpc_server=True, bundles=[site.bundle.path])
    without = tmp_path / "bundle"
    shutil.copytree(site.bundle.path, without)
    files = {name: facts for name, facts in site.bundle.manifest.files.items() if name != "bin/tvm_rpc"}
    manifest.write(replace(site.bundle.manifest, files=files), without / "bundle.json")
    with pytest.raises(RpcError, match="has no tvm_rpc"):
        api.apk(rpc_server=True, bundles=[without], ndk=site.ndk)
    with pytest.raises(ConfigError, match="does not register with a tracker") as caught:
        api.install(site.apk, serial=site.device.serial, key="phone")
    assert "adt install APK --run" in caught.value.remedy


def test_it_serves_until_it_is_stopped(site: Site, tmp_path: Path) -> None:
    server = site.install()["server"]
    assert (server["key"], server["tracker"], server["already"]) == ("phone", site.tracker, False)
    assert (site.status["state"], site.status["address"]) == ("ready", server["address"])
    for _ in range(2):
        with site.session() as remote:
            add_one(remote, site.kernel)
    words = {"platform": "android-arm64-v8a", "ndk": site.ndk, "bundle": site.bundle.path}
    package = api.compile(small_model(tmp_path / "small.onnx"), out=tmp_path / "small", **words)
    with site.session() as remote, remote_model(remote, load_package(package.path)) as model:
        model.set_inputs({"x": np.ones((1, 4), "float32")})
        model.run()
        assert [output.shape for output in model.outputs().values()] == [(1, 3)]
    assert site.status["restarts"] == 0, "sessions that end well end nothing else"
    assert site.install()["server"]["pid"] != server["pid"], "the app was replaced"
    assert invoke_json("rpc", "stop")["stopped"] == [site.device.serial]
    calls = site.device.script('cat "$1/calls"', HOME).out.splitlines()
    assert f"start -S -n {APP}/android.app.NativeActivity --es key phone" in calls[0]
    assert calls[-1] == f"force-stop {APP}"
    assert site.device.shell(["pidof", APP], check=False).out == ""
    assert entries(site.device, f"{user_directory()}/rpc") == []
    for reverse in (False, True):
        assert forwards.listed(site.device.serial, reverse=reverse) == {}
    assert invoke_json("rpc", "status")["servers"] == []


def test_a_client_that_was_killed_costs_a_new_start_and_no_more(site: Site) -> None:
    site.install()
    code = f"""
import adt, time
with adt.rpc_session(key="phone", tracker={site.tracker!r}) as remote:
    print("there", flush=True)
    time.sleep(600)
"""
    for times in (1, 2):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout is not None and client.stdout.readline() == "there\n"
            client.send_signal(signal.SIGKILL)
        wait_for(lambda: site.status["restarts"] == times and site.status["state"] == "ready", "it is back")  # noqa: B023
    assert "the app ended" in site.status["last_error"] and "its client was gone" in site.status["last_error"]
    with site.session() as remote:
        add_one(remote, site.kernel)
    api.rpc_stop(serial=site.device.serial)


def test_an_app_that_is_not_there_is_explained(site: Site) -> None:
    """Explain the message of Android's activity manager."""
    site.device.script('touch "$1"', f"{HOME}/absent")
    with pytest.raises(RpcError, match=r"did not start: the app ended.*does not exist") as caught:
        api.install(site.apk, serial=site.device.serial, run=True, tracker=site.tracker)
    assert "logcat -d adt:V" in caught.value.remedy
    site.device.script('rm "$1"', f"{HOME}/absent")
