"""Destination that files are judged for: a machine, a system with its libraries, an API level, page sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from adt.bundle.platforms import BIG_PAGE, PAGE, PLATFORMS, Platform
from adt.host.elf import PF_W, ElfFacts
from adt.host.ndk import Ndk

ANDROID, GLIBC, KERNEL = "android", "glibc", "kernel"
"""Systems by their dynamic linker; ``kernel``: none loads it, the file is a static program."""
STAND_IN = "STAND-IN"
"""An NDK whose description says this builds for glibc; see tests/support/standins/ndk.py."""


@dataclass(frozen=True)
class Destination:
    """Machine and system that are to load a file. What is empty or None is taken from each file."""

    machine: str = ""
    system: str = ""
    api_level: int | None = None
    default_api_level: int = 28
    """For a file that does not say which level it was built for."""
    ndk: Ndk | None = None
    """Has stubs of the public libraries, and libc++_shared.so; None: the system's symbols stay unchecked."""
    directories: tuple[Path, ...] = ()
    """Directories of the system's own libraries, when the destination is this machine."""

    @property
    def stand_in(self) -> bool:
        """True if the system's libraries are glibc's because the NDK is a stand-in for one."""
        return self.ndk is not None and STAND_IN in self.ndk.description

    def level_for(self, facts: ElfFacts) -> int:
        """Return the API level that *facts* are judged at."""
        if self.api_level is not None:
            return self.api_level
        return facts.android.api_level if facts.android else self.default_api_level


def destination(platform: Platform, *, api_level: int | None = None, ndk: Ndk | None = None) -> Destination:
    """Describe *platform* as a destination."""
    system = ANDROID if platform.android else GLIBC
    return Destination(
        platform.machine,
        system,
        api_level if platform.android else None,
        ndk=ndk,
        directories=own_directories() if platform.name == "host" else (),
    )


def own_directories() -> tuple[Path, ...]:
    """Return the directories in which this machine's dynamic linker looks for libraries."""
    triple = PLATFORMS["host"].triple
    places = (f"/lib/{triple}", f"/usr/lib/{triple}", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
    return tuple(map(Path, ("/usr/local/lib", *places)))


def system_of(facts: ElfFacts) -> str:
    """Tell the system that a file was built for, by what it asks for; empty when nothing tells."""
    if facts.program and not facts.interpreter:
        return KERNEL
    if facts.android or facts.interpreter.startswith("/system/bin/linker"):
        return ANDROID
    if "ld-linux" in facts.interpreter or {"libc.so.6", "libstdc++.so.6", "libm.so.6"} & set(facts.needed):
        return GLIBC
    if "libc.so" in facts.needed or any(name.startswith("LIBC") for name in versions_asked(facts)):
        return ANDROID
    return ""


def versions_asked(facts: ElfFacts) -> Iterable[str]:
    """Return the symbol versions that a file asks others for."""
    return {symbol.version for symbol in facts.imports if symbol.version}


PAGE_SIZES = (PAGE, BIG_PAGE, 65536)
LARGE_PAGE_MACHINES = {ANDROID: ("AARCH64", "X86_64"), GLIBC: ("AARCH64",), KERNEL: ("AARCH64",)}
"""System to the machines of which there are kernels with pages of 16 KB."""


def may_have_large_pages(machine: str, system: str) -> bool:
    """True if *machine* with *system* is of a kind that can have pages of 16 KB."""
    return machine in LARGE_PAGE_MACHINES.get(system, ())


def obstacle(facts: ElfFacts, page: int, *, bionic: bool) -> str:
    """Return why the segments cannot be mapped with pages of *page* bytes; empty if they can.

    The linker of *bionic* rounds RELRO's end up: data in its last page is read-only; glibc's rounds down.
    """
    last_page = -1
    for load in facts.loads:
        if load.align & (load.align - 1):
            return f"a LOAD segment has p_align {load.align}, which is no power of two"
        if max(load.align, 1) < page:
            return f"a LOAD segment has p_align {load.align}, less than a page of {page}"
        if (load.vaddr - load.offset) % page:
            return f"a LOAD segment's address and its place in the file differ by no multiple of {page}"
        if load.vaddr // page <= last_page and load.memsz:
            return f"two LOAD segments share a page of {page}"
        last_page = (load.end - 1) // page
    if bionic and facts.relro and (end := facts.relro.end) % page:
        for load in facts.loads:
            if load.flags & PF_W and load.vaddr <= end < load.end:
                return f"RELRO ends at {end:#x} inside a page of {page} that holds writable data too"
    return ""


@dataclass(frozen=True)
class PublicLibrary:
    """One library that Android promises to every app and program."""

    since: int
    """First API level that has it."""
    symbols: str
    """Regular expression that its symbols begin with. Those of libc, libm and libdl carry a version."""


VERSIONED = "(?!)"
"""Matches nothing: the NDK's stub gives each symbol a version, so none without one comes from there."""
ANY_C_NAME = "(?!_Z)"
PUBLIC = {
    "libc.so": PublicLibrary(1, VERSIONED),
    "libm.so": PublicLibrary(1, VERSIONED),
    "libdl.so": PublicLibrary(1, VERSIONED),
    "libstdc++.so": PublicLibrary(1, r"_Z(n[wa]|d[la]|St7nothrow)|__cxa_"),
    "liblog.so": PublicLibrary(3, "__android_log_"),
    "libz.so": PublicLibrary(3, ANY_C_NAME),
    "libGLESv1_CM.so": PublicLibrary(4, "gl"),
    "libGLESv2.so": PublicLibrary(5, "gl"),
    "libjnigraphics.so": PublicLibrary(8, "AndroidBitmap|AImageDecoder"),
    "libEGL.so": PublicLibrary(9, "egl"),
    "libOpenSLES.so": PublicLibrary(9, "sl|SL_"),
    "libandroid.so": PublicLibrary(9, "A[A-Z]|android_"),
    "libOpenMAXAL.so": PublicLibrary(14, "xa|XA_"),
    "libGLESv3.so": PublicLibrary(18, "gl"),
    "libmediandk.so": PublicLibrary(21, "A[A-Z]"),
    "libcamera2ndk.so": PublicLibrary(24, "AC[aA]"),
    "libvulkan.so": PublicLibrary(24, "vk"),
    "libaaudio.so": PublicLibrary(26, "AAudio"),
    "libnativewindow.so": PublicLibrary(26, "A[A-Z]"),
    "libsync.so": PublicLibrary(26, "sync_"),
    "libneuralnetworks.so": PublicLibrary(27, "ANeuralNetworks"),
    "libamidi.so": PublicLibrary(29, "AMidi"),
    "libbinder_ndk.so": PublicLibrary(29, "A[A-Z]"),
    "libicu.so": PublicLibrary(31, ANY_C_NAME),
    "libnativehelper.so": PublicLibrary(31, "JNI_|AFileDescriptor"),
}
"""Android's public native libraries, as the NDK's documentation lists them."""

VENDOR = re.compile(
    r"libOpenCL\.so\.1|lib(OpenCL(-.*)?|GLES_mali|PVROCL|llvm-qcom|CB|cdsprpc|adsprpc|edgetpu_.*"
    r"|neuron_adapter.*)\.so"
)
"""Libraries that some devices have; apps on Android reach them through ``<uses-native-library>`` alone."""

PRIVATE = re.compile(
    r"lib(c\+\+|cutils|utils|ui|gui|binder|hardware|crypto|ssl|sqlite|expat|art|dvm|media|skia|icuuc|icui18n"
    r"|android_runtime|nativeloader|base|stagefright|camera_client|netd_client|vndksupport|ft2|png|RS)\.so"
)
"""Libraries inside Android that apps have not been allowed to load since API level 24."""

RELEASES = {
    "N": 24, "N_MR1": 25, "O": 26, "OMR1": 27, "P": 28, "Q": 29, "R": 30, "S": 31, "T": 33, "U": 34, "V": 35,
}  # fmt: skip
"""Suffixes of the symbol versions of bionic (``LIBC_Q``), with the API level of that release."""

ARM_HELPERS = re.compile(r"__(aeabi_|gnu_Unwind_)")
"""32-bit ARM's run-time helpers: the only symbols of bionic's libc that come without a version."""

GLIBC_LIBRARIES = re.compile(
    r"(lib(c|m|mvec|util|resolv|anl|BrokenLocale)\.so\.\d+|lib(dl|pthread|rt|nsl|thread_db)\.so\.\d+"
    r"|libstdc\+\+\.so\.6|libgcc_s\.so\.1|libatomic\.so\.1|libgomp\.so\.1|ld-linux[-a-z0-9_]*\.so\.\d+|ld64\.so\.\d)"
)
"""The C and C++ run-time libraries that a glibc device has."""


def version_level(version: str) -> int:
    """Return the first API level whose bionic defines the symbol version *version*; 1 for unknown ones."""
    _, _, release = version.partition("_")
    return RELEASES.get(release, 1)


def may_supply(library: str, symbol: str, *, versions_in_use: bool, machine: str) -> bool:
    """True if Android's public *library* can have *symbol*, asked for without a version, by its name alone.

    With *versions_in_use* the file was linked with stubs whose symbols have versions.
    """
    pattern = PUBLIC[library].symbols
    if pattern != VERSIONED:
        return bool(re.match(pattern, symbol))
    if not versions_in_use:
        return bool(re.match(ANY_C_NAME, symbol))
    return machine == "ARM" and bool(ARM_HELPERS.match(symbol))
