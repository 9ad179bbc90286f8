"""``inspect/plain.json.gz``: each kernel as it was before it was scheduled, TIR in TVM's JSON, gzip.

Such a kernel is plain loops over plain buffers: any machine can compile and run it.
What a device's kernel computed can so be told apart from what it should have computed
(:mod:`adt.measure.layers`), without the source model and without compiling it again.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adt.errors import PackageError
from adt.host.contained import read_contained
from adt.package.files import INSPECT
from adt.package.graphs import MOST_BYTES, GraphError, check_graph
from adt.package.package import ModelPackage

PLAIN = "plain.json.gz"


def collect_kernels(into: dict[str, Any]) -> Any:
    """Make a pass that puts the kernels of the module at its place in *into*, by name."""
    import tvm

    @tvm.transform.module_pass(opt_level=0, name="adt.KeepPlain")  # type: ignore[untyped-decorator]
    def keep(module: Any, _context: Any) -> Any:
        into.update(kernels_of(module))
        return module

    return keep


def kernels_of(module: Any) -> dict[str, Any]:
    """Return the kernels of *module*, by name."""
    import tvm

    return {
        str(variable.name_hint): function
        for variable, function in module.functions_items()
        if isinstance(function, tvm.tirx.PrimFunc)
    }


def compress(functions: Mapping[str, Any]) -> bytes:
    """Write the file's bytes: the same for the same kernels."""
    import tvm

    text = str(tvm.ir.save_json(tvm.runtime.convert(dict(sorted(functions.items())))))
    return gzip.compress(text.encode(), 6, mtime=0)


def reference_file(package: ModelPackage) -> Path:
    """Check the file of *package* with its kernels before they were scheduled, and return its path."""
    name = f"{INSPECT}/{PLAIN}"
    path, facts = package.path / name, package.manifest.inspection.get(name)
    remedy = f"Compile it again: {package.manifest.compile_command()}"
    if facts is None or not os.path.lexists(path):
        raise PackageError(
            f"the package {package.place} has no {name}: it was left out, or an older adt made the package",
            remedy=remedy,
        )
    data = read_contained(package.path, name, MOST_BYTES)
    if hashlib.sha256(data).hexdigest() != facts.sha256:
        raise PackageError(f"{path} is not the file that mod.json describes", remedy=remedy)
    try:
        check_graph(decompress(data))
    except GraphError as error:
        raise PackageError(f"{path} cannot be read: {error}", remedy=remedy) from error
    return path


def decompress(data: bytes) -> str:
    """Decompress *data* of :func:`compress` to its JSON."""
    try:
        return zlib.decompressobj(wbits=31).decompress(data, MOST_BYTES).decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise GraphError(f"no compressed text: {error}") from error


def read_kernels(data: bytes) -> dict[str, Any]:
    """Read the kernels that :func:`compress` made *data* of, by name; TVM trusts what it reads here."""
    import tvm

    return {str(name): function for name, function in tvm.ir.load_json(decompress(data)).items()}
