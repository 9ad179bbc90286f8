"""Install, strip, check and describe what a build gave: the TargetBundle.

The registered functions are read from the sources that were compiled: what was cross-built does not run here
to be asked, and a compiler keeps some names only as part of another text, or as instructions.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import adt
from adt.bundle.audit.auditing import audit_made
from adt.bundle.bundle import (
    ACTIVITY,
    MANIFEST,
    BundleFile,
    BundleManifest,
    BundleOptions,
    BundleTvm,
    TargetBundle,
)
from adt.bundle.libraries import LIBRARIES
from adt.bundle.plan import BuildPlan
from adt.errors import BuildError
from adt.host import cache, manifest
from adt.host.process import run
from adt.host.tools import cmake, ninja

BUILD_INFO = "adt_build_info.json"
"""Description that the superbuild writes, so that nothing cross-built must run to be described."""
SYMBOLS = "symbols"
"""Directory of what was stripped, one ``<file>.debug`` for each file."""
HEADERS = "include"
"""Directory of the headers that a program of one's own is compiled with."""
BUILD_FILES = ("lib/cmake", "lib/pkgconfig")
"""Directories of what CMake and pkg-config find the bundle by."""
LICENSES = "licenses"
"""Directory of licences and notices, by project."""


def pack_bundle(plan: BuildPlan, sources: str) -> TargetBundle:
    """Install, strip and describe what *sources* (digest) became as a bundle, which replaces an older one."""
    with cache.fresh_dir(plan.bundle_dir) as directory:
        run(
            [
                cmake().path,
                "--install",
                plan.build_dir,
                "--strip",
                "--component",
                "adt",
                "--prefix",
                directory,
            ],
            error=BuildError,
            what="installing the build's results failed",
        )
        described = _describe(plan, directory, sources)
        manifest.write(described, directory / MANIFEST)
    return TargetBundle(plan.bundle_dir, described)


def _describe(plan: BuildPlan, directory: Path, sources: str) -> BundleManifest:
    info: dict[str, Any] = json.loads((plan.build_dir / BUILD_INFO).read_text())
    files: dict[str, BundleFile] = {}
    app_files: dict[str, BundleFile] = {}
    pages: list[int] = []
    for name in info["files"]:
        if not (directory / name).is_file():
            raise BuildError(f"the build did not give {name}", remedy="Report this with the -v output.")
    report = audit_made(
        directory, plan.platform, error=BuildError, api_level=plan.options.api_level, ndk=plan.ndk
    )
    audited = {file.name: file.facts for file in report.files if file.facts}
    kept: dict[str, dict[str, BundleFile]] = {top: {} for top in (SYMBOLS, HEADERS, LICENSES, *BUILD_FILES)}
    for path in sorted(p for p in directory.rglob("*") if p.is_file()):
        name = path.relative_to(directory).as_posix()
        if top := next((top for top in kept if name.startswith(f"{top}/")), ""):
            kept[top][name] = BundleFile(cache.file_sha256(path), path.stat().st_size, ())
            continue
        if (facts := audited.get(name)) is None:
            raise BuildError(f"the build gave {name}, which is no ELF file", remedy="Report this.")
        pages.append(facts.page_alignment)
        kind = app_files if name == ACTIVITY else files
        kind[name] = BundleFile(cache.file_sha256(path), path.stat().st_size, facts.needed)
    return BundleManifest(
        adt_version=adt.__version__,
        preset=plan.preset,
        platform=plan.platform.name,
        abi=plan.platform.abi,
        triple=info["compiler"]["triple"],
        machine=plan.platform.machine,
        api_level=plan.options.api_level if plan.platform.android else None,
        ndk_revision=plan.ndk.revision if plan.ndk else None,
        compiler=info["compiler"]["banner"],
        tvm=BundleTvm(info["tvm_version"], info["ffi_version"], plan.source.digest, plan.source.provider),
        context_symbols=tuple(info["context_symbols"]),
        options=BundleOptions(
            opencl=info["opencl"],
            rpc=info["rpc"],
            alignment=info["alignment"],
            build_type=info["build_type"],
            clml_sdk=info["clml_sdk"],
            opencl_linked=info["opencl_linked"],
            **{name: info[name] for name in LIBRARIES},
            cuda=info["cuda"],
        ),
        page_alignment=min(pages),
        functions=registered_functions(plan.build_dir),
        files=files,
        symbols=kept[SYMBOLS],
        headers=kept[HEADERS],
        build_files={name: facts for top in BUILD_FILES for name, facts in kept[top].items()},
        app_files=app_files,
        licenses=kept[LICENSES],
        sources=sources,
    )


_REGISTERED = re.compile(r'\.def(?:_packed|_method)?\(\s*((?:"[^"]*"\s*)+)')


def registered_functions(build_dir: Path) -> tuple[str, ...]:
    """Return the dotted names of the functions that the libraries in *build_dir* register, sorted."""
    listing = run(
        [ninja().path, "-C", build_dir, "-t", "compdb"],
        error=BuildError,
        what=f"asking Ninja what was compiled in {build_dir} failed",
    )
    names: set[str] = set()
    for command in json.loads(listing.stdout):
        directory = Path(command["directory"])
        if not (directory / command["output"]).is_file():
            continue
        for file in sources_of(directory / command["file"]):
            program = "apps" in file.parts  # tvm_rpc, whose own functions no library has
            if file.suffix == ".cc" and not program:
                text = file.read_text(errors="replace")
                names |= {"".join(re.findall('"([^"]*)"', match[1])) for match in _REGISTERED.finditer(text)}
    return tuple(sorted(name for name in names if "." in name))


def sources_of(file: Path) -> list[Path]:
    """Return the sources that CMake joined in *file* (UNITY_BUILD), else *file* alone."""
    if (file.parent.name, file.suffix) != ("Unity", ".cxx"):
        return [file]
    return [Path(name) for name in re.findall(r'^#include "(.+)"$', file.read_text(), re.MULTILINE)]
