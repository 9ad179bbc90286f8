"""OpenCL SDKs that a build links against, instead of opening the device's libOpenCL at run time.

One is Qualcomm's CLML SDK, with machine-learning operators, for the ``-clml`` presets. It is checked before
CMake starts, so that one message names everything that is missing.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
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
    """Find the SDK in *explicit*, complete for the ELF *machine* (``AARCH64``); None when that is empty."""
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
    """Find the header *name* (``CL/…``) of the SDK at *path*; add its absence to *problems*."""
    for directory in INCLUDE_DIRECTORIES:
        if (header := path / directory / name).is_file():
            return header
    problems.append(f"{name} is missing (looked in {path} and its include/)")
    return None


def find_library(path: Path, machine: str, problems: list[str]) -> Path | None:
    """Find the libOpenCL.so for *machine* among the SDK's; say in *problems* why there is none."""
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


log = logging.getLogger("adt.clml")

VARIABLES = ("ADRENO_OPENCL", "CLML_SDK")
"""Looked at in this order, after ``--clml``."""
CLML_HEADER = "CL/cl_qcom_ml_ops.h"
VERSION = "CL_QCOM_ML_OPS_H_MAJOR_VERSION"
NEWEST = 5
"""Newest major version that TVM's sources distinguish."""
REMEDY = "Pass --clml DIR with the root of Qualcomm's OpenCL ML SDK (docs/clml.md says what belongs in it)."


@dataclass(frozen=True)
class ClmlSdk:
    """A complete CLML SDK on this machine."""

    path: Path
    version: str
    """``CL_QCOM_ML_OPS_H_MAJOR_VERSION`` of its header."""
    library: Path
    """The libOpenCL.so for the machine that is built for."""
    origin: str
    """Source of the path: ``--clml``, ``ADRENO_OPENCL``, ``CLML_SDK``."""
    digest: str
    """Digest (sha256) of its header and its library: another SDK at the same path is another build."""


def find_clml(explicit: str, machine: str, *, environ: Mapping[str, str] | None = None) -> ClmlSdk:
    """Find the SDK in *explicit*, else where the environment says, for the ELF *machine* (``AARCH64``)."""
    environ = os.environ if environ is None else environ
    named = [("--clml", explicit), *((variable, environ.get(variable, "")) for variable in VARIABLES)]
    given = [(origin, Path(text).expanduser().absolute()) for origin, text in named if text]
    if not given:
        raise SdkError(
            f"no CLML SDK was named (looked at {', '.join(origin for origin, _ in named)})", remedy=REMEDY
        )
    (origin, path), *others = given
    for other, elsewhere in others:
        if elsewhere.resolve() != path.resolve():
            log.warning("%s names %s, but %s is used (from %s)", other, elsewhere, path, origin)
    return _validated(path, origin, machine)


def _validated(path: Path, origin: str, machine: str) -> ClmlSdk:
    if not path.is_dir():
        raise SdkError(f"the CLML SDK {path} (from {origin}) is not a directory", remedy=REMEDY)
    problems: list[str] = []
    header = find_header(path, CLML_HEADER, problems)
    version = _version(header) if header else ""
    if header and not version:
        problems.append(f"{header.relative_to(path)} does not define {VERSION}")
    library = find_library(path, machine, problems)
    if problems or header is None or library is None:
        raise SdkError(
            f"{path} (from {origin}) is no complete CLML SDK: {'; '.join(problems)}", remedy=REMEDY
        )
    if int(version) > NEWEST:
        log.warning("CLML SDK %s has version %s, newer than TVM's sources know (%d)", path, version, NEWEST)
    return ClmlSdk(path, version, library, origin, f"{file_sha256(header)} {file_sha256(library)}")


def _version(header: Path) -> str:
    """Return the version that *header* defines; empty when it does not."""
    text = header.read_text(errors="replace")
    match = re.search(rf"^\s*#\s*define\s+{VERSION}\s+(\d{{1,9}})", text, re.MULTILINE)
    return match[1] if match else ""
