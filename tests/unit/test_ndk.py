"""NDK discovery: order, provenance, disagreement, and directories that are no NDK."""

import logging
import re
from pathlib import Path

import pytest

from adt.errors import NdkError
from adt.host.ndk import KNOWN, MINIMUM, find_ndk, list_ndks, tool_environment
from support.standins.ndk import fake_ndk


def test_order_and_provenance(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    flag, root, home = (fake_ndk(tmp_path / name) for name in ("flag", "root", "home"))
    sdk = tmp_path / "sdk"
    fake_ndk(sdk / "ndk/9.0.1", "9.0.1")
    newest = fake_ndk(sdk / "ndk/28.0.1", "28.0.1")
    environ = {"ANDROID_NDK_ROOT": str(root), "ANDROID_NDK_HOME": str(home), "ANDROID_HOME": str(sdk)}
    with caplog.at_level(logging.WARNING, "adt"):
        ndk = find_ndk(str(flag), environ=environ)
    assert (ndk.path, ndk.origin) == (flag, "--ndk")
    assert "ANDROID_NDK_HOME names" in caplog.text and "ANDROID_NDK_ROOT names" in caplog.text
    assert find_ndk(environ=environ).origin == "ANDROID_NDK_HOME"
    del environ["ANDROID_NDK_HOME"]
    assert find_ndk(environ=environ).origin == "ANDROID_NDK_ROOT"
    del environ["ANDROID_NDK_ROOT"]
    assert find_ndk(environ=environ | {"ANDROID_NDK": str(root)}).origin == "ANDROID_NDK"
    ndk = find_ndk(environ=environ)
    assert (ndk.path, ndk.origin, ndk.revision, ndk.major) == (
        newest,
        "$ANDROID_HOME/ndk",
        "28.0.1",
        28,
    )


def test_none_names_the_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(NdkError, match="ANDROID_NDK_PATH") as caught:
        find_ndk(environ={})
    assert "--ndk DIR" in caught.value.remedy


def test_no_ndk_at_all(tmp_path: Path) -> None:
    with pytest.raises(NdkError, match="is not a directory"):
        find_ndk(str(tmp_path / "absent"), environ={})
    with pytest.raises(NdkError, match=r"source\.properties is missing"):
        find_ndk(str(tmp_path), environ={})
    inner = fake_ndk(tmp_path / "android-ndk-r27")
    with pytest.raises(NdkError, match="android-ndk-r27 looks like one"):
        find_ndk(str(tmp_path), environ={})
    (inner / "build/cmake/android.toolchain.cmake").unlink()
    with pytest.raises(NdkError, match="is incomplete"):
        find_ndk(str(inner), environ={})


def test_revision_is_required_and_checked(tmp_path: Path) -> None:
    ndk = fake_ndk(tmp_path / "old", "16.1.4479499")
    with pytest.raises(NdkError, match="too old") as caught:
        find_ndk(str(ndk), environ={})
    advice = [int(number) for number in re.findall(r"r(\d+)", caught.value.remedy.partition(";")[0])]
    assert advice and all(_verdict(major) == "known good" for major in advice)
    (ndk / "source.properties").write_text("Pkg.Desc = Android NDK\n")
    with pytest.raises(NdkError, match=r"no Pkg\.Revision"):
        find_ndk(str(ndk), environ={})


def test_api_level_outside_its_range(tmp_path: Path) -> None:
    ndk = find_ndk(str(fake_ndk(tmp_path / "ndk")), environ={})
    assert ndk.compiler("aarch64-linux-android", 35).name == "aarch64-linux-android35-clang++"
    with pytest.raises(NdkError, match="it has 21 to 35"):
        ndk.compiler("aarch64-linux-android", 99)


def test_the_table_covers_every_release_once() -> None:
    for major in range(60):
        assert len([row for row in KNOWN if row.first <= major <= row.last]) == 1
    assert all(row.reason for row in KNOWN)
    assert _verdict(MINIMUM - 1) == "too old"


def _verdict(major: int) -> str:
    return next(row for row in KNOWN if row.first <= major <= row.last).verdict


def test_a_newer_one_is_tried_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    find_ndk(str(fake_ndk(tmp_path / "ndk", "77.0.1")), environ={})
    assert "too new" in caplog.text


def test_api_levels_follow_the_ndks_own_statement(tmp_path: Path) -> None:
    path = fake_ndk(tmp_path / "ndk")
    assert find_ndk(str(path), environ={}).api_levels() == (21, 35)
    (path / "meta").mkdir()
    (path / "meta/platforms.json").write_text('{"min": 21, "max": 34, "aliases": {}}')
    ndk = find_ndk(str(path), environ={})
    assert ndk.api_levels() == (21, 34)
    with pytest.raises(NdkError, match="it has 21 to 34"):
        ndk.compiler("aarch64-linux-android", 35)
    assert ndk.api_levels("riscv64-linux-android") is None


def test_an_ndk_for_another_host(tmp_path: Path) -> None:
    path = fake_ndk(tmp_path / "ndk")
    prebuilt = path / "toolchains/llvm/prebuilt"
    (prebuilt / "linux-x86_64").rename(prebuilt / "darwin-x86_64")
    with pytest.raises(NdkError, match="is for darwin-x86_64: it has no linux-x86_64 tools"):
        find_ndk(str(path), environ={})


def test_the_listing_shows_side_by_side_ones_and_broken_ones(tmp_path: Path) -> None:
    sdk = tmp_path / "sdk"
    fake_ndk(sdk / "ndk/26.1.1", "26.1.1")
    fake_ndk(sdk / "ndk/28.0.1", "28.0.1")
    environ = {"ANDROID_NDK_HOME": str(tmp_path / "absent"), "ANDROID_HOME": str(sdk)}
    rows = list_ndks(environ=environ)
    assert [(row.origin, row.ndk.major if row.ndk else None, row.chosen) for row in rows[:3]] == [
        ("ANDROID_NDK_HOME", None, True),
        ("$ANDROID_HOME/ndk", 28, False),
        ("$ANDROID_HOME/ndk", 26, False),
    ]
    assert "is not a directory" in rows[0].problem


def test_the_environment_for_other_tools(tmp_path: Path) -> None:
    ndk = find_ndk(str(fake_ndk(tmp_path / "ndk")), environ={})
    variables = tool_environment(ndk, "aarch64-linux-android", 21)
    assert (
        Path(variables["CXX"]).is_file() and Path(variables["CXX"]).name == "aarch64-linux-android21-clang++"
    )
    assert variables["CC"] == variables["CXX"].removesuffix("++")
    assert variables["TVM_NDK_CC"] == variables["CXX"], "TVM wants the compiler, not a directory"
