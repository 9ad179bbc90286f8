"""An OpenCL SDK to link against, instead of opening the device's libOpenCL at run time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adt.errors import PackageError, SdkError
from adt.host.cache import file_sha256
from adt.host.elf import read_elf

INCLUDE_DIRECTORIES = ("", "include")
"""Directories, relative to an SDK, in which TVM's build looks for headers."""
LIBRARY_DIRECTORIES = ("lib64", "lib")
LIBRARY = "libOpenCL.so"
HEADER = "CL/cl.h"


@dataclass(frozen=True)
class OpenClSdk:
    """A complete OpenCL SDK on this machine."""

    path: Path
    library: Path
    """The libOpenCL.so for the machine that is built for."""
    digest: str
    """Digest (sha256) of the library: another one at the same path is another build."""


def find_opencl_sdk(explicit: str, machine: str) -> OpenClSdk | None:
    """The SDK in the directory *explicit*; None when that is empty.

    Args:
        machine: ELF machine that its library must be for, e.g. ``AARCH64``.

    Raises:
        SdkError: it is incomplete; every missing part is named.
    """
    if not explicit:
        return None
    path = Path(explicit).expanduser().absolute()
    remedy = "Pass --opencl-sdk DIR with include/CL/cl.h and lib/libOpenCL.so in it, or leave it out."
    if not path.is_dir():
        raise SdkError(f"the OpenCL SDK {path} is not a directory", remedy=remedy)
    problems: list[str] = []
    find_header(path, HEADER, problems)
    library = find_library(path, machine, problems)
    if problems or library is None:
        raise SdkError(f"{path} is no complete OpenCL SDK: {'; '.join(problems)}", remedy=remedy)
    return OpenClSdk(path, library, file_sha256(library))


def find_header(path: Path, name: str, problems: list[str]) -> Path | None:
    """The header *name* (``CL/…``) of the SDK at *path*; its absence is added to *problems*."""
    for directory in INCLUDE_DIRECTORIES:
        if (header := path / directory / name).is_file():
            return header
    problems.append(f"{name} is missing (looked in {path} and its include/)")
    return None


def find_library(path: Path, machine: str, problems: list[str]) -> Path | None:
    """The SDK's libOpenCL.so for *machine*; it may hold several. *problems* gets why there is none."""
    obstacles: list[str] = []
    for directory in LIBRARY_DIRECTORIES:
        library = path / directory / LIBRARY
        if not library.is_file():
            continue
        try:
            is_for = read_elf(library).machine
        except PackageError as error:
            obstacles.append(error.what)
            continue
        if is_for == machine:
            return library
        obstacles.append(f"{directory}/{LIBRARY} is for {is_for}, not for {machine}")
    problems += obstacles or [
        f"{LIBRARY} is missing (looked in {' and '.join(f'{d}/' for d in LIBRARY_DIRECTORIES)})"
    ]
    return None
