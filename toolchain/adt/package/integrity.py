"""Integrity of a package, part by part; and the record of those compiled here, whose code may run here."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
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

CODE = "code"  # name of the finding about what is in mod.so


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
    findings = [Finding("description", True, described)]
    findings += [_file(package.path, name, facts.files[name]) for name in (LIBRARY, PARAMS)]
    findings += _code(package)
    findings += _params(package)
    findings += _inspection(package)
    return Integrity(path, package, tuple(findings))


def _file(directory: Path, name: str, facts: PackageFile) -> Finding:
    size = (directory / name).stat().st_size
    if size != facts.size:
        return Finding(name, False, f"has {size:,} bytes; mod.json says {facts.size:,}")
    if file_sha256(directory / name) != facts.sha256:
        return Finding(name, False, "is not the file that mod.json describes (sha256)")
    return Finding(name, True, f"{size:,} bytes, sha256 {facts.sha256[:12]}…")


def _code(package: ModelPackage) -> Iterator[Finding]:
    facts = package.manifest
    try:
        elf = read_elf(package.path / LIBRARY)
    except AdtError as error:
        yield Finding(CODE, False, error.what)
        return
    for what, actual, described in (
        ("machine", elf.machine, facts.target.machine),
        ("needed libraries", elf.needed, facts.files[LIBRARY].needed),
        ("context symbols", context_symbols(elf), facts.tvm.context_symbols),
    ):
        if actual != described:
            yield Finding(
                CODE, False, f"{LIBRARY} has {what} {_shown(actual)}; mod.json says {_shown(described)}"
            )
            return
    yield Finding(CODE, True, f"{elf.machine}, module ABI as described, {len(elf.functions)} functions")


def context_symbols(elf: ElfFacts) -> tuple[str, ...]:
    """Return the data symbols of a module that the runtime fills with its functions: the module's ABI."""
    return tuple(sorted(name for name in elf.objects if name.startswith("__TVM")))


def _shown(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else ", ".join(value) or "none"


def _params(package: ModelPackage) -> Iterator[Finding]:
    try:
        shapes = {name: array.shape for name, array in load_arrays(package)}
    except AdtError as error:
        yield Finding("parameters", False, error.what)
        return
    taken = {name for entry in package.manifest.entries for name in entry.params}
    images = {name for entry in package.manifest.entries for name in entry.images}
    texels = {name for name, shape in shapes.items() if len(shape) > 2 and shape[-1] == LANES and all(shape)}
    if missing := sorted(taken - shapes.keys()):
        yield Finding("parameters", False, f"{PARAMS} lacks {', '.join(missing[:5])}")
    elif surplus := sorted(shapes.keys() - taken):
        yield Finding("parameters", False, f"{PARAMS} has {', '.join(surplus[:5])}, which no entry takes")
    elif unknown := sorted(images - taken):
        yield Finding("parameters", False, f"no entry takes {', '.join(unknown[:5])}, said to be images")
    elif flat := sorted(images - texels):
        yield Finding("parameters", False, f"{', '.join(flat[:5])}: not of texels, and said to be images")
    else:
        count = f"{len(shapes)}, as the entries take them" + (f", {len(images)} as images" if images else "")
        yield Finding("parameters", True, count)


def _inspection(package: ModelPackage) -> Iterator[Finding]:
    listed = package.manifest.inspection
    try:
        there = set(inspection_names(package.path))
        inspection = Inspection(package)
        if inspection.recorded:
            inspection.subgraphs()
    except AdtError as error:
        yield Finding(INSPECT, False, error.what)
        return
    unknown = sorted(there - listed.keys())
    changed = [
        name
        for name in sorted(there & listed.keys())
        if file_sha256(package.path / name) != listed[name].sha256
    ]
    if changed or unknown:
        faults = [f"{name} was changed" for name in changed] + [
            f"{name} is not described" for name in unknown
        ]
        yield Finding(INSPECT, False, "; ".join(faults[:5]))
    elif not there:
        yield Finding(INSPECT, True, "left out: `adt inspect` has less to show")
    else:
        missing = len(listed) - len(there)
        yield Finding(INSPECT, True, f"{len(there)} files" + (f", {missing} left out" if missing else ""))


log = logging.getLogger("adt.compile")

NAME = "compiled-kernels.txt"
"""The file in adt's data directory: the sha256 of each package's kernels, one a line."""


def remember(manifest: PackageManifest) -> None:
    """Keep in mind that the package with *manifest* was compiled here; else it counts as another's."""
    if is_known(manifest):
        return
    try:
        _path().parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(_path(), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            # at once: lines of several processes stay whole
            os.write(descriptor, f"{_digest(manifest)}\n".encode())
        finally:
            os.close(descriptor)
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
