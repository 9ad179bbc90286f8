"""A stand-in with an Android NDK's layout, for tests on machines without an NDK.

It is not an NDK: its compilers are Debian's clang for *glibc*. What it can show
is that adt finds, names and drives an NDK as it should and that the libraries
it builds are for the right machine, 64-bit ones with 16 KB pages. What it
cannot show is bionic, C++ for ``__ANDROID__`` or libc++: its libc++_shared.so is empty. Of
libandroid and liblog it has stand-ins (tests/support/standins/libandroid), with what adt and TVM
use of them.

Needs the Debian packages clang and, for arm64-v8a, g++-aarch64-linux-gnu; for
armeabi-v7a g++-arm-linux-gnueabihf; for x86_64 g++.
"""

import subprocess
from pathlib import Path

from adt.host.cache import cache_dir

LIBANDROID = Path(__file__).parent / "libandroid"
REVISION = "27.0.0"
DESCRIPTION = "STAND-IN, not an Android NDK"
API_LEVELS = range(21, 36)
TRIPLES = {
    "aarch64-linux-android": "aarch64-linux-gnu",
    "armv7a-linux-androideabi": "arm-linux-gnueabihf",
    "x86_64-linux-android": "x86_64-linux-gnu",
}
"""The NDK's triples, and what the stand-in compiles for instead.

Android's 32-bit ARM passes floats in integer registers, Debian's armhf does not,
and its armel has no std::future: 32-bit models link here, but do not run.
"""

_COMPILER = """\
#!/bin/sh
# STAND-IN, not an Android NDK: {name} for glibc.
# Drops the flags that name Android's sysroot and C++ library, replaces its target, keeps all others
# but those that cost time: what it makes is looked at, or run once, and is not debugged.
target={target}
skip=
for word do
  case $word in
    -dumpmachine) exec {driver} {machine} "$@" ;; # as the real one: clang's own word for Android's target
  esac
done
for word do
  shift
  if [ -n "$skip" ]; then
    skip=
    continue
  fi
  case $word in
    --target=aarch64-*) target=aarch64-linux-gnu ;;
    --target=arm*) target=arm-linux-gnueabihf ;;
    --target=x86_64-*) target=x86_64-linux-gnu ;;
    -target | --target | --sysroot | -isysroot | -gcc-toolchain) skip=1 ;;
    --target=* | --sysroot=* | --gcc-toolchain=* | -stdlib=* | -static-libstdc++) ;;
    -Wl,--no-rosegment | -fuse-ld=lld) ;;
    *.c) set -- "$@" -D__ANDROID__ "$word" ;; # XNNPACK and what it uses are C; C++ has glibc's library
    *) set -- "$@" "$word" ;;
  esac
done
if [ $target = arm-linux-gnueabihf ]; then
  set -- -march=armv7-a -mfpu=neon -Wl,--no-warn-mismatch "$@"
fi
exec {driver} --target=$target -isystem "${{0%/*}}/../sysroot/usr/include" "$@" -O0 -g0
"""

_BINUTIL = """\
#!/bin/sh
# STAND-IN, not an Android NDK: the GNU {tool} for the machine of the files given (e_machine).
prefix=aarch64-linux-gnu
for word do
  case $(od -An -tu2 -j18 -N2 "$word" 2>/dev/null | tr -d ' ') in
    40) prefix=arm-linux-gnueabihf ;;
    62) prefix=x86_64-linux-gnu ;;
  esac
done
exec $prefix-{tool} "$@"
"""

# As the NDK's file does, it takes its own place as the NDK's root. A CMAKE_SYSTEM_VERSION
# of 1 keeps CMake from looking for a real NDK's parts.
_TOOLCHAIN = """\
# STAND-IN, not an Android NDK.
set(ANDROID TRUE)
set(CMAKE_SYSTEM_NAME Android)
set(CMAKE_SYSTEM_VERSION 1)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ANDROID_ABI ANDROID_PLATFORM ANDROID_STL)
foreach(default IN ITEMS ANDROID_ABI=arm64-v8a ANDROID_PLATFORM=android-21)
  string(REPLACE "=" ";" pair "${default}")
  list(GET pair 0 variable)
  if(NOT DEFINED ${variable}) # as in a trial project of CMake's
    list(GET pair 1 ${variable})
  endif()
endforeach()
if(ANDROID_ABI STREQUAL "arm64-v8a")
  set(CMAKE_SYSTEM_PROCESSOR aarch64)
  set(target aarch64-none-linux-android)
elseif(ANDROID_ABI STREQUAL "armeabi-v7a")
  set(CMAKE_SYSTEM_PROCESSOR armv7-a)
  set(target armv7-none-linux-androideabi)
elseif(ANDROID_ABI STREQUAL "x86_64")
  set(CMAKE_SYSTEM_PROCESSOR x86_64)
  set(target x86_64-none-linux-android)
else()
  message(FATAL_ERROR "Invalid Android ABI: '${ANDROID_ABI}'.")
endif()
if(NOT ANDROID_PLATFORM MATCHES "^android-[0-9]+$")
  message(FATAL_ERROR "Invalid Android platform: '${ANDROID_PLATFORM}'.")
endif()
string(REPLACE "android-" "" api "${ANDROID_PLATFORM}")
get_filename_component(root "${CMAKE_CURRENT_LIST_DIR}/../.." ABSOLUTE)
set(bin "${root}/toolchains/llvm/prebuilt/linux-x86_64/bin")
set(CMAKE_SYSROOT "${root}/toolchains/llvm/prebuilt/linux-x86_64/sysroot")
set(CMAKE_C_COMPILER "${bin}/clang")
set(CMAKE_CXX_COMPILER "${bin}/clang++")
set(CMAKE_C_COMPILER_TARGET "${target}${api}")
set(CMAKE_CXX_COMPILER_TARGET "${target}${api}")
set(CMAKE_AR "${bin}/llvm-ar" CACHE FILEPATH "")
set(CMAKE_RANLIB "${bin}/llvm-ranlib" CACHE FILEPATH "")
set(CMAKE_STRIP "${bin}/llvm-strip" CACHE FILEPATH "")
set(CMAKE_C_FLAGS_INIT "-g -DANDROID -fdata-sections -ffunction-sections -funwind-tables")
set(CMAKE_CXX_FLAGS_INIT "${CMAKE_C_FLAGS_INIT}")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-Wl,--build-id=sha1 -Wl,--no-rosegment -Wl,--gc-sections")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,--build-id=sha1 -Wl,--gc-sections")
# libandroid and liblog to link with, and to run a test with; libc++_shared to bring along.
set(triple "aarch64-linux-android")
if(ANDROID_ABI STREQUAL "armeabi-v7a")
  set(triple "arm-linux-androideabi")
elseif(ANDROID_ABI STREQUAL "x86_64")
  set(triple "x86_64-linux-android")
endif()
set(libraries "${CMAKE_SYSROOT}/usr/lib/${triple}")
foreach(file IN ITEMS 21/libandroid.so 21/liblog.so libc++_shared.so)
  get_filename_component(library "${file}" NAME_WLE)
  set(source "${CMAKE_SYSROOT}/src/${library}.c")
  if("${source}" IS_NEWER_THAN "${libraries}/${file}") # or there is none
    string(RANDOM LENGTH 8 name)
    file(MAKE_DIRECTORY "${libraries}/21")
    execute_process(
      COMMAND "${CMAKE_C_COMPILER}" "--target=${CMAKE_C_COMPILER_TARGET}" -D_GNU_SOURCE -shared -fPIC
              "-Wl,-soname,${library}.so" -Wl,-z,max-page-size=16384 -o "${libraries}/${name}" "${source}"
      COMMAND_ERROR_IS_FATAL ANY
    )
    file(RENAME "${libraries}/${name}" "${libraries}/${file}")
  endif()
endforeach()
string(APPEND CMAKE_SHARED_LINKER_FLAGS_INIT " -L${libraries}/21")
string(APPEND CMAKE_EXE_LINKER_FLAGS_INIT " -L${libraries}/21")
if(ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES) # as NDK r27: for shared libraries only
  string(APPEND CMAKE_SHARED_LINKER_FLAGS_INIT " -Wl,-z,max-page-size=16384")
endif()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
"""


def _write(file: Path, text: str, *, program: bool = False) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.is_file() and file.read_text() == text:
        return  # adt knows a compiler by its time, too: a second session builds nothing
    file.write_text(text)
    if program:
        file.chmod(0o755)


def make_standin_ndk(directory: Path | None = None) -> Path:
    """Make the stand-in in *directory* (created when absent) and return it as an NDK root.

    By default it is in the cache, at a path that stays, so that a second run of the tests builds nothing.
    """
    directory = directory or cache_dir() / "tests/ndk-standin"
    _write(directory / "source.properties", f"Pkg.Desc = {DESCRIPTION}\nPkg.Revision = {REVISION}\n")
    _write(directory / "build" / "cmake" / "android.toolchain.cmake", _TOOLCHAIN)
    programs = directory / "toolchains" / "llvm" / "prebuilt" / "linux-x86_64" / "bin"
    for driver in ("clang", "clang++"):
        script = _COMPILER.format(name=driver, driver=driver, target="aarch64-linux-gnu", machine="")
        _write(programs / driver, script, program=True)
        for triple, target in TRIPLES.items():
            for api in API_LEVELS:
                own = f"--target={triple}{api}"
                script = _COMPILER.format(name=driver, driver=driver, target=target, machine=own)
                _write(programs / f"{triple}{api}-{driver}", script, program=True)
    sysroot = programs.parent / "sysroot"
    for header in LIBANDROID.glob("include/**/*.h"):
        _write(sysroot / "usr" / header.relative_to(LIBANDROID), header.read_text())
    for source in LIBANDROID.glob("*.[ch]"):
        _write(sysroot / "src" / source.name, source.read_text())
    for tool in ("ar", "nm", "objcopy", "objdump", "ranlib", "readelf", "strip"):
        _write(programs / f"llvm-{tool}", _BINUTIL.format(tool=tool), program=True)
    return directory


def make_player(ndk: Path, directory: Path) -> tuple[Path, Path]:
    """Compile play.cc, which plays Android for libadt_activity, into *directory* by the stand-in *ndk*.

    Returns:
        The program, and the directory of the libraries that stand for Android's own.
    """
    toolchain = ndk / "toolchains/llvm/prebuilt/linux-x86_64"
    system = toolchain / "sysroot/usr/lib/aarch64-linux-android/21"
    compiler, program = toolchain / "bin/aarch64-linux-android28-clang++", directory / "play"
    words = ["-std=c++17", "-Wall", "-Wextra", "-Werror", LIBANDROID / "play.cc", f"-L{system}", "-landroid"]
    subprocess.run([compiler, *words, "-ldl", "-o", program], check=True)
    return program, system


def fake_ndk(path: Path, revision: str = "28.0.1", description: str = "Android NDK") -> Path:
    """Create a directory with the files that identify an NDK; its compilers say a version."""
    tools = path / "toolchains/llvm/prebuilt/linux-x86_64/bin"
    tools.mkdir(parents=True)
    for name in ("clang++", "aarch64-linux-android21-clang++", "aarch64-linux-android35-clang++"):
        (tools / name).write_text("#!/bin/sh\necho clang version 18.0.0\n")
        (tools / name).chmod(0o755)
    for level in range(22, 35):
        (tools / f"aarch64-linux-android{level}-clang++").symlink_to("aarch64-linux-android21-clang++")
    (path / "build/cmake").mkdir(parents=True)
    (path / "build/cmake/android.toolchain.cmake").touch()
    (path / "source.properties").write_text(f"Pkg.Desc = {description}\nPkg.Revision = {revision}\n")
    return path
