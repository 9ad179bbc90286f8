"""Choice of a bundle from the cache, and `adt bundles`, without an NDK or a compiler."""

import json
import logging
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import adt
from adt.bundle import bundle as bundle_cache
from adt.bundle.bundle import BundleFile, TargetBundle, load_bundle
from adt.cli.app import app
from adt.device.deploy.payload import payload_of
from adt.device.transport.adb import server_listens
from adt.errors import ConfigError, MismatchError, PackageError, RpcError
from adt.host import manifest
from adt.host.cache import file_sha256
from adt.host.ndk import VARIABLES
from adt.options.resolve import load_settings
from adt.package.package import ModelPackage
from adt.rpc import state
from adt.tuning.fleet.sources import SerialSource
from adt.verbs import tune_places
from adt.verbs.bundles import SERVER, bundles, choose_bundle
from adt.verbs.default_platform import default_platform
from adt.verbs.generate import bundles_of
from adt.verbs.tune_request import TuneRequest
from support.devices.adb_server import Peer, fake_server, replying, text
from support.devices.ports import free_port
from support.standins.artefacts import entry, make_app_bundle, make_typed_package, tensor
from support.standins.rpc_records import server_record

ANDROID, LINUX = "android-arm64-v8a", "linux-aarch64"
Put = Callable[..., TargetBundle]


@pytest.fixture(autouse=True)
def no_ndk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(free_port()))
    for name in (*VARIABLES, "ANDROID_HOME", "ANDROID_SDK_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    bundle_cache._log_choice.cache_clear()


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Put a bundle into the cache; each is newer than the one before."""
    count = 0

    def put_bundle(
        name: str, platform: str = ANDROID, *, rpc: bool = True, opencl: bool = True, **about: Any
    ) -> TargetBundle:
        nonlocal count
        count += 1
        bundle = make_app_bundle(tmp_path / "cache/bundles" / name, platform, **about)
        options = replace(bundle.manifest.options, rpc=rpc, opencl=opencl)
        files = dict(bundle.manifest.files)
        if rpc:
            bundle.file("bin").mkdir()
            bundle.file(SERVER).write_text(name)
            files[SERVER] = BundleFile(file_sha256(bundle.file(SERVER)), len(name), ())
        described = replace(bundle.manifest, options=options, files=files)
        manifest.write(described, bundle.path / "bundle.json")
        os.utime(bundle.path / "bundle.json", (count, count))
        return TargetBundle(bundle.path, described)

    return put_bundle


def package(directory: Path, **about: Any) -> ModelPackage:
    entries = (entry([tensor("x", (1, 4))], [tensor("y", (1, 2))]),)
    return make_typed_package(directory, "model", entries, **about)


def test_a_bundle_is_found_without_the_ndk_that_built_it(put: Put, tmp_path: Path) -> None:
    flagged = put("flagged", opencl=False, api_level=26)
    model = package(tmp_path / "pkg")
    assert choose_bundle(model).path == flagged.path
    assert [bundle.path for bundle in bundles_of([model], ())] == [flagged.path]


def test_the_newest_one_that_fits_is_taken(put: Put, tmp_path: Path) -> None:
    put("plain")
    best = put("opencl")
    put("cpu", opencl=False)
    put("unaligned", alignment=16)
    put("other", "linux-aarch64")
    model = package(tmp_path / "pkg", device="opencl")
    assert choose_bundle(model).path == best.path
    assert choose_bundle((ANDROID,), computes="opencl").path.name == "unaligned"
    assert choose_bundle(("android-armeabi-v7a", "linux-aarch64")).path.name == "other"


def test_one_without_a_server_is_passed_over_where_one_is_needed(put: Put) -> None:
    serving = put("serving")
    silent = put("silent", rpc=False)
    assert choose_bundle((ANDROID,), server=True).path == serving.path
    with pytest.raises(RpcError, match="has no tvm_rpc"):
        choose_bundle((ANDROID,), silent.path, server=True)


def test_one_in_use_is_taken_before_the_newest_one(put: Put, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="adt")
    used = put("used", api_level=26)
    newest = put("newest")
    assert choose_bundle((ANDROID,), preferred=used).path == used.path
    assert f"it is in use there, these fit, too:\n  --bundle {newest.path}" in caplog.text
    silent = put("silent", rpc=False)
    assert choose_bundle((ANDROID,), server=True, preferred=silent).path == newest.path
    other = put("other", "linux-aarch64")
    assert choose_bundle((ANDROID,), server=True, preferred=other).path == newest.path


@pytest.mark.parametrize("place", [{"serials": ("efgh", "abcd")}, {"key": "phone"}], ids=str)
def test_tuning_takes_the_bundle_of_the_server_that_a_device_has(
    put: Put, place: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    used = put("used", "linux-aarch64", api_level=26)
    put("newest", "linux-aarch64")
    asked = TuneRequest(tmp_path / "m.onnx", **place)
    assert tune_places.served(asked) is None
    directory = f"/data/local/tmp/adt/deployments/{payload_of(used, None).digest}"
    home = state.server_home("abcd")
    home.directory.mkdir(parents=True)
    state.write(server_record(serial="abcd", key="phone", deployment=directory), home)
    bundle = tune_places.served(asked)
    assert bundle is not None and bundle.path == used.path
    if asked.serials:
        eight = SimpleNamespace(out="8\n")
        facts = SimpleNamespace(emulated=False)
        device = SimpleNamespace(serial="efgh", facts=facts, shell=lambda *_words, **_options: eight)
        monkeypatch.setattr(tune_places, "_first", lambda _serials: device)
        monkeypatch.setattr(tune_places, "_check_devices", lambda *_about: None)
        platform = SimpleNamespace(name="linux-aarch64")
        job: Any = SimpleNamespace(settings=asked.settings, platform=platform, bundle=None)
        target: Any = SimpleNamespace(device="cpu")
        with tune_places.open_rack(asked, job, target) as rack:
            assert isinstance(rack.source, SerialSource) and rack.source.bundle.path == used.path


def test_the_choice_is_said_once_with_the_others_that_fit(put: Put, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="adt")
    old = put("old", api_level=26)
    put("older-twin", api_level=28)
    put("new", api_level=28)
    for _device in range(2):
        choose_bundle((ANDROID,))
    (text,) = caplog.messages
    assert "it is the newest that fits, these fit, too:" in text
    assert text.startswith("bundle new: OpenCL, ") and "API level 28, NDK 27.2.12479018" in text
    assert f"--bundle {old.path}  " in text and "API level 26" in text
    assert "older-twin" not in text, "it differs in nothing but its age"


def test_what_does_not_fit_is_said_of_the_newest(put: Put, tmp_path: Path) -> None:
    model = package(tmp_path / "pkg", device="opencl")
    with pytest.raises(MismatchError, match=f"no bundle for {ANDROID}") as absent:
        choose_bundle(model)
    assert f"adt build-target --for {ANDROID}" in absent.value.remedy
    put("unaligned", alignment=16)
    put("cpu", opencl=False)
    with pytest.raises(MismatchError, match="has no OpenCL runtime") as refused:
        choose_bundle(model)
    assert "--opencl" in refused.value.remedy


def test_a_damaged_one_is_said(put: Put, tmp_path: Path) -> None:
    damaged = put("damaged")
    (damaged.path / "lib/libtvm_ffi.so").write_text("cut")
    with pytest.raises(PackageError, match=r"libtvm_ffi\.so"):
        choose_bundle(package(tmp_path / "pkg"))


# ---- the verb ---------------------------------------------------------------------------------


def test_a_bundle_with_an_option_of_an_older_adt_is_refused_and_passed_over(put: Put) -> None:
    bundle = put("with-nnapi")
    document = json.loads((bundle.path / "bundle.json").read_text())
    document["options"]["nnapi"] = True
    (bundle.path / "bundle.json").write_text(json.dumps(document))
    with pytest.raises(PackageError) as caught:
        load_bundle(bundle.path)
    assert "nnapi" in caught.value.details and "adt build-target --for" in caught.value.remedy
    assert bundle_cache.cached_bundles() == ()


NDK = {"ANDROID_NDK_HOME": "/ndk"}
BUILT, USUAL = "the bundle that was built here", "as most phones are"


@pytest.mark.parametrize(
    ("built", "environ", "flags", "platform", "reason"),
    [
        ((), NDK, {}, ANDROID, USUAL),
        ((LINUX,), NDK, {}, LINUX, BUILT),
        (("host",), {}, {}, "host", BUILT),
        (("host", LINUX), {}, {}, LINUX, BUILT),
        ((ANDROID, LINUX), {}, {}, LINUX, BUILT),
        ((ANDROID, LINUX), NDK, {}, ANDROID, USUAL),
        ((LINUX,), {}, {"build.ndk": "/ndk"}, ANDROID, USUAL),
        ((LINUX,), {"ADT_BUILD_PLATFORM": "linux-armhf"}, {}, "linux-armhf", ""),
        ((LINUX,), {}, {"build.platform": "host"}, "host", ""),
    ],
)
def test_without_a_device_a_bundle_or_an_ndk_chooses_the_platform(
    put: Put,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    built: tuple[str, ...],
    environ: dict[str, str],
    flags: dict[str, object],
    platform: str,
    reason: str,
) -> None:
    caplog.set_level(logging.INFO, logger="adt.platform")
    for name in built:
        put(name, name)
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    assert default_platform(load_settings(flags)) == platform
    assert caplog.messages == ([f"for {platform} ({reason})"] if reason else [])
    assert not server_listens(), "looking for devices starts no adb server"


def test_a_device_that_is_not_ready_chooses_no_platform(
    put: Put, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(LINUX, LINUX)
    with fake_server(
        monkeypatch, Peer.drain, replying(b"OKAY" + text("ffff  unauthorized transport_id:7\n"))
    ):
        assert default_platform(load_settings()) == LINUX
    assert caplog.messages == ["passing over ffff: unauthorized"]


@pytest.mark.parametrize(
    ("built", "phrase"),
    [((), "no bundle was"), ((LINUX, "linux-armhf"), f"bundles for {LINUX} and linux-armhf were")],
)
def test_where_nothing_chooses_the_platform_the_ways_with_and_without_an_ndk_are_said(
    put: Put, built: tuple[str, ...], phrase: str
) -> None:
    for name in built:
        put(name, name)
    with pytest.raises(
        ConfigError, match=f"no usable device is connected, {phrase} built here and there is no NDK"
    ) as caught:
        adt.build_target()
    for words in (f"--for {LINUX} ", "--for host ", f"--for {ANDROID}, after `adt build-target --ndk DIR`"):
        assert words in caught.value.remedy


def adt_bundles(*words: str) -> Any:
    return CliRunner().invoke(app, ["bundles", *words])


def test_bundles_are_listed_newest_first(put: Put) -> None:
    assert "adt build-target" in adt_bundles().stdout
    put("old", api_level=26)
    put("new", "linux-aarch64")
    shown = adt_bundles()
    assert shown.exit_code == 0 and re.findall(r"^(?:old|new)", shown.stdout, re.MULTILINE) == ["new", "old"]
    assert "API level 26" in shown.stdout
    rows = json.loads(adt_bundles("--json").stdout)["bundles"]
    assert [row["platform"] for row in rows] == ["linux-aarch64", ANDROID]
    assert rows[1]["built"] == "1970-01-01T00:00:01Z" and rows[1]["size"] > 0
    assert rows[1]["options"]["opencl"] is True


def test_bundles_are_removed_with_what_they_were_built_in(put: Put, tmp_path: Path) -> None:
    for name in ("twin", "kept", "newer-twin"):
        put(name, api_level=26 if name == "kept" else 28)
    build = tmp_path / "cache/build/kept"
    build.mkdir(parents=True)
    refused = adt_bundles("--remove", "kept", "--remove", "keptt")
    assert refused.exit_code == 11 and "'keptt'. Did you mean 'kept'?" in refused.stderr
    assert len(bundles()) == 3 and build.exists()
    done = adt_bundles("--remove-superseded", "--json")
    assert [Path(path).name for path in json.loads(done.stdout)["removed"]] == ["twin"]
    assert adt_bundles("--remove", "kept").exit_code == 0
    assert [bundle.path.name for bundle in bundles()] == ["newer-twin"] and not build.exists()
