"""Integrity of a package, part by part; and the record of those compiled here, whose code may run here."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from adt.errors import AdtError
from adt.host.artefact import PACKAGE, kind_of, not_a
from adt.host.cache import file_sha256
from adt.host.directories import data_dir
from adt.host.document import HIDDEN, form
from adt.host.elf import ElfFacts, read_elf
from adt.package.files import INSPECT, LIBRARY, PARAMS, inspection_names
from adt.package.graphs import PLAIN
from adt.package.inspection.inspection import Inspection, load_arrays
from adt.package.manifest import PackageFile, PackageManifest
from adt.package.package import ModelPackage, load_package
from adt.package.reports import LANES

CODE, PARAMETERS = "code", "parameters"  # names of the findings about what is in mod.so and mod.params


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    passed: bool
    found: str


@dataclass(frozen=True)
class Integrity:
    """All of it."""

    place: Path = field(metadata=form("path"))
    """The package, as it was named."""
    package: ModelPackage | None = field(metadata=HIDDEN)
    """None when it cannot even be opened."""
    findings: tuple[Finding, ...]

    @property
    def code(self) -> bool:
        """True if ``mod.so`` is the code that is described."""
        return all(finding.passed for finding in self.findings if finding.name in (LIBRARY, CODE))

    @property
    def passed(self) -> bool:
        """True if nothing is wrong."""
        return all(finding.passed for finding in self.findings)


def examine(path: Path) -> Integrity:
    """Check the package *path*: archive, schema, hashes, code, parameters, ``inspect/``, each a finding."""
    if kind_of(path) != PACKAGE:
        raise not_a(PACKAGE, path)
    try:
        package = load_package(path, check_hashes=False)
    except AdtError as error:
        reason = error.what + (f": {error.details}" if error.details else "")
        return Integrity(path, None, (Finding("description", False, reason),))
    facts = package.manifest
    described = f"{facts.schema} {facts.schema_version}, made by adt {facts.adt_version}"
    findings = (
        Finding("description", True, described),
        *(_file(package.path, name, facts.files[name]) for name in (LIBRARY, PARAMS)),
        *(look(package) for look in (_code, _params, _inspection)),
    )
    return Integrity(path, package, findings)


def _file(directory: Path, name: str, facts: PackageFile) -> Finding:
    size = (directory / name).stat().st_size
    if size != facts.size:
        return Finding(name, False, f"has {size:,} bytes; mod.json says {facts.size:,}")
    if file_sha256(directory / name) != facts.sha256:
        return Finding(name, False, "is not the file that mod.json describes (sha256)")
    return Finding(name, True, f"{size:,} bytes, sha256 {facts.sha256[:12]}…")


def _code(package: ModelPackage) -> Finding:
    facts = package.manifest
    try:
        elf = read_elf(package.path / LIBRARY)
    except AdtError as error:
        return Finding(CODE, False, error.what)
    for what, actual, described in (
        ("machine", (elf.machine,), (facts.target.machine,)),
        ("needed libraries", elf.needed, facts.files[LIBRARY].needed),
        ("context symbols", context_symbols(elf), facts.tvm.context_symbols),
    ):
        if actual != described:
            have, said = (", ".join(names) or "none" for names in (actual, described))
            return Finding(CODE, False, f"{LIBRARY} has {what} {have}; mod.json says {said}")
    return Finding(CODE, True, f"{elf.machine}, module ABI as described, {len(elf.functions)} functions")


def context_symbols(elf: ElfFacts) -> tuple[str, ...]:
    """Return the data symbols of a module that the runtime fills with its functions: the module's ABI."""
    return tuple(sorted(name for name in elf.objects if name.startswith("__TVM")))


def _params(package: ModelPackage) -> Finding:
    try:
        shapes = {name: array.shape for name, array in load_arrays(package)}
    except AdtError as error:
        return Finding(PARAMETERS, False, error.what)
    taken = {name for entry in package.manifest.entries for name in entry.params}
    images = {name for entry in package.manifest.entries for name in entry.images}
    texels = {name for name, shape in shapes.items() if len(shape) > 2 and shape[-1] == LANES and all(shape)}
    for names, fault in (
        (taken - shapes.keys(), f"{PARAMS} lacks {{}}"),
        (shapes.keys() - taken, f"{PARAMS} has {{}}, which no entry takes"),
        (images - taken, "no entry takes {}, said to be images"),
        (images - texels, "{}: not of texels, and said to be images"),
    ):
        if names:
            return Finding(PARAMETERS, False, fault.format(", ".join(sorted(names)[:5])))
    count = f"{len(shapes)}, as the entries take them" + (f", {len(images)} as images" if images else "")
    return Finding(PARAMETERS, True, count)


def _inspection(package: ModelPackage) -> Finding:
    listed = package.manifest.inspection
    try:
        there = set(inspection_names(package.path))
        inspection = Inspection(package)
        if inspection.recorded:
            inspection.subgraphs()
    except AdtError as error:
        return Finding(INSPECT, False, error.what)
    faults = [
        f"{name} was changed"
        for name in sorted(there & listed.keys())
        if file_sha256(package.path / name) != listed[name].sha256
    ]
    faults += [f"{name} is not described" for name in sorted(there - listed.keys())]
    if faults:
        return Finding(INSPECT, False, "; ".join(faults[:5]))
    if not there:
        return Finding(INSPECT, True, "left out: `adt inspect` has less to show")
    missing = len(listed) - len(there)
    return Finding(INSPECT, True, f"{len(there)} files" + (f", {missing} left out" if missing else ""))


log = logging.getLogger("adt.compile")

NAME = "compiled-kernels.txt"
"""The file in adt's data directory: the sha256 of each package's kernels, one a line."""


def remember(manifest: PackageManifest) -> None:
    """Keep in mind that the package with *manifest* was compiled here; else it counts as another's."""
    if is_known(manifest):
        return
    try:
        _path().parent.mkdir(parents=True, exist_ok=True)
        # unbuffered: lines of several processes stay whole
        with open(_path(), "ab", 0, opener=partial(os.open, mode=0o600)) as file:
            file.write(f"{_digest(manifest)}\n".encode())
    except OSError as error:
        log.debug("%s is not kept: %s", _path(), error)


def is_known(manifest: PackageManifest) -> bool:
    """Return True if the package has no kernels, or those of one that was compiled here."""
    digest = _digest(manifest)
    try:
        return not digest or digest in _path().read_text(errors="replace").split()
    except OSError:
        return False


def _path() -> Path:
    return data_dir() / NAME


def _digest(manifest: PackageManifest) -> str:
    facts = manifest.inspection.get(f"{INSPECT}/{PLAIN}")
    return facts.sha256 if facts else ""
