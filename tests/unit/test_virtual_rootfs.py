"""Userlands that the user brings: where their parts lie, whether they can start, what they say about themselves."""

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from adt.errors import EmulatorError
from adt.virtual import properties, rootfs, wire
from adt.virtual.abis import ARM64, X86_64


def program(path: Path, *, machine: int = 183, interpreter: str = "", bits: int = 64) -> Path:
    """Return the smallest ELF file that names its processor and its dynamic linker."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = interpreter.encode() + b"\0"
    count = 1 if interpreter else 0
    if bits == 32:
        head = struct.pack(
            "<16sHHIIIIIHHHHHH", b"\x7fELF\x01\x01\x01", 2, machine, 1, 0, 0, 0, 0, 52, 32, 0, 0, 0, 0
        )
        path.write_bytes(head)
        return path
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, machine, 1, 0, 64, 0, 0, 64, 56, count, 0, 0, 0
    )
    rows = struct.pack("<IIQQQQQQ", 3, 4, 120, 120, 120, len(name), len(name), 1) * count
    path.write_bytes(head + rows + name)
    return path


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Create a root directory in the shape of Android's: bionic's loader in an APEX, links across."""
    program(tmp_path / "system/bin/toybox", interpreter="/system/bin/linker64")
    (tmp_path / "system/bin/sh").symlink_to("toybox")
    (tmp_path / "system/bin/linker64").symlink_to("/apex/com.android.runtime/bin/linker64")
    program(tmp_path / "apex/com.android.runtime/bin/linker64")
    return tmp_path


def test_root_directory_and_system_tree_are_both_taken(image: Path) -> None:
    assert rootfs.check_rootfs(image, None) == (image, ARM64)
    assert rootfs.parts(image).keys() == {"apex", "system"}
    (image / "apex").rename(image / "system/apex")
    assert rootfs.check_rootfs(image, ARM64) == (image, ARM64), "as images before APEX files have it"
    assert rootfs.check_rootfs(image / "system", None) == (image / "system", ARM64)
    shown = rootfs.parts(image / "system")
    assert shown == {"system": image / "system", "apex": image / "system/apex"}
    assert rootfs.is_bionic(image) and rootfs.is_bionic(image / "system")


def test_empty_mount_points_show_what_is_in_system(image: Path) -> None:
    (image / "vendor").mkdir()
    (image / "system/vendor").mkdir()
    (image / "product").symlink_to("/system/product")
    (image / "system/product").mkdir()
    shown = rootfs.parts(image)
    assert shown["vendor"] == image / "system/vendor" and shown["product"] == image / "product"


def test_links_are_followed_inside_the_device(image: Path) -> None:
    shown = rootfs.parts(image)
    (image / "system/up").symlink_to("../system/bin/../bin/toybox")
    (image / "system/bins").symlink_to("/system/bin")
    (image / "system/loop").symlink_to("loop")
    (image / "system/out").symlink_to("/etc/passwd")
    toybox = image / "system/bin/toybox"
    assert rootfs.locate(shown, "/system/up") == toybox
    assert rootfs.locate(shown, "/system/bins/sh") == toybox
    assert rootfs.locate(shown, "/system/bin/linker64") == image / "apex/com.android.runtime/bin/linker64"
    for nowhere in ("/system/loop", "/system/out", "/etc/passwd", "/system/bin/none", "/"):
        assert rootfs.locate(shown, nowhere) is None


def test_what_is_missing_is_named(image: Path, tmp_path: Path) -> None:
    with pytest.raises(EmulatorError, match="neither system/bin/sh nor bin/sh"):
        rootfs.check_rootfs(tmp_path / "system/bin", None)
    with pytest.raises(EmulatorError, match="not a directory"):
        rootfs.check_rootfs(tmp_path / "none", None)
    (image / "apex/com.android.runtime/bin/linker64").unlink()
    with pytest.raises(
        EmulatorError, match=r"/system/bin/linker64 \(a link to /apex/.* is not in it"
    ) as caught:
        rootfs.check_rootfs(image, None)
    assert "com.android.runtime" in caught.value.remedy
    assert "system/bin/bootstrap/linker64, to apex/com.android.runtime/bin/" in caught.value.remedy
    program(image / "system/bin/bootstrap/linker64")
    shutil.copy(image / "system/bin/bootstrap/linker64", image / "apex/com.android.runtime/bin/")
    assert rootfs.check_rootfs(image, None) == (image, ARM64)
    (image / "system/bin/sh").unlink()
    (image / "system/bin/sh").symlink_to("/vendor/bin/sh")
    with pytest.raises(EmulatorError, match=r"/system/bin/sh \(a link to /vendor/bin/sh\) is not in it"):
        rootfs.check_rootfs(image, None)


def test_top_level_names_of_the_device_itself_are_not_shown(image: Path) -> None:
    for name in rootfs.OWN:
        (image / name).mkdir()
    assert rootfs.parts(image).keys() == {"apex", "system"}


@pytest.mark.parametrize(
    "private", [".", "apex", "apex/com.android.runtime/bin/linker64", "system/lib64", "system/lib64/libc.so"]
)
def test_a_library_that_others_cannot_read_is_named(image: Path, private: str) -> None:
    """Report the library where programs run as another user than the tree's owner."""
    program(image / "system/lib64/libc.so")
    subprocess.run(["chmod", "-R", "0755", image], check=True)
    rootfs.check_readable(image)
    (image / private).chmod(0o700)
    with pytest.raises(EmulatorError, match=re.escape(f"{image / private} is not for every user")) as caught:
        rootfs.check_readable(image)
    assert caught.value.remedy == f"Run `chmod -R a+rX {image}`."
    if private != ".":  # a system tree by itself
        (image / "apex").rename(image / "system/apex")
        with pytest.raises(EmulatorError, match="is not for every user"):
            rootfs.check_readable(image / "system")


def test_a_program_that_others_cannot_read_is_logged(image: Path, caplog: pytest.LogCaptureFixture) -> None:
    subprocess.run(["chmod", "-R", "0755", image], check=True)
    program(image / "system/bin/run-as").chmod(0o750)
    rootfs.check_readable(image)
    assert f"{image}/system/bin/run-as is not for every user to read" in caplog.text


def test_another_processor_is_named(tmp_path: Path) -> None:
    shell = program(tmp_path / "system/bin/sh", machine=62)
    assert rootfs.check_rootfs(tmp_path, None) == (tmp_path, X86_64)
    with pytest.raises(EmulatorError, match=r"is for X86_64 \(64 bits\); AARCH64 was looked for") as caught:
        rootfs.check_rootfs(tmp_path, ARM64)
    assert "--abi" in caught.value.remedy
    program(shell, machine=40, bits=32)
    with pytest.raises(EmulatorError, match=r"is for ARM \(32 bits\); AARCH64 or X86_64 was looked for"):
        rootfs.check_rootfs(tmp_path, None)
    shell.write_text("#!/bin/sh")
    with pytest.raises(EmulatorError, match="is not a program"):
        rootfs.check_rootfs(tmp_path, None)


def test_default_userlands_say_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "system/bin").mkdir(parents=True)
    linux = properties.of_device("one", tmp_path, ARM64)
    assert linux["ro.adt.virtual"] == "1" and linux["ro.adt.platform"] == "linux-aarch64"
    assert "not Android" in linux["ro.product.model"] and "not Android" in linux["ro.adt.notice"]
    assert ("no speed" in linux["ro.adt.notice"]) is not ARM64.native
    assert linux["ro.product.cpu.abi"] == "arm64-v8a" and linux["ro.build.version.sdk"].isdigit()
    assert b"not Android" in wire.banner(linux, ())
    fast = properties.of_device("two", tmp_path, X86_64)
    assert (fast["ro.adt.platform"], fast["ro.product.cpu.abilist"]) == ("host", "x86_64")


def test_android_userland_answers_with_its_own_properties(image: Path) -> None:
    (image / "system/build.prop").write_text(
        "# c\nro.build.version.sdk=30\nro.adt.platform=lie\nro.product.system.model=System\n"
        "ro.product.cpu.abilist=arm64-v8a,armeabi-v7a\nro.product.system.brand=Acme\n"
    )
    (image / "vendor").mkdir()
    (image / "vendor/build.prop").write_text("ro.product.vendor.model=Phone 7\n")
    values = properties.of_device("three", image, ARM64)
    assert values["ro.adt.platform"] == "android-arm64-v8a" and values["ro.adt.virtual"] == "1"
    assert (values["ro.build.version.sdk"], values["ro.product.model"]) == ("30", "Phone 7")
    assert values["ro.product.brand"] == "Acme"
    assert values["ro.product.cpu.abilist"] == "arm64-v8a", "only what runs here"
    assert "none of Android's services" in values["ro.adt.notice"]


def test_a_linux_userland_cannot_pose_as_a_phone(tmp_path: Path) -> None:
    (tmp_path / "system").mkdir()
    (tmp_path / "system/build.prop").write_text("ro.product.model=Phone\nro.build.version.sdk=30\nro.x=y\n")
    values = properties.of_device("four", tmp_path, ARM64)
    assert "not Android" in values["ro.product.model"] and values["ro.x"] == "y"
    assert [path.name for path in tmp_path.rglob("*")] == ["system", "build.prop"]
