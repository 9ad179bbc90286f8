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

log = logging.getLogger("adt.clml")

LIBRARY_DIRECTORIES = ("lib64", "lib")
LIBRARY = "libOpenCL.so"
REMEDY = "Pass --opencl-sdk DIR with include/CL/cl.h and lib/libOpenCL.so in it, or leave it out."

VARIABLES = ("ADRENO_OPENCL", "CLML_SDK")
"""Looked at in this order, after ``--clml``."""
CLML_HEADER = "CL/cl_qcom_ml_ops.h"
VERSION = "CL_QCOM_ML_OPS_H_MAJOR_VERSION"
NEWEST = 5
"""Newest major version that TVM's sources distinguish."""
CLML_REMEDY = (
    "Pass --clml DIR with the root of Qualcomm's OpenCL ML SDK (docs/clml.md says what belongs in it)."
)


@dataclass(frozen=True)
class OpenClSdk:
    """A complete OpenCL SDK on this machine."""

    path: Path
    origin: str
    """Source of the path: ``--opencl-sdk``; of the CLML SDK ``--clml``, ``ADRENO_OPENCL`` or ``CLML_SDK``."""
    library: Path
    """The libOpenCL.so for the machine that is built for."""
    version: str
    """``CL_QCOM_ML_OPS_H_MAJOR_VERSION`` of the CLML SDK's header; empty for others."""
    digest: str
    """Digests (sha256) of CLML's header and the library: another SDK at the same path is another build."""


def find_opencl_sdk(explicit: str, machine: str) -> OpenClSdk | None:
    """Find the SDK in *explicit*, complete for the ELF *machine* (``AARCH64``); None when that is empty."""
    if not explicit:
        return None
    path = Path(explicit).expanduser().absolute()
    return _complete("OpenCL", path, "--opencl-sdk", machine, "CL/cl.h", remedy=REMEDY)


def find_clml(explicit: str, machine: str, *, environ: Mapping[str, str] = os.environ) -> OpenClSdk:
    """Find the CLML SDK in *explicit*, else where the environment says, for the ELF *machine*."""
    named = [("--clml", explicit), *((variable, environ.get(variable, "")) for variable in VARIABLES)]
    given = [(origin, Path(text).expanduser().absolute()) for origin, text in named if text]
    if not given:
        looked = ", ".join(origin for origin, _ in named)
        raise SdkError(f"no CLML SDK was named (looked at {looked})", remedy=CLML_REMEDY)
    (origin, path), *others = given
    for other, elsewhere in others:
        if elsewhere.resolve() != path.resolve():
            log.warning("%s names %s, but %s is used (from %s)", other, elsewhere, path, origin)
    sdk = _complete("CLML", path, origin, machine, CLML_HEADER, macro=VERSION, remedy=CLML_REMEDY)
    if int(sdk.version) > NEWEST:
        log.warning(
            "CLML SDK %s has version %s, newer than TVM's sources know (%d)", path, sdk.version, NEWEST
        )
    return sdk


def _complete(
    kind: str, path: Path, origin: str, machine: str, header: str, *, macro: str = "", remedy: str
) -> OpenClSdk:
    """Check that the SDK at *path* has *header*, which defines *macro*, and a library for *machine*."""
    if not path.is_dir():
        raise SdkError(f"the {kind} SDK {path} (from {origin}) is not a directory", remedy=remedy)
    problems: list[str] = []
    # where TVM's build looks for headers
    headers = [file for file in (path / header, path / "include" / header) if file.is_file()][:1]
    version = _version(headers[0], macro) if headers and macro else ""
    if not headers:
        problems.append(f"{header} is missing (looked in {path} and its include/)")
    elif macro and not version:
        problems.append(f"{headers[0].relative_to(path)} does not define {macro}")
    library = _library(path, machine, problems)
    if problems or library is None:
        what = f"{path} (from {origin}) is no complete {kind} SDK: {'; '.join(problems)}"
        raise SdkError(what, remedy=remedy)
    digests = map(file_sha256, [*headers, library] if macro else [library])
    return OpenClSdk(path, origin, library, version, " ".join(digests))


def _version(header: Path, macro: str) -> str:
    """Return the number that *header* defines as *macro*; empty when it does not."""
    text = header.read_text(errors="replace")
    match = re.search(rf"^\s*#\s*define\s+{macro}\s+(\d{{1,9}})", text, re.MULTILINE)
    return match[1] if match else ""


def _library(path: Path, machine: str, problems: list[str]) -> Path | None:
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
    missing = f"{LIBRARY} is missing (looked in {' and '.join(f'{d}/' for d in LIBRARY_DIRECTORIES)})"
    problems += obstacles or [missing]
    return None
