"""The libraries that a device brings: Android's public ones by API level, and glibc's."""

from __future__ import annotations

import re
from dataclasses import dataclass


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
ANDROID = {
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
    "N": 24,
    "N_MR1": 25,
    "O": 26,
    "OMR1": 27,
    "P": 28,
    "Q": 29,
    "R": 30,
    "S": 31,
    "T": 33,
    "U": 34,
    "V": 35,
}
"""Suffixes of the symbol versions of bionic (``LIBC_Q``), with the API level of that release."""

ARM_HELPERS = re.compile(r"__(aeabi_|gnu_Unwind_)")
"""32-bit ARM's run-time helpers: the only symbols of bionic's libc that come without a version."""

GLIBC = re.compile(
    r"(lib(c|m|mvec|util|resolv|anl|BrokenLocale)\.so\.\d+|lib(dl|pthread|rt|nsl|thread_db)\.so\.\d+"
    r"|libstdc\+\+\.so\.6|libgcc_s\.so\.1|libatomic\.so\.1|libgomp\.so\.1|ld-linux[-a-z0-9_]*\.so\.\d+|ld64\.so\.\d)"
)
"""The C and C++ run-time libraries that a glibc device has."""


def version_level(version: str) -> int:
    """The first API level whose bionic defines the symbol version *version*; 1 for unknown ones."""
    _, _, release = version.partition("_")
    return RELEASES.get(release, 1)


def may_supply(library: str, symbol: str, *, versions_in_use: bool, machine: str) -> bool:
    """True if Android's public *library* can have *symbol*, asked for without a version, by its name alone.

    Args:
        versions_in_use: the file was linked with stubs whose symbols have versions, as each
            NDK that adt takes has them; else libc may have any name.
    """
    pattern = ANDROID[library].symbols
    if pattern != VERSIONED:
        return bool(re.match(pattern, symbol))
    if not versions_in_use:
        return bool(re.match(ANY_C_NAME, symbol))
    return machine == "ARM" and bool(ARM_HELPERS.match(symbol))
