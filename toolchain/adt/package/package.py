"""ModelPackage: ``mod.so``, ``mod.params`` and ``mod.json`` in one directory, or in one ``.tar`` of it.

Its parameters can be split off, for apps that ship them as an asset pack, and put back.
"""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from shlex import quote

from adt.errors import PackageError
from adt.host import cache
from adt.host.document import HIDDEN, form, in_document
from adt.package import files
from adt.package.files import LIBRARY, MANIFEST, PARAMS, is_archive, unpack_cached
from adt.package.manifest import PackageManifest, read_manifest

CODE_PART, PARAMS_PART = "code", "params"


@dataclass(frozen=True)
class OutputCheck:
    """Distance of one output from the CPU's."""

    name: str
    difference: float
    """Greatest difference, as a share of the output's greatest magnitude; of integers, the
    share that differs."""
    floating: bool
    passed: bool = True
    """It is within the limit, or off by one quantum where it was quantised."""
    nothing_finite: bool = False
    """It is NaN or infinite everywhere, on the CPU, too."""


@dataclass(frozen=True)
class KernelCheck:
    """The package's kernels ran on the machine that compiled them and computed what its CPU does."""

    device: str
    """OpenCL device, for people."""
    inputs: str
    """Description of the inputs that they computed on."""
    limit: float
    """Largest difference that passes."""
    outputs: tuple[OutputCheck, ...]

    @property
    def worst(self) -> float:
        """Largest difference of an output."""
        return max((row.difference for row in self.outputs), default=0.0)


@dataclass(frozen=True)
class SkippedCheck:
    """They did not run there."""

    reason: str


def save_check(check: KernelCheck | SkippedCheck | None, path: Path) -> None:
    """Write *check* to the JSON file *path*; None writes nothing."""
    if check is not None:
        path.write_text(json.dumps(asdict(check)))


def load_check(path: Path) -> KernelCheck | SkippedCheck | None:
    """Read what :func:`save_check` wrote; None without the file."""
    if not path.is_file():
        return None
    facts = json.loads(path.read_text())
    if "reason" in facts:
        return SkippedCheck(**facts)
    return KernelCheck(**{**facts, "outputs": tuple(OutputCheck(**row) for row in facts["outputs"])})


@dataclass(frozen=True)
class ModelPackage:
    """A package on disk."""

    path: Path = field(metadata=HIDDEN)
    manifest: PackageManifest = field(metadata=form("package"))
    archive: Path | None = field(default=None, metadata=HIDDEN)
    """The .tar it came from, whose contents *path* has."""
    cached: bool = False
    """Compiling took it from the cache."""
    checked: KernelCheck | SkippedCheck | None = None
    """Result of running its kernels on this machine when it was compiled; None: that was not asked for, or
    it was not compiled."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The three files that go to a device, mod.json last."""
        return (self.path / LIBRARY, self.path / PARAMS, self.path / MANIFEST)

    @property
    @in_document("path")
    def place(self) -> Path:
        """Path that the user has: the .tar or the directory."""
        return self.archive or self.path


def load_package(path: Path, *, check_hashes: bool = True) -> ModelPackage:
    """Open the package in the directory or .tar archive *path*; PackageError if it is none, or was changed.

    Files below ``inspect/`` may be absent; `adt package verify` checks those that are there.
    """
    remedy = f"Compile the model again: adt compile MODEL -o {quote(str(path))}"
    archive = None
    if is_archive(path) and not path.is_dir():
        archive, path = path, unpack_cached(path)
    facts = read_manifest(path / MANIFEST, remedy=remedy)
    remedy = f"Compile the model again: {facts.compile_command('-o', str(archive or path))}"
    for name in (LIBRARY, PARAMS):
        if name not in facts.files:
            raise PackageError(f"{path / MANIFEST} does not describe {name}", remedy=remedy)
        try:
            file = files.part(path, name)
        except FileNotFoundError as error:
            merge = f"If its parameters were split off: adt package merge {quote(str(path))} PARAMS -o DIR. "
            raise PackageError(
                f"the package {archive or path} lacks {name}",
                remedy=merge + remedy if name == PARAMS else remedy,
            ) from error
        if check_hashes and cache.file_sha256(file) != facts.files[name].sha256:
            raise PackageError(f"{file} is not the file that mod.json describes", remedy=remedy)
    return ModelPackage(path, facts, archive)


def refuse_others(out: Path) -> None:
    """Let *out* be a package, an empty directory or absent."""
    if is_archive(out) and not out.is_dir():
        files.leave_alone(out)
    else:
        cache.leave_alone(out, lambda there: (there / MANIFEST).is_file(), "a package")


def write_package(package: ModelPackage, out: Path) -> ModelPackage:
    """Copy *package* to the directory or .tar *out*, which appears complete or not at all."""
    refuse_others(out)
    if is_archive(out):
        files.pack(package.path, out)
        return replace(load_package(out), checked=package.checked)
    with cache.fresh_dir(out) as directory:
        files.copy(package.path, directory)
    return ModelPackage(out, package.manifest, checked=package.checked)


@dataclass(frozen=True)
class SplitPackage:
    """A package in two directories; ``mod.json`` of the code still names the parameters by their sha256."""

    code: Path
    """``mod.json``, ``mod.so`` and ``inspect/``."""
    params: Path
    """``mod.params`` alone."""
    manifest: PackageManifest


def split_params(package: ModelPackage, out: Path) -> SplitPackage:
    """Write ``code/`` and ``params/`` into the directory *out*, which appears complete or not at all."""
    cache.leave_alone(out, lambda there: (there / CODE_PART / MANIFEST).is_file(), "a split package")
    with cache.fresh_dir(out) as directory:
        (directory / PARAMS_PART).mkdir()
        files.copy(package.path, directory / CODE_PART, without=PARAMS)
        shutil.copyfile(package.path / PARAMS, directory / PARAMS_PART / PARAMS)
    return SplitPackage(out / CODE_PART, out / PARAMS_PART, package.manifest)


def merge_params(code: Path, params: Path, directory: Path) -> ModelPackage:
    """Put a split package together in *directory*; its files are those that were split, byte by byte.

    *code* has ``mod.json`` and ``mod.so``, or these as ``code/``; *params* is ``mod.params``, or its
    directory.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        code = files.part(code, f"{CODE_PART}/{MANIFEST}").parent
    with suppress(FileNotFoundError, NotADirectoryError):
        params = files.part(params, PARAMS)
    remedy = (
        "Name the parts that `adt package split-params` made: adt package merge DIR/code DIR/params -o PKG"
    )
    facts = read_manifest(code / MANIFEST, remedy=remedy)
    if not (code / LIBRARY).is_file():
        raise PackageError(f"{code} has no {LIBRARY}: it is no part of a package", remedy=remedy)
    if not params.is_file():
        raise PackageError(f"there is no parameter file {params}", remedy=remedy)
    if PARAMS not in facts.files or cache.file_sha256(params) != facts.files[PARAMS].sha256:
        raise PackageError(
            f"{params} does not have the parameters of {facts.name} in {code}",
            remedy="Take the parts of the same package; several models stay several packages.",
        )
    files.copy(code, directory, without=PARAMS)
    shutil.copyfile(params, directory / PARAMS)
    return load_package(directory)
