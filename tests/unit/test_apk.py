"""APKs: the archive, the manifest, what goes in, the tools and keys that are chosen, and what a device refuses."""

import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from adt.bundle.bundle import ACTIVITY
from adt.bundle.platforms import BIG_PAGE
from adt.checkup.check import Status
from adt.checkup.host import check_tools
from adt.errors import BuildError, ConfigError, InputError, MismatchError, SdkError
from adt.errors import ToolNotFound as NotFound
from adt.host import ndk as android_sdk
from adt.host.ndk import find_apk_tools
from adt.host.process import Finished
from adt.integrate.apk import (
    ApkEntry,
    Keystore,
    _explain,
    apk_entries,
    application_id,
    manifest_text,
    min_sdk,
    misplaced,
    read_apk,
    users_keystore,
    write_archive,
)
from adt.integrate.contents import BENCH_PLAN, OPENCL_LIBRARIES, BenchPlan, planned_models
from adt.integrate.model_api import Project
from adt.integrate.names import check_package
from adt.integrate.project import project, server_project
from support.standins.archives import zip_bytes
from support.standins.artefacts import (
    at_levels,
    entry,
    make_app_bundle,
    make_project,
    make_typed_package,
    tensor,
)

FAILED = 'Failed to load signer "signer #1"'
ANDROID = "{http://schemas.android.com/apk/res/android}"


@pytest.fixture
def made_up(tmp_path: Path) -> Callable[..., Project]:
    def make(
        platforms: tuple[str, ...] = ("android-arm64-v8a",),
        shape: tuple[int | str, ...] = (1, 4),
        names: tuple[str, ...] = ("toy",),
        entries: tuple[str, ...] = ("main",),
    ) -> Project:
        rows = [entry([tensor("x", shape)], [tensor("y", (1,))], name) for name in entries]
        return make_project(tmp_path, dict.fromkeys(names, rows), platforms)

    return make


def places(path: Path) -> dict[str, int]:
    """Return the offset of each file's contents."""
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        offsets = {}
        for member in archive.infolist():
            file.seek(member.header_offset + 26)
            lengths = file.read(4)
            offsets[member.filename] = (
                member.header_offset
                + 30
                + int.from_bytes(lengths[:2], "little")
                + int.from_bytes(lengths[2:], "little")
            )
        return offsets


def test_each_file_begins_where_it_can_be_mapped(tmp_path: Path) -> None:
    # every remainder that the place before a library can have, modulo 4, and libraries one after another
    entries = [ApkEntry(f"assets/{n}", b"x" * n) for n in range(9)]
    entries += [ApkEntry(f"lib/arm64-v8a/lib{n}.so", b"so" * n, BIG_PAGE) for n in (0, 1, 8191, 8192, 8193)]
    entries += [ApkEntry(f"assets/grüße-{n}", b"x") for n in range(3)]
    path = tmp_path / "a.apk"
    write_archive(entries, path)
    at = places(path)
    assert [file.name for file in entries if at[file.name] % file.alignment] == []
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == {
            file.name: file.contents for file in entries
        }
    assert misplaced(path) == ()


def test_the_same_contents_are_the_same_archive(tmp_path: Path) -> None:
    source = tmp_path / "lib.so"
    source.write_bytes(b"code" * 5000)
    entries = [ApkEntry("lib/x86_64/lib.so", source, BIG_PAGE), ApkEntry("assets/a", b"a")]
    for name in ("one.apk", "two.apk"):
        source.touch()
        write_archive(entries, tmp_path / name)
    assert (tmp_path / "one.apk").read_bytes() == (tmp_path / "two.apk").read_bytes()


def test_libraries_that_cannot_be_mapped_are_found(tmp_path: Path) -> None:
    path = tmp_path / "a.apk"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("lib/arm64-v8a/liboff.so", b"x" * 100)
        archive.writestr("lib/arm64-v8a/libpacked.so", b"x" * 100, zipfile.ZIP_DEFLATED)
        archive.writestr("assets/packed", b"x" * 100, zipfile.ZIP_DEFLATED)
    assert misplaced(path) == ("lib/arm64-v8a/liboff.so", "lib/arm64-v8a/libpacked.so")


def test_parameters_that_differ_are_carried_for_each_abi(tmp_path: Path) -> None:
    platforms = ("android-arm64-v8a", "android-x86_64", "android-armeabi-v7a")
    rows = [entry([tensor("x", (1, 4))], [tensor("y", (1,))])]
    packages = [
        make_typed_package(tmp_path / name, "toy", rows, platform=name, params="v7a's" * name.endswith("v7a"))
        for name in platforms
    ]
    bundles = [make_app_bundle(tmp_path / f"b-{name}", name) for name in platforms]
    app = project(packages, bundles, java_package="com.example.vision")
    params = [file.name for file in apk_entries(app, "{}") if file.name.endswith("mod.params")]
    assert params == [f"assets/adt/toy/{abi}/mod.params" for abi in ("arm64-v8a", "armeabi-v7a", "x86_64")]
    assert [planned.shared_params for planned in planned_models(app)] == [False]


def test_an_app_without_models_is_an_rpc_server(made_up: Callable[..., Project], tmp_path: Path) -> None:
    server_app = server_project(made_up().bundles, java_package="com.example.rpc")
    text = manifest_text(server_app)
    for permission in ("android.permission.INTERNET", 'android:permission="android.permission.DUMP"'):
        assert permission in text and permission not in manifest_text(made_up())
    assert "LAUNCHER" not in text and "LAUNCHER" in manifest_text(made_up())
    plan = BenchPlan(app="com.example.rpc", bundle_digests=server_app.bundle_digests, models=())
    names = [entry.name for entry in apk_entries(server_app, plan.text())]
    assert BENCH_PLAN in names and not [name for name in names if "toy" in name]
    path = tmp_path / "a.apk"
    path.write_bytes(zip_bytes({"AndroidManifest.xml": b"", BENCH_PLAN: plan.text().encode()}))
    assert read_apk(path).serves
    with pytest.raises(ConfigError, match="two bundles"):
        server_project(server_app.bundles * 2, java_package="com.example.rpc")


def test_only_android_with_the_activity_becomes_an_app(made_up: Callable[..., Project]) -> None:
    with pytest.raises(MismatchError, match="Android only") as caught:
        apk_entries(made_up(("linux-aarch64",)), "{}")
    assert "adt build-target --for android-arm64-v8a" in caught.value.remedy
    app = made_up()
    bundle = app.bundles[0]
    older = replace(app, bundles=(replace(bundle, manifest=replace(bundle.manifest, app_files={})),))
    with pytest.raises(MismatchError, match=ACTIVITY) as caught:
        apk_entries(older, "{}")
    assert "adt build-target --for android-arm64-v8a" in caught.value.remedy


def test_one_entry_of_each_model_is_measured(made_up: Callable[..., Project]) -> None:
    (planned,) = planned_models(made_up(entries=("warm", "main")))
    assert (planned.stem, planned.library, planned.entry) == ("toy", "libtoy_model.so", "main")
    app = made_up(entries=("encode", "decode"))
    assert planned_models(app)[0].entry == "encode"
    (abi, digest), *_ = app.bundle_digests.items()
    assert abi == "arm64-v8a" and len(digest) == 64


def test_an_input_without_a_fixed_shape_is_refused(made_up: Callable[..., Project]) -> None:
    with pytest.raises(ConfigError, match=r"'x' of toy has no fixed shape \(\[n, 4\]\)") as caught:
        planned_models(made_up(shape=("n", 4)))
    assert "--shape x:" in caught.value.remedy


def test_without_opencl_no_vendor_library_is_named(made_up: Callable[..., Project]) -> None:
    app = made_up()
    facts = app.bundles[0].manifest
    plain = replace(facts, options=replace(facts.options, opencl=False))
    text = manifest_text(replace(app, bundles=(replace(app.bundles[0], manifest=plain),)))
    assert "uses-native-library" not in text


def test_the_app_needs_the_highest_level_of_its_bundles(made_up: Callable[..., Project]) -> None:
    app = made_up(("android-arm64-v8a", "android-x86_64"))
    assert min_sdk(at_levels(app, (21, 29))) == 29
    assert min_sdk(at_levels(app, (21, 21))) == 23  # older ones do not map libraries from an APK


@pytest.mark.parametrize("name", ["my model-v1.0 (fp16)", "class", "日本", '"; rm', "app", "a.b", "9", "fun"])
def test_every_name_gives_an_application_id(name: str) -> None:
    identifier = application_id(name)
    check_package(identifier)
    assert identifier.startswith("com.example.") and identifier.endswith("_bench")


def make_sdk(root: Path, build_tools: tuple[str, ...], platforms: tuple[str, ...]) -> Path:
    for version in build_tools:
        (root / "build-tools" / version).mkdir(parents=True)
        for tool in ("aapt2", "apksigner"):
            (root / "build-tools" / version / tool).touch()
    for name in platforms:
        (root / "platforms" / name).mkdir(parents=True)
        (root / "platforms" / name / "android.jar").touch()
    return root


def test_the_newest_parts_of_an_sdk_are_taken(tmp_path: Path) -> None:
    sdk = make_sdk(tmp_path, ("9.0.0", "35.0.0", "35.0.0-rc1", "34.0.9"), ("android-9", "android-35"))
    (sdk / "platforms/android-36").mkdir()  # half installed
    tools = find_apk_tools(str(sdk), environ={})
    assert tools.aapt2 == sdk / "build-tools/35.0.0/aapt2"
    assert tools.framework == sdk / "platforms/android-35/android.jar"
    assert "--sdk" in tools.origin and "35.0.0" in tools.origin
    assert find_apk_tools(environ={"ANDROID_HOME": str(sdk)}).aapt2 == tools.aapt2


@pytest.mark.parametrize(
    ("build_tools", "platforms", "lacks"),
    [((), ("android-35",), "build-tools"), (("35.0.0",), (), "platform")],
)
def test_an_incomplete_sdk_is_named_or_passed_over(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    build_tools: tuple[str, ...],
    platforms: tuple[str, ...],
    lacks: str,
) -> None:
    sdk = make_sdk(tmp_path / "sdk", build_tools, platforms)
    sdk.mkdir(exist_ok=True)
    with pytest.raises(SdkError, match=f"no {lacks}") as caught:
        find_apk_tools(str(sdk), environ={})
    assert "sdkmanager" in caught.value.remedy
    whole = make_sdk(tmp_path / "whole", ("35.0.0",), ("android-35",))
    both = {"ANDROID_HOME": str(sdk), "ANDROID_SDK_ROOT": str(whole)}
    assert "ANDROID_SDK_ROOT" in find_apk_tools(environ=both).origin
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(android_sdk, "DEBIAN_FRAMEWORK", tmp_path / "absent.apk")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(NotFound, match="no aapt2, apksigner") as absent:
        find_apk_tools(environ={"ANDROID_HOME": str(sdk)})
    assert "apt-get install" in absent.value.remedy and "--sdk" in absent.value.remedy
    check = check_tools({}, "/usr/bin/keytool")
    assert check.status is Status.WARNING and "apt-get install" in check.remedy and check.fix is None


def test_the_doctor_says_whether_apks_can_be_made(tmp_path: Path) -> None:
    environ = {"ANDROID_HOME": str(make_sdk(tmp_path, ("35.0.0",), ("android-35",)))}
    assert check_tools(environ, "/usr/bin/keytool").status is Status.OK
    without = check_tools(environ, None)
    assert without.status is Status.WARNING and "default-jre-headless" in without.remedy


def test_a_keystore_keeps_its_password_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "mine.jks"
    with pytest.raises(ConfigError, match="no keystore") as caught:
        users_keystore(path, "", password="p", key_password="")
    assert "keytool -genkeypair" in caught.value.remedy
    path.touch()
    with pytest.raises(ConfigError, match="not known") as caught:
        users_keystore(path, "", password="", key_password="")
    assert "ADT_KEYSTORE_PASSWORD" in caught.value.remedy
    keystore = users_keystore(path, "mine", password="secret-1", key_password="")
    assert "secret" not in repr(keystore) and set(keystore.environment.values()) == {"secret-1"}
    assert users_keystore(path, "", password="a", key_password="b").environment["ADT_KEY_PASSWORD"] == "b"


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            f"{FAILED}\njava.io.IOException: keystore password was incorrect\n" + "\tat java\n" * 40,
            "the password of k is wrong",
        ),
        (
            f"{FAILED}\njava.io.IOException: Keystore was tampered with, or password was incorrect\n"
            "\tat java\nCaused by: java.security.UnrecoverableKeyException: Password verification failed\n",
            "the password of k is wrong",
        ),
        (
            f'{FAILED}\njava.io.IOException: Failed to obtain key with alias "a" from k. Wrong password?\n'
            "\tat java\nCaused by: java.security.UnrecoverableKeyException: Cannot recover key\n",
            "the password of the key in k is wrong",
        ),
        (
            f"{FAILED}: k.p12 contains multiple key entries. --ks-key-alias option must be used",
            "several keys",
        ),
        (f'{FAILED}: k.p12 entry "three" does not contain a key', "no key 'mine'"),
        (f"{FAILED}: certs.p12 does not contain key entries", "no key"),
        (f"{FAILED}\njava.io.EOFException\n\tat java.base/sun.security", "no keystore that Java can read"),
        ("java: command not found", "cannot sign"),
    ],
)
def test_what_apksigner_refuses_is_explained(output: str, reason: str) -> None:
    done = Finished(("apksigner",), 1, "", output)
    error = _explain(done, Keystore(Path("k"), "mine", "p"))
    assert reason in error.what and error.remedy
    assert isinstance(error, BuildError) == (output in error.details)
    assert isinstance(error, BuildError) or not error.details, "Java's stack is no explanation"


def test_an_apk_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.apk"
    plan = json.dumps({"app": "com.a.b", "models": [{"stem": "toy"}, {"stem": "face"}]}).encode()
    files = {"AndroidManifest.xml": b"", "lib/x86_64/liba.so": b"", "lib/x86_64/libb.so": b""}
    path.write_bytes(zip_bytes(files | {BENCH_PLAN: plan}))
    contents = read_apk(path)
    assert (contents.app, contents.stems, contents.abis) == ("com.a.b", ("toy", "face"), ("x86_64",))
    path.write_bytes(zip_bytes(files))
    assert read_apk(path).app == "" and read_apk(path).stems == ()


@pytest.mark.parametrize(
    "contents",
    [
        b"no zip",
        b"",
        zip_bytes({"classes.dex": b""}),
        zip_bytes({"AndroidManifest.xml": b"", BENCH_PLAN: b"[]"}),
        zip_bytes({"AndroidManifest.xml": b"", BENCH_PLAN: b"{"}),
        zip_bytes({"AndroidManifest.xml": b"", BENCH_PLAN: b'{"models": [{}]}'}),
        zip_bytes({"AndroidManifest.xml": b"", BENCH_PLAN: b'{"app": "a.b", "models": 3}'}),
        zip_bytes({"AndroidManifest.xml": b"", BENCH_PLAN: b'{"app": 3, "models": []}'}),
        zip_bytes({"AndroidManifest.xml": b"", BENCH_PLAN: b'{"app": "../../x.y", "models": []}'}),
        zip_bytes({"AndroidManifest.xml": b"", BENCH_PLAN: b'{"app": "a.b", "models": [{"stem": "../x"}]}'}),
    ],
)
def test_what_is_no_apk_is_refused(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "a.apk").write_bytes(contents)
    with pytest.raises(InputError, match="is no APK"):
        read_apk(tmp_path / "a.apk")
    with pytest.raises(InputError, match="there is no APK"):
        read_apk(tmp_path / "b.apk")


def test_an_app_has_its_libraries_models_and_plan(made_up: Callable[..., Project]) -> None:
    app = made_up(("android-arm64-v8a", "android-x86_64"), names=("toy", "class"))
    entries = {file.name: file for file in apk_entries(app, "{}")}
    assert list(entries) == sorted(entries)
    for abi in ("arm64-v8a", "x86_64"):
        for name in ("libadt_activity.so", "libadt_runner.so", "libtvm_runtime.so", "libtoy_model.so"):
            assert entries[f"lib/{abi}/{name}"].alignment == BIG_PAGE
        model_manifest = entries[f"assets/adt/toy/{abi}/mod.json"]
        assert isinstance(model_manifest.contents, Path) and abi in str(model_manifest.contents)
    # The runner uses its pages where they lie.
    assert entries["assets/adt/toy/mod.params"].alignment == BIG_PAGE
    assert entries[BENCH_PLAN].contents == b"{}"
    assert len({model.api.stem for model in app.models}) == 2


def test_the_manifest_lists_what_it_should(made_up: Callable[..., Project]) -> None:
    app = made_up()
    root = ElementTree.fromstring(manifest_text(app))
    assert root.get("package") == "com.example.vision"
    sdk = root.find("uses-sdk")
    assert sdk is not None and sdk.get(f"{ANDROID}minSdkVersion") == "24"
    application = root.find("application")
    assert application is not None
    attributes = {key.removeprefix(ANDROID): value for key, value in application.attrib.items()}
    assert attributes["extractNativeLibs"] == "false" and not {"hasCode", "debuggable"} & attributes.keys()
    libraries = application.findall("uses-native-library")
    assert [library.get(f"{ANDROID}name") for library in libraries] == list(OPENCL_LIBRARIES)
    assert {library.get(f"{ANDROID}required") for library in libraries} == {"false"}
    assert root.findall("uses-permission") == []
    debug = ElementTree.fromstring(manifest_text(app, debuggable=True)).find("application")
    assert debug is not None and debug.get(f"{ANDROID}debuggable") == "true"
