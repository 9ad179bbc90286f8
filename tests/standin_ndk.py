"""A stand-in with an Android NDK's layout, for tests on machines without an NDK.

It is not an NDK: its compilers are Debian's clang for aarch64 *glibc*. What it
can show is that adt finds, names and drives an NDK as it should and that the
libraries it builds are arm64 with 16 KB pages. What it cannot show is bionic,
``__ANDROID__`` code, liblog or libc++.

Needs the Debian packages clang and g++-aarch64-linux-gnu.
"""

from __future__ import annotations

from pathlib import Path

REVISION = "27.0.0"
DESCRIPTION = "STAND-IN, not an Android NDK"
API_LEVELS = range(21, 36)
TRIPLE = "aarch64-linux-android"

_COMPILER = """\
#!/bin/sh
# STAND-IN, not an Android NDK: {name} for aarch64 glibc.
# Drops the flags that name Android's target, sysroot and C++ library, keeps all others.
skip=
for word do
  shift
  if [ -n "$skip" ]; then
    skip=
    continue
  fi
  case $word in
    -target | --target | --sysroot | -isysroot | -gcc-toolchain) skip=1 ;;
    --target=* | --sysroot=* | --gcc-toolchain=* | -stdlib=* | -static-libstdc++) ;;
    -Wl,--no-rosegment | -fuse-ld=lld) ;;
    *) set -- "$@" "$word" ;;
  esac
done
exec {driver} --target=aarch64-linux-gnu "$@"
"""

_BINUTIL = """\
#!/bin/sh
# STAND-IN, not an Android NDK.
exec aarch64-linux-gnu-{tool} "$@"
"""

# As the NDK's file does, it takes its own place as the NDK's root. A CMAKE_SYSTEM_VERSION
# of 1 keeps CMake from looking for a real NDK's parts.
_TOOLCHAIN = """\
# STAND-IN, not an Android NDK.
set(ANDROID TRUE)
set(CMAKE_SYSTEM_NAME Android)
set(CMAKE_SYSTEM_VERSION 1)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ANDROID_ABI ANDROID_PLATFORM ANDROID_STL)
foreach(default IN ITEMS ANDROID_ABI=arm64-v8a ANDROID_PLATFORM=android-21)
  string(REPLACE "=" ";" pair "${default}")
  list(GET pair 0 variable)
  if(NOT DEFINED ${variable}) # as in a trial project of CMake's
    list(GET pair 1 ${variable})
  endif()
endforeach()
if(NOT ANDROID_ABI STREQUAL "arm64-v8a")
  message(FATAL_ERROR "This stand-in for an NDK knows arm64-v8a only, not '${ANDROID_ABI}'.")
endif()
if(NOT ANDROID_PLATFORM MATCHES "^android-[0-9]+$")
  message(FATAL_ERROR "Invalid Android platform: '${ANDROID_PLATFORM}'.")
endif()
string(REPLACE "android-" "" api "${ANDROID_PLATFORM}")
get_filename_component(root "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
set(bin "${root}/toolchains/llvm/prebuilt/linux-x86_64/bin")
set(CMAKE_C_COMPILER "${bin}/clang")
set(CMAKE_CXX_COMPILER "${bin}/clang++")
set(CMAKE_C_COMPILER_TARGET "aarch64-none-linux-android${api}")
set(CMAKE_CXX_COMPILER_TARGET "aarch64-none-linux-android${api}")
set(CMAKE_AR "${bin}/llvm-ar" CACHE FILEPATH "")
set(CMAKE_RANLIB "${bin}/llvm-ranlib" CACHE FILEPATH "")
set(CMAKE_STRIP "${bin}/llvm-strip" CACHE FILEPATH "")
set(CMAKE_C_FLAGS_INIT "-g -DANDROID -fdata-sections -ffunction-sections -funwind-tables")
set(CMAKE_CXX_FLAGS_INIT "${CMAKE_C_FLAGS_INIT}")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-Wl,--build-id=sha1 -Wl,--no-rosegment -Wl,--gc-sections")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,--build-id=sha1 -Wl,--gc-sections")
if(ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES) # as NDK r27: for shared libraries only
  string(APPEND CMAKE_SHARED_LINKER_FLAGS_INIT " -Wl,-z,max-page-size=16384")
endif()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
"""


def _write(file: Path, text: str, *, program: bool = False) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    if program:
        file.chmod(0o755)


def make_standin_ndk(directory: Path) -> Path:
    """Make the stand-in in *directory* (created when absent) and return it as an NDK root."""
    _write(
        directory / "source.properties",
        f"Pkg.Desc = {DESCRIPTION}\nPkg.Revision = {REVISION}\n",
    )
    _write(directory / "build" / "cmake" / "android.toolchain.cmake", _TOOLCHAIN)
    programs = directory / "toolchains" / "llvm" / "prebuilt" / "linux-x86_64" / "bin"
    for driver in ("clang", "clang++"):
        script = _COMPILER.format(name=driver, driver=driver)
        _write(programs / driver, script, program=True)
        for api in API_LEVELS:
            _write(programs / f"{TRIPLE}{api}-{driver}", script, program=True)
    for tool in ("ar", "nm", "objcopy", "objdump", "ranlib", "readelf", "strip"):
        _write(programs / f"llvm-{tool}", _BINUTIL.format(tool=tool), program=True)
    return directory
