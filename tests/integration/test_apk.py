"""APKs with real tools: what is in them, who signed them, and what devices say to them.

The device is the virtual one, which is no Android: `pm` and `am` are stand-ins
there that keep what the real ones print, and no app runs.
"""

import hashlib
import json
import re
import shutil
import signal
import struct
import subprocess
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import adt as api
from adt.bundle.bundle import load_bundle
from adt.device.app import MEDIA_FILES, run_app
from adt.device.device import Device
from adt.errors import AdtError, BuildError, ConfigError, DeviceError, MismatchError, RunError
from adt.host import manifest
from adt.host.ndk import DEBIAN_FRAMEWORK
from adt.integrate.apk import misplaced
from adt.integrate.contents import ACTIVITY_CLASS, BENCH_PLAN, ERROR, OPENCL_LIBRARIES, RESULTS
from support.devices.fixtures import NATIVE, Rack, entries, processes
from support.devices.programs import ADT, invoke, invoke_json
from support.devices.programs import program_output as say
from support.models.small import MAGIKA, small_model
from support.standins.elf import header_offset
from support.standins.ndk import make_standin_ndk
from support.waiting import wait_for

APP = "com.example.vision"


@dataclass(frozen=True)
class Parts:
    """The parts of an APK."""

    package: Path
    bundle: Path
    ndk: str

    def words(self, out: Path) -> tuple[object, ...]:
        words = ("apk", self.package, "--bundle", self.bundle, "--ndk", self.ndk)
        return (*words, "--package", APP, "-o", out)


@pytest.fixture(scope="module", autouse=True)
def own_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the debug key and the results in a directory of the tests."""
    directory = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ADT_DATA_DIR", str(directory))
        patch.setenv("ADT_COMPILE_CHECK", "off")
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # short runs
        yield directory


@pytest.fixture(scope="module")
def parts(workdir: Path) -> Parts:
    """Compile a small model for a bundle that the stand-in NDK built."""
    ndk = str(make_standin_ndk())
    bundle = api.build_target(platform="android-arm64-v8a", ndk=ndk)
    model = small_model(workdir / "small.onnx")
    package = api.compile(model, platform="android-arm64-v8a", ndk=ndk, out=workdir / "small-android")
    return Parts(package.path, bundle.bundle.path, ndk)


@pytest.fixture(scope="module")
def apk_document(parts: Parts, workdir: Path) -> dict[str, Any]:
    """Return the document that `adt apk` prints about the APK it wrote."""
    return invoke_json(*parts.words(workdir / "vision.apk"))


def test_an_apk_is_signed_aligned_and_would_load(apk_document: dict[str, Any], parts: Parts) -> None:
    apk = Path(apk_document["path"])
    assert apk_document["signatures"] == ["v2", "v3"] and apk_document["debug_key"] is True
    verified = say("apksigner", "verify", "--verbose", "--min-sdk-version", "24", apk)
    assert re.findall(r"using (v\d) scheme .*: true", verified) == ["v2", "v3"]
    say("zipalign", "-c", "-p", "4", apk)  # Debian's knows pages of 4 KB; misplaced() looks for 16 KB
    assert misplaced(apk) == ()
    for words in ((), ("--for", "android-arm64-v8a")):
        audited = invoke("elf", apk, "--ndk", parts.ndk, *words)
        assert audited.returncode == 0, audited.stdout + audited.stderr
        assert "libadt_activity.so" in audited.stdout
    assert apk_document["elf"]["arm64-v8a"]["verdict"] == "ok"


def test_the_manifest_says_what_it_should(apk_document: dict[str, Any]) -> None:
    apk = apk_document["path"]
    badging = say("aapt", "dump", "badging", apk)
    for line in (
        f"package: name='{APP}' versionCode='1'",
        "sdkVersion:'28'",
        "targetSdkVersion:'36'",
        "launchable-activity: name='android.app.NativeActivity'",
        "native-code: 'arm64-v8a'",
    ):
        assert line in badging, badging
    assert "uses-permission" not in badging
    tree = say("aapt", "dump", "xmltree", apk, "AndroidManifest.xml")
    assert re.findall(r'"(lib\w.*?\.so)" \(Raw', tree) == list(OPENCL_LIBRARIES)
    assert '"adt_activity"' in tree
    assert "android:hasCode" not in tree  # it has some: the class loader sees the vendor's OpenCL by it
    assert re.search(r"android:extractNativeLibs\(\w+\)=\(type 0x12\)0x0$", tree, re.MULTILINE)


def test_androids_own_reader_takes_the_class(apk_document: dict[str, Any]) -> None:
    listing = say("dexdump", "-f", apk_document["path"])  # checks sums, offsets and the map, as ART does
    assert re.findall(r"Class descriptor  : '(.*)'", listing) == ["Ladt/Stub;"]


def test_the_apk_carries_the_bundle_and_the_package(apk_document: dict[str, Any], parts: Parts) -> None:
    with zipfile.ZipFile(apk_document["path"]) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    for library in parts.bundle.glob("lib/*.so"):
        assert contents.pop(f"lib/arm64-v8a/{library.name}") == library.read_bytes()
    assert contents.pop("lib/arm64-v8a/libsmall_model.so") == (parts.package / "mod.so").read_bytes()
    for name in ("mod.json", "mod.params"):
        assert contents.pop(f"assets/adt/small/arm64-v8a/{name}") == (parts.package / name).read_bytes()
    for text in parts.bundle.glob("licenses/*/*"):
        assert contents.pop(f"assets/adt/{text.relative_to(parts.bundle)}") == text.read_bytes()
    plan = json.loads(contents.pop(BENCH_PLAN))
    expected = {"stem": "small", "library": "libsmall_model.so", "entry": "main", "extents": []}
    expected |= {"shared_params": False}
    assert plan["models"] == [expected]
    assert plan["bundle_digests"] == {
        "arm64-v8a": hashlib.sha256((parts.bundle / "bundle.json").read_bytes()).hexdigest()
    }
    assert contents.keys() == {"AndroidManifest.xml", "classes.dex", "resources.arsc"}


@pytest.mark.nightly
def test_two_abis_share_one_copy_of_the_parameters(parts: Parts, tmp_path: Path) -> None:
    platforms = ("android-arm64-v8a", "android-x86_64")
    model = shutil.copy(MAGIKA, tmp_path / "magika.onnx")
    bundles = [api.build_target(platform=name, ndk=parts.ndk).bundle.path for name in platforms]
    packages = [
        api.compile(model, platform=name, ndk=parts.ndk, out=tmp_path / name).path for name in platforms
    ]
    size = (packages[0] / "mod.params").stat().st_size
    assert size > 1 << 20
    for again in ("one.apk", "two.apk"):
        api.apk(packages, bundles=bundles, ndk=parts.ndk, java_package=APP, out=tmp_path / again)
    assert (tmp_path / "one.apk").read_bytes() == (tmp_path / "two.apk").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.apk") as archive:
        sizes = {
            info.filename: info.file_size for info in archive.infolist() if "adt/magika/" in info.filename
        }
        plan = json.loads(archive.read(BENCH_PLAN))
    assert {name: sizes[name] for name in sizes if not name.endswith("json")} == {
        "assets/adt/magika/mod.params": size
    }
    assert {name for name in sizes if name.endswith("json")} == {
        f"assets/adt/magika/{abi}/mod.json" for abi in ("arm64-v8a", "x86_64")
    }
    assert [model["shared_params"] for model in plan["models"]] == [True]


def make_sdk(root: Path) -> None:
    """Create the layout of an Android SDK with Debian's programs."""
    tools, platform = root / "build-tools/35.0.0", root / "platforms/android-35"
    tools.mkdir(parents=True)
    platform.mkdir(parents=True)
    for name in ("aapt2", "apksigner"):
        program = shutil.which(name)
        assert program
        (tools / name).symlink_to(program)
    (platform / "android.jar").symlink_to(DEBIAN_FRAMEWORK)


def test_an_sdk_makes_the_same_apk(
    apk_document: dict[str, Any], parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_sdk(tmp_path / "sdk")
    monkeypatch.setenv("ANDROID_HOME", str(tmp_path / "sdk"))
    again = invoke_json(*parts.words(tmp_path / "again.apk"))
    assert "build-tools 35.0.0, android-35" in again["tools"]
    assert (tmp_path / "again.apk").read_bytes() == Path(apk_document["path"]).read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["sdk", "again.apk"]  # nothing temporary stays


def test_a_users_key_signs_and_its_password_stays_unseen(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, out = tmp_path / "mine.p12", tmp_path / "a.apk"
    monkeypatch.setenv("MINE", "pass-word-7")
    say(
        *("keytool", "-genkeypair", "-keystore", store, "-storepass:env", "MINE", "-alias", "release"),
        *("-keyalg", "EC", "-groupname", "secp256r1", "-dname", "CN=Vision Ltd"),
    )
    words = (*parts.words(out), "--keystore", store)
    monkeypatch.setenv("ADT_KEYSTORE_PASSWORD", "another")
    wrong = invoke(*words)
    assert wrong.returncode == ConfigError.exit_code and "is wrong" in wrong.stderr, wrong.stderr
    assert "java." not in wrong.stderr and "remedy: Check ADT_KEYSTORE_PASSWORD" in wrong.stderr
    assert not out.exists()
    (tmp_path / "password").write_text("pass-word-7\n")
    done = invoke(*words, "--keystore-password-file", tmp_path / "password", "-v")
    assert done.returncode == 0 and "apksigner sign" in done.stderr, done.stderr
    assert "pass-word-7" not in done.stderr + done.stdout  # -v shows every argument of every program
    assert "CN=Vision Ltd" in say("apksigner", "verify", "--print-certs", out)


def test_a_library_that_would_not_load_is_refused(parts: Parts, tmp_path: Path) -> None:
    """Write nothing without libtvm_ffi.so, which the bundle's activity needs."""
    bundle = load_bundle(parts.bundle)
    shutil.copytree(parts.bundle, tmp_path / "bundle")
    files = {name: facts for name, facts in bundle.manifest.files.items() if "tvm_ffi" not in name}
    manifest.write(replace(bundle.manifest, files=files), tmp_path / "bundle/bundle.json")
    lacking = Parts(parts.package, tmp_path / "bundle", parts.ndk)
    done = invoke(*lacking.words(tmp_path / "a.apk"))
    assert done.returncode == BuildError.exit_code
    assert "would not load from the APK" in done.stderr and "libtvm_ffi.so" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_library_for_small_pages_is_refused(parts: Parts, tmp_path: Path) -> None:
    name, facts = "lib/libtvm_ffi.so", load_bundle(parts.bundle).manifest
    library = Path(shutil.copytree(parts.bundle, tmp_path / "bundle")) / name
    contents = bytearray(library.read_bytes())
    struct.pack_into("<Q", contents, header_offset(library, "PT_LOAD", "p_align"), 4096)
    library.write_bytes(contents)
    file = replace(facts.files[name], sha256=hashlib.sha256(contents).hexdigest())
    manifest.write(replace(facts, files={**facts.files, name: file}), tmp_path / "bundle/bundle.json")
    words = Parts(parts.package, tmp_path / "bundle", parts.ndk).words(tmp_path / "a.apk")
    done = invoke(*words)
    assert done.returncode == BuildError.exit_code
    assert "libtvm_ffi.so does not load on devices with pages of 16 KB" in done.stderr
    assert "--allow-4k" in done.stderr and not (tmp_path / "a.apk").exists()
    done = invoke(*words, "--allow-4k")
    assert done.returncode == 0, done.stderr


def test_a_machine_without_the_tools_says_what_to_install(parts: Parts, tmp_path: Path) -> None:
    environment = {"PATH": "/nowhere", "HOME": str(tmp_path)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        done = invoke(*parts.words(tmp_path / "a.apk"))
    assert done.returncode == 4
    assert "apt-get install --no-install-recommends aapt apksigner" in done.stderr


def test_ctrl_c_leaves_nothing_behind(parts: Parts, tmp_path: Path) -> None:
    """Interrupt while a stand-in for apksigner, which never ends, has the APK."""
    sdk, place, started = tmp_path / "sdk", tmp_path / "out", tmp_path / "started"
    make_sdk(sdk)
    (sdk / "build-tools/35.0.0/apksigner").unlink()
    (sdk / "build-tools/35.0.0/apksigner").write_text(f"#!/bin/sh\necho $$ >{started}\nexec sleep 300\n")
    (sdk / "build-tools/35.0.0/apksigner").chmod(0o755)
    words = [ADT, *parts.words(place / "a.apk"), "--sdk", sdk]
    with subprocess.Popen(list(map(str, words)), stderr=subprocess.PIPE, text=True) as running:
        wait_for(lambda: started.is_file() and bool(started.read_text()), "apksigner starts")
        running.send_signal(signal.SIGINT)
        _, output = running.communicate(timeout=120)
    assert running.returncode == 130 and "interrupted" in output
    assert not Path(f"/proc/{started.read_text().strip()}").exists()
    assert list(place.iterdir()) == []


# Stand-ins for Android's programs. What they do is in files of /data/local/tmp/standin.
PM = """#!/system/bin/sh
cd /data/local/tmp/standin
echo "$*" >>calls
[ -s "$4" ] && cp "$4" installed || exit 9
cat says
grep -q Success says
"""
AM = """#!/system/bin/sh
cd /data/local/tmp/standin
echo "$*" >>calls
case $1 in
  force-stop) rm -f running ;;
  start)
    [ -f cannot ] && { cat cannot; exit 0; }
    [ -f dies ] || : >running
    echo "Starting: Intent { cmp=$3 }"
    mkdir -p "$(cat results)"
    cp out/* "$(cat results)/" 2>/dev/null
    true
    ;;
esac
"""
PIDOF = """#!/system/bin/sh
[ -f /data/local/tmp/standin/running ] && echo 123
"""


@dataclass
class Phone:
    """The virtual device with the stand-ins."""

    device: Device
    home = "/data/local/tmp/standin"

    def tell(self, **files: str) -> None:
        """Set the answers of the stand-ins from now on."""
        self.device.script('rm -rf "$1" && mkdir -p "$1/out"', self.home)
        for name, text in {"says": "Success\n", "results": f"{self.results}", **files}.items():
            self.device.push(
                text.encode(), f"{self.home}/{name.replace('__', '/').replace('_json', '.json')}"
            )

    @property
    def results(self) -> str:
        return f"{MEDIA_FILES.format(app=APP)}/adt-bench"

    @property
    def calls(self) -> list[str]:
        return self.device.script('cat "$1/calls"', self.home).out.splitlines()


@pytest.fixture(scope="module")
def plain(native_rack: Rack) -> Device:
    return native_rack.start("apps")


@pytest.fixture(scope="module")
def phone(native_rack: Rack, workdir: Path) -> Phone:
    """Start a device whose system programs are the stand-ins."""
    return Phone(native_rack.start_with("phone", {"pm": PM, "am": AM, "pidof": PIDOF}, workdir))


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Write a stand-in for an APK of the model `small`."""
    path = tmp_path / "tiny.apk"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("AndroidManifest.xml", b"")
        archive.writestr(f"lib/{NATIVE.name}/libsmall_model.so", b"")
        archive.writestr(BENCH_PLAN, json.dumps({"app": APP, "models": [{"stem": "small"}]}))
    return path


def test_a_device_without_a_package_manager_is_refused(tiny: Path, plain: Device) -> None:
    done = invoke("install", tiny, "--serial", plain.serial)
    assert done.returncode == DeviceError.exit_code
    assert "has no package manager" in done.stderr and "adt run" in done.stderr
    assert entries(plain, "/data/local/tmp") in ([], ["adt"])


def test_an_apk_is_installed(tiny: Path, phone: Phone) -> None:
    phone.tell()
    document = invoke_json("install", tiny, "--serial", phone.device.serial)
    assert (document["app"], document["records"]) == (APP, [])
    sent = phone.device.script('sha256sum <"$1/installed"', phone.home).out.split()[0]
    assert sent == hashlib.sha256(tiny.read_bytes()).hexdigest()
    (call,) = phone.calls
    assert call.startswith("install -r -t /data/local/tmp/adt/")
    temporary = call.split()[3].rpartition("/")[0]
    assert entries(phone.device, temporary) == []


def test_what_the_device_refuses_has_a_remedy(tiny: Path, phone: Phone) -> None:
    phone.tell(says="Failure [INSTALL_FAILED_UPDATE_INCOMPATIBLE: signatures do not match]\n")
    done = invoke("install", tiny, "--serial", phone.device.serial)
    assert done.returncode == DeviceError.exit_code
    assert f"uninstall {APP}" in done.stderr and "signatures do not match" in done.stderr


def test_an_apk_for_another_machine_is_not_sent(phone: Phone, tmp_path: Path) -> None:
    phone.tell()
    with zipfile.ZipFile(tmp_path / "a.apk", "w") as archive:
        archive.writestr("AndroidManifest.xml", b"")
        archive.writestr("lib/armeabi-v7a/liba.so", b"")
    with pytest.raises(MismatchError, match=rf"is for armeabi-v7a, and .* runs {NATIVE.name}"):
        api.install(tmp_path / "a.apk", serial=phone.device.serial)
    with pytest.raises(ConfigError, match="not made by `adt apk`"):
        api.install(tmp_path / "a.apk", serial=phone.device.serial, run=True)
    assert "calls" not in entries(phone.device, phone.home)


@pytest.mark.parametrize(
    ("answers", "kind", "message", "remedy"),
    [
        (
            {"cannot": "Error type 3\nError: Activity class {x} does not exist.\n"},
            ConfigError,
            "no app com.example.vision",
            "adt install",
        ),
        ({"cannot": "Error: not allowed\n"}, RunError, "does not start", "activity manager"),
        ({"dies": ""}, RunError, "ended on .* without small.json", " -- logcat -d adt:V"),
        ({}, RunError, "did not come to an end within 3 s", "--timeout"),
    ],
)
def test_an_app_that_does_not_measure_is_explained(
    phone: Phone,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answers: dict[str, str],
    kind: type[AdtError],
    message: str,
    remedy: str,
) -> None:
    phone.tell(**answers)
    monkeypatch.setattr("adt.device.app.STARTING_SECONDS", 2)
    with pytest.raises(kind, match=message) as caught:
        run_app(
            phone.device,
            APP,
            ACTIVITY_CLASS,
            results=RESULTS,
            files=["small.json"],
            over=ERROR,
            into=tmp_path,
            timeout=3,
        )
    assert remedy in caught.value.remedy
    assert processes(phone.device) == []


def measured(package: str = "small", **more: Any) -> str:
    """Return a document as the activity writes it (docs/json.md); the numbers are made up."""
    document = {
        "schema": "adt.app-bench",
        "schema_version": 1,
        "when": "2026-11-21T17:00:00Z",
        "app": APP,
        "writer": "native-activity",
        "machine": {
            "model": "Stand-in 1",
            "soc": "made up",
            "android_release": "16",
            "api_level": 36,
            "abi": "arm64-v8a",
        },
        "package": package,
        "package_digest": "1" * 64,
        "entry": "main",
        "bundle_digest": "2" * 64,
        "adt_version": "0.1.0",
        "runner_version": "0.1.0",
        "device": {"kind": "cpu", "name": "", "driver": "", "type": "cpu"},
        "threads": None,
        "affinity": "",
        "end_to_end": False,
        "seed": 0,
        "program_cache": "off",
        "warmup_runs": 3,
        "warmup_ms": 500.0,
        "load_ms": 20.0,
        "first_run_ms": 3.0,
        "run_ms": [2.0] * 50,
        "start_ms": [100.0 + 2 * n for n in range(50)],
        "memory": {"before_load_kb": 1000, "peak_kb": 2000},
        "samples": [],
    }
    return json.dumps(document | more)


def test_what_the_app_measured_is_fetched_and_kept(tiny: Path, phone: Phone, own_data: Path) -> None:
    phone.tell(out__small_json=measured())
    document = invoke_json("install", tiny, "--serial", phone.device.serial, "--run")
    (record,) = document["records"]
    assert record["subject"]["package"] == "small" and record["speed"]["times"]["p50_ms"] == 2.0
    assert record["correct"] is None
    assert [Path(file).is_relative_to(own_data) for file in document["files"]] == [True]
    stop = f"force-stop {APP}"
    assert phone.calls[1:] == [stop, f"start -n {APP}/{ACTIVITY_CLASS}", stop]
    (series,) = api.report(package="small").series
    assert series.key.machine.startswith("Stand-in 1")


def test_an_app_that_says_why_it_failed_is_quoted(tiny: Path, phone: Phone) -> None:
    error = {"schema": "adt.app-bench-error", "schema_version": 1, "app": APP, "model": "small"}
    phone.tell(
        out__small_json=json.dumps(error | {"what": "no OpenCL here", "remedy": "Compile for the CPU."})
    )
    with pytest.raises(RunError, match="small could not be measured: no OpenCL here") as caught:
        api.install(tiny, serial=phone.device.serial, run=True)
    assert caught.value.remedy == "Compile for the CPU."
    phone.tell(out__error_json=json.dumps(error | {"model": "", "what": "no plan", "remedy": "Again."}))
    with pytest.raises(RunError, match="no plan"):
        api.install(tiny, serial=phone.device.serial, run=True)


def test_results_of_an_earlier_run_do_not_count(tiny: Path, phone: Phone, tmp_path: Path) -> None:
    phone.tell(out__small_json=measured())
    run = {"results": RESULTS, "files": ["small.json"], "over": ERROR, "into": tmp_path}
    assert run_app(phone.device, APP, ACTIVITY_CLASS, timeout=60, **run) == (tmp_path / "small.json",)  # type: ignore[arg-type]
    phone.tell()
    with pytest.raises(RunError, match="within 1 s"):
        run_app(phone.device, APP, ACTIVITY_CLASS, timeout=1, **run)  # type: ignore[arg-type]
