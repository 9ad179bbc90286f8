"""NDK and CLML SDK: absent, broken, outvoted, whole."""

from pathlib import Path

import pytest

from adt.bundle.platforms import PLATFORMS
from adt.checkup import ndk as module
from adt.checkup.check import Area, Check, Status, answers, make_scope
from adt.checkup.ndk import check_parts, questions
from adt.host.ndk import Ndk, find_ndk
from support.standins.clml import VERSION, make_standin_clml
from support.standins.ndk import fake_ndk


@pytest.fixture(autouse=True)
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def examined(environ: dict[str, str], *, ndk: str = "", areas: tuple[Area, ...] = ()) -> dict[str, Check]:
    scope = make_scope({"build.ndk": ndk or None}, environ, areas=areas)
    return {check.name: check for question in questions(scope) for check in answers(Area.NDK, question)}


def test_no_ndk_is_a_warning_until_it_is_needed() -> None:
    assert examined({})["NDK"].status is Status.WARNING
    assert examined({}, areas=(Area.NDK,))["NDK"].status is Status.FAILED
    assert examined({"ADT_BUILD_PLATFORM": "android-arm64-v8a"})["NDK"].status is Status.FAILED
    assert examined({"ADT_BUILD_PLATFORM": "linux-aarch64"})["NDK"].status is Status.WARNING
    assert "--ndk DIR" in examined({})["NDK"].remedy


def test_a_whole_ndk(tmp_path: Path) -> None:
    checks = examined({"ANDROID_NDK_HOME": str(fake_ndk(tmp_path / "ndk"))})
    assert checks["NDK"].status is checks["API level"].status is Status.OK
    assert "28.0.1" in checks["NDK"].found and "from ANDROID_NDK_HOME" in checks["NDK"].origin
    assert checks["NDK compiler"].found == "clang version 18.0.0"


@pytest.mark.parametrize("broken", ["absent", "no properties", "no compiler", "too old"])
def test_a_named_ndk_must_be_one(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "ndk"
    if broken != "absent":
        fake_ndk(path, "16.0.1" if broken == "too old" else "28.0.1")
    if broken == "no properties":
        (path / "source.properties").unlink()
    if broken == "no compiler":
        (path / "toolchains/llvm/prebuilt/linux-x86_64/bin/clang++").unlink()
    for checks in (examined({"NDK_HOME": str(path)}), examined({}, ndk=str(path))):
        assert checks["NDK"].status is Status.FAILED
        assert str(path) in checks["NDK"].found and checks["NDK"].remedy


def test_a_compiler_that_does_not_run(tmp_path: Path) -> None:
    path = fake_ndk(tmp_path / "ndk")
    compiler = path / "toolchains/llvm/prebuilt/linux-x86_64/bin/clang++"
    compiler.write_text("#!/bin/sh\necho wrong machine >&2; exit 126\n")
    checks = examined({}, ndk=str(path))
    assert checks["NDK"].status is Status.FAILED and "does not say its version" in checks["NDK"].found
    compiler.write_text("no program at all")
    text = examined({}, ndk=str(path))["NDK"].found
    assert "does not run" in text and "Exec format error" in text


def test_a_stand_in_is_called_one(tmp_path: Path) -> None:
    path = fake_ndk(tmp_path / "ndk", description="STAND-IN, not an Android NDK")
    check = examined({}, ndk=str(path))["NDK"]
    assert check.status is Status.WARNING and "STAND-IN" in check.found


def test_an_ndk_newer_than_what_is_known(tmp_path: Path) -> None:
    check = examined({}, ndk=str(fake_ndk(tmp_path / "ndk", "99.0.1")))["NDK"]
    assert check.status is Status.WARNING and "too new" in check.found and check.remedy


def test_variables_that_name_another_ndk_are_told(tmp_path: Path) -> None:
    first, second = fake_ndk(tmp_path / "first"), fake_ndk(tmp_path / "second")
    sdk = tmp_path / "sdk"
    fake_ndk(sdk / "ndk/27.1.1", "27.1.1")
    (sdk / "ndk/21.0.1").mkdir(parents=True)
    checks = examined(
        {
            "ANDROID_NDK_HOME": str(first),
            "ANDROID_NDK_ROOT": str(second),
            "NDK_HOME": "/absent",
            "ANDROID_HOME": str(sdk),
        }
    )
    assert str(first) in checks["NDK"].origin
    assert str(second) in checks["NDK of ANDROID_NDK_ROOT"].found
    assert "not a directory" in checks["NDK of NDK_HOME"].found
    assert checks["NDK of NDK_HOME"].status is Status.WARNING
    assert checks["other NDKs"].status is Status.OK
    assert checks["other NDKs"].found == "27.1.1, 21.0.1 (not usable)"


def test_parts(tmp_path: Path) -> None:
    ndk: Ndk = find_ndk(str(fake_ndk(tmp_path / "ndk")), environ={})

    def parts(api_level: int, platform: str, page: int | None) -> dict[str, Status]:
        checks = check_parts(ndk, api_level, PLATFORMS[platform], "clang", page)
        return {check.name: check.status for check in checks}

    statuses = parts(28, "android-arm64-v8a", 16384)
    assert statuses["API level"] is statuses["16 KB pages"] is Status.OK
    assert statuses["API level for android-x86_64"] is Status.WARNING  # has no compiler; nobody asked for it
    assert parts(28, "android-x86_64", None)["API level for android-x86_64"] is Status.FAILED
    statuses = parts(99, "android-arm64-v8a", 4096)
    assert statuses["API level for android-arm64-v8a"] is Status.FAILED
    assert statuses["16 KB pages"] is Status.WARNING
    assert "16 KB pages" not in parts(28, "host", None)


def test_the_alignment_of_the_ndks_own_library_is_read(tmp_path: Path) -> None:
    ndk = find_ndk(str(fake_ndk(tmp_path / "ndk")), environ={})
    assert module.libcxx_alignment(ndk) is None
    library = ndk.bin.parent / "sysroot/usr/lib/aarch64-linux-android/libc++_shared.so"
    library.parent.mkdir(parents=True)
    library.write_text("not an ELF file")
    checks = examined({}, ndk=str(ndk.path))
    assert any("not a whole ELF file" in check.found for check in checks.values())


HOST = {"ADT_BUILD_PLATFORM": "host"}


def test_a_whole_clml_sdk_and_one_that_is_outvoted(tmp_path: Path) -> None:
    sdk = make_standin_clml(tmp_path / "sdk", compiler="gcc")
    checks = examined({**HOST, "ADRENO_OPENCL": str(sdk), "CLML_SDK": "/absent"})
    assert checks["CLML SDK"].status is Status.OK
    assert f"version {VERSION}, lib64/libOpenCL.so" in checks["CLML SDK"].found
    assert "from ADRENO_OPENCL" in checks["CLML SDK"].origin
    assert checks["CLML SDK choice"].status is Status.WARNING and "/absent" in checks["CLML SDK choice"].found


def test_each_missing_part_of_a_clml_sdk_is_named(tmp_path: Path) -> None:
    sdk = make_standin_clml(tmp_path / "sdk", compiler="gcc")
    (sdk / "CL/cl_qcom_ml_ops.h").unlink()
    (sdk / "lib64/libOpenCL.so").unlink()
    check = examined({**HOST, "CLML_SDK": str(sdk)})["CLML SDK"]
    assert check.status is Status.FAILED and check.remedy
    assert "cl_qcom_ml_ops.h is missing" in check.found and "libOpenCL.so is missing" in check.found
    assert "not a directory" in examined({"CLML_SDK": str(tmp_path / "absent")})["CLML SDK"].found


def test_no_sdk_is_looked_for_unless_one_is_named_or_needed() -> None:
    assert not [name for name in examined({}) if "SDK" in name]
    check = examined({"ADT_BUILD_PLATFORM": "android-arm64-v8a-clml"})["CLML SDK"]
    assert check.status is Status.FAILED and "--clml" in check.remedy


def test_the_source_of_xnnpack_is_looked_at_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path / "cache"))
    assert "XNNPACK source" not in examined({})
    assert "not obtained yet" in examined({"ADT_BUILD_XNNPACK": "true"})["XNNPACK source"].found
    check = examined({"ADT_BUILD_XNNPACK_SOURCE": str(tmp_path)})["XNNPACK source"]
    assert check.status is Status.FAILED and "xnnpack/include/xnnpack.h" in check.found


def test_an_opencl_sdk_that_the_settings_name(tmp_path: Path) -> None:
    sdk = make_standin_clml(tmp_path / "sdk", compiler="gcc")
    (sdk / "CL/cl.h").touch()
    check = examined({**HOST, "ADT_BUILD_OPENCL_SDK": str(sdk)})["OpenCL SDK"]
    assert check.status is Status.OK and "build.opencl_sdk" in check.origin
    assert examined({"ADT_BUILD_OPENCL_SDK": "/absent"})["OpenCL SDK"].status is Status.FAILED
