"""The files of a ModelPackage, in a directory or in one ``.tar``.

The archive has the same bytes for the same package, and is unpacked without trust: only what a
package consists of may be in it (``mod.json``, ``mod.so``, ``mod.params`` and files below
``inspect/``), each once, each a plain file. It is read to its end before anything is written.

mod.params is in TVM's format (``tvm.runtime.save_param_dict``), tensors one behind the other. What aligns
them are small tensors between them, which belong to no entry: any reader of the format passes them over, and
a runner on a CPU maps the file in place of copying it.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from adt.errors import PackageError
from adt.host import cache
from adt.host.artefact import PACKAGE, not_a
from adt.host.contained import DAMAGED, Bounded, contained_file, regular_files, write_file
from adt.limits import is_long

MANIFEST = "mod.json"
LIBRARY = "mod.so"
PARAMS = "mod.params"
INSPECT = "inspect"  # directory of what `adt inspect` shows
ARCHIVE = ".tar"  # suffix of a package in one file
MOST_FILES = 20_000  # entries of an archive; a package has one for each kernel and a few more
MOST_BYTES = 64 << 30  # bytes that an archive may unpack to

_INSPECT = re.compile(INSPECT + r"(/[A-Za-z0-9_][A-Za-z0-9._+-]*)+")
_REMEDY = "Do not use this archive; get the package again, or compile the model: adt compile MODEL -o x.tar"


def is_archive(path: Path) -> bool:
    """Return True if *path* is named as a package in one file is."""
    return path.suffix == ARCHIVE


def is_inside(name: str) -> bool:
    """True if *name* can be that of a file below ``inspect/``: it does not leave the package."""
    return bool(_INSPECT.fullmatch(name)) and not is_long(name)


def part(directory: Path, name: str) -> Path:
    """Return the path of the file *name* of the package in *directory*."""
    return contained_file(directory, name, MOST_BYTES)


def names(directory: Path) -> tuple[str, ...]:
    """List the files of the package in *directory*, ``mod.json`` first, then sorted."""
    own = [name for name in (MANIFEST, LIBRARY, PARAMS) if os.path.lexists(directory / name)]
    return (*(part(directory, name).name for name in own), *inspection_names(directory))


def inspection_names(directory: Path) -> list[str]:
    """List the files below ``inspect/`` of the package in *directory*, sorted."""
    if (directory / INSPECT).is_symlink():
        part(directory, INSPECT)
    return [f"{INSPECT}/{name}" for name in regular_files(directory / INSPECT)]


def copy(directory: Path, to: Path, *, without: str = "") -> None:
    """Copy the package in *directory* into the directory *to*, but for the file *without*."""
    for name in names(directory):
        if name != without:
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(directory / name, to / name)


def pack(directory: Path, archive: Path) -> None:
    """Write the package in *directory* to *archive*, which appears complete or not at all.

    Names are sorted, ``mod.json`` first; times, owners and modes are the same for everybody.
    """
    with (
        cache.fresh_file(archive) as temporary,
        tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in names(directory):
            member = tarfile.TarInfo(name)
            member.size = (directory / name).stat().st_size
            member.mode = 0o644
            with (directory / name).open("rb") as file:
                tar.addfile(member, file)


def leave_alone(final: Path) -> None:
    """Refuse to write to *final* if it is there and no archive of a package."""
    if not final.exists():
        return
    first = None
    if final.is_file():
        with (
            suppress(*DAMAGED, OSError),
            Bounded(io.FileIO(final)) as file,
            tarfile.open(fileobj=file, mode="r:") as tar,
        ):
            first = tar.next()
    if first is None or first.name.removeprefix("./") not in ("", ".", MANIFEST, LIBRARY, PARAMS, INSPECT):
        what = f"{final} exists and is not a package; it was left alone"
        raise PackageError(what, remedy="Choose another -o.")


def unpack_cached(archive: Path) -> Path:
    """Return the contents of *archive*, unpacked on first use; PackageError if it is none of a package."""
    if not archive.is_file():
        raise not_a(PACKAGE, archive)
    return cache.entry(f"unpacked/{cache.file_sha256(archive)}", partial(unpack, archive))[0]


def unpack(archive: Path, directory: Path) -> None:
    """Unpack *archive* into the empty *directory*."""
    try:
        with Bounded(io.FileIO(archive)) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            members = list(_members(tar, archive))
            for name, member in members:
                member.mode = 0o644
                write_file(tar, member, directory, name)
    except DAMAGED as error:
        raise _refused(archive, f"is not a .tar archive, or is damaged: {error}") from error


def _members(tar: tarfile.TarFile, archive: Path) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """Yield every file of *tar* with the name it gets; that it is a plain one is for whoever writes it."""
    total = 0
    for count, member in enumerate(tar):
        name = re.sub(r"^(\./)+", "", member.name)
        total += member.size
        if count >= MOST_FILES:
            raise _refused(archive, f"has more than {MOST_FILES} entries")
        if total > MOST_BYTES:
            raise _refused(archive, f"would unpack to more than {MOST_BYTES >> 30} GiB")
        if member.isdir() and (name in ("", ".", INSPECT) or _INSPECT.fullmatch(name)):
            continue
        if name not in (MANIFEST, LIBRARY, PARAMS) and not _INSPECT.fullmatch(name):
            raise _refused(archive, f"has the entry {name[:80]!r}, which is not part of a package")
        yield name, member


def _refused(archive: Path, reason: str) -> PackageError:
    return PackageError(f"{archive} {reason}; nothing of it was used", remedy=_REMEDY)


PADDING = "adt.padding."  # names of what aligns others begin so
LEAST_BYTES = 4096  # smaller parameters are copied sooner than a page of them is mapped
_NUMBER, _TENSOR_HEAD = 8, 40
"""Bytes of a count, and of a tensor's head without its extents, each as long as a count."""


def write_params(params: Mapping[str, Any], path: Path, alignment: int) -> None:
    """Write *params* as *path*; each larger parameter begins at a multiple of *alignment* bytes."""
    import tvm

    aligned = dict(params) if alignment == 1 else _aligned(params, alignment)
    tvm.runtime.save_param_dict_to_file(aligned, str(path))


def read_tensors(path: Path) -> dict[str, Any]:
    """Return the parameters in *path*, tensors of TVM by name."""
    import tvm

    tensors = tvm.runtime.load_param_dict_from_file(str(path))
    return {str(name): tensor for name, tensor in tensors.items() if not str(name).startswith(PADDING)}


def _aligned(params: Mapping[str, Any], alignment: int) -> dict[str, Any]:
    """Put a padding before each larger one of *params*."""
    import numpy as np
    import tvm

    larger = {name: f"{PADDING}{name}" for name, tensor in params.items() if _bytes(tensor) >= LEAST_BYTES}
    names = [*params, *larger.values()]
    # Magic number, reserved number, how many names, each with its length, how many tensors.
    place = 4 * _NUMBER + sum(_NUMBER + len(name.encode()) for name in names)
    result: dict[str, Any] = {}
    for name, tensor in params.items():
        head = _TENSOR_HEAD + _NUMBER * len(tensor.shape)
        if name in larger:
            before = _TENSOR_HEAD + _NUMBER + head
            size = alignment - (place + before) % alignment  # never 0: TVM copies no empty tensor
            result[larger[name]] = tvm.runtime.tensor(np.zeros(size, np.uint8))
            place += _TENSOR_HEAD + _NUMBER + size
        result[name] = tensor
        place += head + _bytes(tensor)
    return result


def _bytes(tensor: Any) -> int:
    import tvm_ffi

    dtype = tvm_ffi.dtype(tensor.dtype)
    return prod(int(extent) for extent in tensor.shape) * (int(dtype.bits) * int(dtype.lanes) // 8)
