"""Userlands of a virtual device: the default ones, with OpenCL, and those that a user brings.

There is no bionic here. Where an Android image is asked for, a tree of its shape is made of Debian's
programs: the shape is what is tested, and that adt takes the device for what the tree says.
"""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adt.device.survey import parse
from adt.errors import EmulatorError
from adt.virtual import emulator, packages, prerequisites, rootfs, state, userland
from adt.virtual.abis import ARM64, X86_64, Abi
from support.devices.fixtures import NATIVE
from support.devices.virtual import TMP, Phone, adb, connect, phone, places, sha256

needs_x86_64 = pytest.mark.skipif(NATIVE is not X86_64, reason="x86-64 is not emulated")

__all__ = ["adb", "connect", "phone", "places"]

OPENCL_PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>

typedef struct opaque *handle;

int main(void) {
  void *library = dlopen("libOpenCL.so", RTLD_NOW);  /* the name that TVM's runtime looks for first */
  if (!library) return puts(dlerror()), 1;
  int (*platforms)(unsigned, handle *, unsigned *) = dlsym(library, "clGetPlatformIDs");
  int (*about)(handle, unsigned, unsigned long, void *, unsigned long *) = dlsym(library, "clGetPlatformInfo");
  int (*devices)(handle, unsigned long, unsigned, handle *, unsigned *) = dlsym(library, "clGetDeviceIDs");
  handle (*context_of)(void *, unsigned, handle *, void *, void *, int *) = dlsym(library, "clCreateContext");
  handle (*program_of)(handle, unsigned, const char **, void *, int *) =
      dlsym(library, "clCreateProgramWithSource");
  int (*build)(handle, unsigned, handle *, const char *, void *, void *) = dlsym(library, "clBuildProgram");
  handle (*kernel_of)(handle, const char *, int *) = dlsym(library, "clCreateKernel");
  handle (*queue_of)(handle, handle, unsigned long, int *) = dlsym(library, "clCreateCommandQueue");
  handle (*buffer_of)(handle, unsigned long, unsigned long, void *, int *) = dlsym(library, "clCreateBuffer");
  int (*argument)(handle, unsigned, unsigned long, void *) = dlsym(library, "clSetKernelArg");
  int (*run)(handle, handle, unsigned, void *, unsigned long *, void *, unsigned, void *, void *) =
      dlsym(library, "clEnqueueNDRangeKernel");
  int (*back)(handle, handle, unsigned, unsigned long, unsigned long, void *, unsigned, void *, void *) =
      dlsym(library, "clEnqueueReadBuffer");

  handle platform, device;
  unsigned count;
  if (platforms(1, &platform, &count)) return puts("no platform"), 2;
  char name[200];
  about(platform, 0x0902, sizeof name, name, 0);
  puts(name);
  if (devices(platform, 0xFFFFFFFF, 1, &device, &count)) return puts("no device"), 3;
  int error;
  handle context = context_of(0, 1, &device, 0, 0, &error);
  const char *source = "kernel void add(global float *a) { a[get_global_id(0)] += 1.5f; }";
  handle program = program_of(context, 1, &source, 0, &error);
  if (build(program, 1, &device, "", 0, 0)) return puts("the kernel does not build"), 4;
  handle kernel = kernel_of(program, "add", &error);
  float values[] = {1, 2, 3};
  handle buffer = buffer_of(context, 1 | 32, sizeof values, values, &error);
  argument(kernel, 0, sizeof buffer, &buffer);
  unsigned long size = 3;
  handle queue = queue_of(context, device, 0, &error);
  if (run(queue, kernel, 1, 0, &size, 0, 0, 0, 0)) return puts("the kernel does not run"), 5;
  back(queue, buffer, 1, 0, sizeof values, values, 0, 0, 0);
  printf("%g %g %g\n", values[0], values[1], values[2]);
  return 0;
}
"""


def test_second_start_needs_no_network(monkeypatch: pytest.MonkeyPatch, phone: Phone) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("apt was asked")

    monkeypatch.setattr(packages, "PrivateApt", refuse)
    emulator.start("offline-host")
    emulator.stop("offline-host")


def test_manifest_names_every_package(phone: Phone) -> None:
    manifest = json.loads((phone.info.root.parent / userland.MANIFEST).read_text())
    names = {package["name"]: package for package in manifest["packages"]}
    assert names.keys() >= set(userland.PACKAGES)
    assert all(len(package["sha256"]) == 64 and package["version"] for package in names.values())


def test_damaged_userland_is_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, phone: Phone, caplog: pytest.LogCaptureFixture
) -> None:
    good = phone.info.root.parent
    builds: list[Path] = []

    def make(into: Path, *_: object, **__: object) -> None:
        builds.append(into)
        shutil.copytree(good / "root", into / "root", symlinks=True)

    monkeypatch.setattr(userland, "make", make)
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path))
    tree = userland.ensure_userland(None)
    assert userland.ensure_userland(None) == tree and len(builds) == 1
    (tree / "system/bin/sh").write_bytes(b"damaged")
    userland.ensure_userland(None)
    assert len(builds) == 2 and "damaged; making it again" in caplog.text
    assert sha256(tree / "system/bin/sh") == sha256(good / "root/system/bin/sh")


# userlands that the user brings ----------------------------------------------------------------


def test_own_userland(connect: Callable[..., Phone], phone: Phone, tmp_path: Path) -> None:
    """Start a tree with no /dev, /proc, /data or /tmp in it, as Android images unpack."""
    tree = tmp_path / "tree"
    for part in ("system", "usr"):
        shutil.copytree(phone.info.root / part, tree / part, symlinks=True)
    (tree / "lib").symlink_to("usr/lib")
    (tree / "system/build.prop").write_text("ro.own.tree=yes\n")
    own = connect("own", rootfs=tree)
    assert (
        own.shell("uname -m; getprop ro.own.tree; touch /data/x && ls /data/x") == "aarch64\nyes\n/data/x\n"
    )
    assert own.info.root == tree
    assert sorted(path.name for path in tree.iterdir()) == ["lib", "system", "usr"], (
        "the tree stays as it was"
    )


def make_android_shape(debian: Path, tree: Path) -> None:
    """Create a system tree as Android's: a loader /system/bin/linker64, libraries in /system/lib64.

    The loader is glibc's under bionic's name; toybox has its PT_INTERP rewritten to that.
    """
    (tree / "bin").mkdir(parents=True)
    (tree / "lib64").mkdir()
    loader, ours = b"/lib/ld-linux-aarch64.so.1\0", b"/system/bin/linker64\0"
    toybox = (debian / "system/bin/toybox").read_bytes()
    assert toybox.count(loader) == 1
    (tree / "bin/toybox").write_bytes(toybox.replace(loader, ours.ljust(len(loader), b"\0")))
    (tree / "bin/toybox").chmod(0o755)
    for entry in (debian / "system/bin").iterdir():
        if entry.is_symlink() and str(entry.readlink()) == "toybox":
            (tree / "bin" / entry.name).symlink_to("toybox")
    shutil.copy(debian / "system/bin/sh", tree / "bin/sh")
    (tree / "apex/com.android.runtime/bin").mkdir(parents=True)
    shutil.copy(debian / "usr/lib/ld-linux-aarch64.so.1", tree / "apex/com.android.runtime/bin/linker64")
    (tree / "bin/linker64").symlink_to("/apex/com.android.runtime/bin/linker64")
    for library in ("libc.so.6", "libcrypt.so.1", "libm.so.6"):
        shutil.copy(debian / "usr/lib/aarch64-linux-gnu" / library, tree / "lib64")
    (tree / "build.prop").write_text(
        "ro.build.version.sdk=30\nro.product.model=Test Phone\nro.product.cpu.abilist=arm64-v8a,armeabi-v7a\n"
    )


@pytest.mark.parametrize("rooted", [True, False], ids=["root", "system"])
def test_tree_of_androids_shape(
    connect: Callable[..., Phone], phone: Phone, tmp_path: Path, rooted: bool
) -> None:
    system = tmp_path / "image/system"
    make_android_shape(phone.info.root, system)
    before = sorted((path, path.lstat().st_mtime_ns) for path in tmp_path.rglob("*"))
    device = connect(f"android-{rooted}".lower(), rootfs=system.parent if rooted else system)
    run = "export LD_LIBRARY_PATH=/system/lib64; "  # bionic's loader looks there by itself
    assert device.shell(run + "uname -m; ls -d /system") == "aarch64\n/system\n"
    assert "/apex/com.android.runtime/bin/linker64" in device.shell(run + "cat /proc/self/maps")
    facts = parse(device.shell("echo ==machine==; echo aarch64; echo ==properties==; getprop")).facts
    assert facts.platforms == ("android-arm64-v8a",) and facts.virtual
    assert facts.api_level == 30 and facts.abis == ("arm64-v8a",)
    assert facts.properties["ro.product.model"] == "Test Phone"
    assert "none of Android's services" in device.info.log.read_text()
    assert device("shell", "echo x > /system/x", rc=1).stderr
    (tmp_path / "file").write_bytes(b"pushed")
    device("push", tmp_path / "file", f"{TMP}/file")
    assert device.shell(run + f"cat {TMP}/file") == "pushed"
    (tmp_path / "file").unlink()
    assert before == sorted((path, path.lstat().st_mtime_ns) for path in tmp_path.rglob("*"))


def test_userland_that_cannot_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmulatorError, match="neither system/bin/sh nor bin/sh"):
        emulator.start("empty", rootfs=tmp_path)
    assert not state.home("empty").directory.exists() or not state.home("empty").record.exists()


@pytest.fixture
def narrow_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("narrow_umask")
def test_own_userland_is_readable_under_any_umask(tmp_path: Path, phone: Phone) -> None:
    """Read the userland under any umask: where root starts a device, its programs run as nobody of this
    machine."""
    debian, unpacked = phone.info.root, tmp_path / "unpacked"
    for part in ("system/bin", "usr/lib"):
        shutil.copytree(debian / part, unpacked / part.replace("system", "usr"), symlinks=True)
    (unpacked / "usr/bin/mksh").symlink_to("sh")
    for path in (unpacked / "usr/bin").iterdir():
        if not path.is_symlink():
            path.chmod(0o700)  # as shutil.copy keeps it
    userland.arrange(unpacked, tmp_path / "tree", ARM64, prerequisites.require().emulator, opencl=False)
    rootfs.check_readable(tmp_path / "tree")
    for path in (tmp_path / "tree", *(tmp_path / "tree").rglob("*")):
        mode = path.lstat().st_mode
        assert mode & 0o004 and (path.is_file() or mode & 0o001), path


def test_userland_that_others_cannot_read_is_refused_to_root(
    connect: Callable[..., Phone], phone: Phone, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Start it for other users, whose programs run as themselves: for them it is no fault."""
    tree = tmp_path / "tree"
    shutil.copytree(phone.info.root, tree, symlinks=True)
    (library,) = tree.rglob("libc.so.6")
    for private in (tree, tree / "system", tree / "system/bin/sh", library, library.parent):
        mode = private.stat().st_mode
        private.chmod(mode & 0o700)
        if os.geteuid() == 0 and prerequisites.require().user_namespace:
            with pytest.raises(EmulatorError, match="not for every user to read") as refused:
                emulator.start("private", rootfs=tree)
            command = refused.value.remedy.split("`")[1]
            assert command == f"chmod -R a+rX {tree}"
            subprocess.run(shlex.split(command), check=True)
            rootfs.check_readable(tree)
    (tree / "system/bin/run-as").write_text("")
    for name in ("lost+found", "apex"):
        (tree / name).mkdir(exist_ok=True)
    (tree / "apex/com.android.wifi").mkdir()
    for relative in ("system/bin/run-as", "lost+found", "apex"):
        (tree / relative).chmod(0o700)
    caplog.clear()
    assert connect("private", rootfs=tree).shell("ls /system/bin/sh") == "/system/bin/sh\n"
    if os.geteuid() == 0 and prerequisites.require().user_namespace:
        assert f"{tree}/apex is not for every user to read (nor are 2 others)" in caplog.text
        assert f"`chmod -R a+rX {tree}`" in caplog.text


def test_userland_whose_shell_does_not_start_is_refused(phone: Phone, tmp_path: Path) -> None:
    """Remove a library, which shows when a program starts."""
    shutil.copytree(phone.info.root, tmp_path / "tree", symlinks=True)
    (library,) = (tmp_path / "tree").rglob("libcrypt.so.1")
    library.unlink()
    programs = tmp_path / "tree/system/bin"
    shutil.copy(programs / "toybox", programs / "sh")
    with pytest.raises(
        EmulatorError, match="its shell, /system/bin/sh, does not start: it ends with 127"
    ) as refused:
        emulator.start("shell-less", rootfs=tmp_path / "tree")
    assert "libcrypt.so.1: cannot open shared object file" in refused.value.details
    assert "shell-less" not in {info.name for info in emulator.listing()}


# other processors, OpenCL ---------------------------------------------------------------------


@needs_x86_64
def test_without_emulation(connect: Callable[..., Phone]) -> None:
    device = connect("fast", abi="x86_64")
    assert (device.info.abi, device.shell("uname -m")) == ("x86_64", "x86_64\n")
    facts = parse(device.shell("echo ==machine==; uname -m; echo ==properties==; getprop")).facts
    assert facts.platforms == ("host",) and facts.virtual
    assert "not Android" in device.shell("getprop ro.product.model")
    assert "no speed" not in device.info.log.read_text()
    program = shutil.which("gcc")
    assert program is not None
    source = places_of(device) / "hello.c"
    source.write_text('#include <stdio.h>\nint main(void) { puts("hello"); return 7; }\n')
    subprocess.run([program, "-o", source.with_suffix(""), source], check=True)
    device("push", source.with_suffix(""), f"{TMP}/hello")
    assert device("shell", f"{TMP}/hello", rc=7).stdout == "hello\n"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "abi", [pytest.param(X86_64, marks=needs_x86_64, id="x86_64"), pytest.param(ARM64, id="arm64")]
)
def test_opencl(connect: Callable[..., Phone], abi: Abi) -> None:
    """Compile and run a kernel by PoCL on the device, found by the name that TVM's wrapper opens."""
    device = connect(f"opencl-{abi.debian}", abi=abi.name, opencl=True)
    source = places_of(device) / "opencl.c"
    source.write_text(OPENCL_PROGRAM)
    compiler = "gcc" if abi.native else "aarch64-linux-gnu-gcc"
    subprocess.run([compiler, "-o", source.with_suffix(""), source, "-ldl"], check=True)
    device("push", source.with_suffix(""), f"{TMP}/opencl")
    output = device("shell", f"{TMP}/opencl", timeout=300).stdout
    assert output == "Portable Computing Language\n2.5 3.5 4.5\n"


def places_of(device: Phone) -> Path:
    directory = device.adb.home / device.info.name
    directory.mkdir(exist_ok=True)
    return directory
