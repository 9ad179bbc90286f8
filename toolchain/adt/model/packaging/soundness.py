"""Is a package whole, and what its description says? Every part is looked at, and every fault is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from adt.errors import AdtError, PackageError
from adt.host.cache import file_sha256
from adt.host.elf import read_elf
from adt.model.inspection.params import load_arrays
from adt.model.package import ModelPackage, PackageFile, load_package
from adt.model.packaging.files import INSPECT, LIBRARY, PARAMS
from adt.model.texture.blocks import LANES

CODE = "code"
"""Name of the finding about what is in mod.so."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    passed: bool
    found: str


@dataclass(frozen=True)
class Soundness:
    """All of it."""

    place: Path
    """The package, as it was named."""
    package: ModelPackage | None
    """None when it cannot even be opened."""
    findings: tuple[Finding, ...]

    @property
    def code(self) -> bool:
        """``mod.so`` is the code that is described."""
        return all(finding.passed for finding in self.findings if finding.name in (LIBRARY, CODE))

    @property
    def passed(self) -> bool:
        """Nothing is wrong."""
        return all(finding.passed for finding in self.findings)


def examine(path: Path) -> Soundness:
    """Look at the package *path*: archive, schema, hashes, code, parameters, ``inspect/``.

    Raises:
        PackageError: there is nothing at *path*. Everything else is a finding.
    """
    if not path.exists():
        raise PackageError(f"there is no package {path}", remedy="Check the path.")
    try:
        package = load_package(path, check_hashes=False)
    except AdtError as why:
        found = why.what + (f": {why.details}" if why.details else "")
        return Soundness(path, None, (Finding("description", False, found),))
    facts = package.manifest
    described = f"{facts.schema} {facts.schema_version}, made by adt {facts.adt_version}"
    findings = [Finding("description", True, described)]
    findings += [_file(package.path, name, facts.files[name]) for name in (LIBRARY, PARAMS)]
    findings += _code(package)
    findings += _params(package)
    findings += _inspection(package)
    return Soundness(path, package, tuple(findings))


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
    except AdtError as why:
        yield Finding(CODE, False, why.what)
        return
    symbols = tuple(sorted(name for name in elf.objects if name.startswith("__TVM")))
    for what, is_, said in (
        ("machine", elf.machine, facts.target.machine),
        ("needed libraries", elf.needed, facts.files[LIBRARY].needed),
        ("context symbols", symbols, facts.tvm.context_symbols),
    ):
        if is_ != said:
            yield Finding(CODE, False, f"{LIBRARY} has {what} {_shown(is_)}; mod.json says {_shown(said)}")
            return
    yield Finding(CODE, True, f"{elf.machine}, module ABI as described, {len(elf.functions)} functions")


def _shown(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else ", ".join(value) or "none"


def _params(package: ModelPackage) -> Iterator[Finding]:
    try:
        shapes = {name: array.shape for name, array in load_arrays(package)}
    except AdtError as why:
        yield Finding("parameters", False, why.what)
        return
    wanted = {name for entry in package.manifest.entries for name in entry.params}
    images = {name for entry in package.manifest.entries for name in entry.images}
    if missing := sorted(wanted - shapes.keys()):
        yield Finding("parameters", False, f"{PARAMS} lacks {', '.join(missing[:5])}")
    elif surplus := sorted(shapes.keys() - wanted):
        yield Finding("parameters", False, f"{PARAMS} has {', '.join(surplus[:5])}, which no entry takes")
    elif unknown := sorted(images - wanted):
        yield Finding("parameters", False, f"no entry takes {', '.join(unknown[:5])}, said to be images")
    elif flat := sorted(name for name in images if not _texels(shapes[name])):
        yield Finding("parameters", False, f"{', '.join(flat[:5])}: not of texels, and said to be images")
    else:
        said = f"{len(shapes)}, as the entries take them" + (f", {len(images)} as images" if images else "")
        yield Finding("parameters", True, said)


def _texels(shape: tuple[int, ...]) -> bool:
    return len(shape) > 2 and shape[-1] == LANES and 0 not in shape


def _inspection(package: ModelPackage) -> Iterator[Finding]:
    listed = package.manifest.inspection
    root = package.path / INSPECT
    there = {p.relative_to(package.path).as_posix() for p in root.rglob("*") if p.is_file()}
    unknown = sorted(there - listed.keys())
    changed = [
        name
        for name in sorted(there & listed.keys())
        if file_sha256(package.path / name) != listed[name].sha256
    ]
    if changed or unknown:
        said = [f"{name} was changed" for name in changed] + [f"{name} is not described" for name in unknown]
        yield Finding(INSPECT, False, "; ".join(said[:5]))
    elif not there:
        yield Finding(INSPECT, True, "left out: `adt inspect` has less to show")
    else:
        missing = len(listed) - len(there)
        yield Finding(INSPECT, True, f"{len(there)} files" + (f", {missing} left out" if missing else ""))
