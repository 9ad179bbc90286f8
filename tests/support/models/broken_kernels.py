"""Packages with one kernel that computes something else than the model says."""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adt.compiler import assemble
from adt.compiler.passes import pipeline


def broken_source(package: Path, copy: Path, function: str, old: bytes, new: bytes) -> Path:
    """Copy the OpenCL *package* with *new* for the first *old* in the code of *function*.

    The source is in mod.so as text; *new* is as long as *old*, and mod.json is mended.
    """
    assert len(old) == len(new)
    library = (package / "mod.so").read_bytes()
    sections = [match.start() for match in re.finditer(rb"// Function: ", library)]
    start = library.index(b"// Function: %s_kernel\n" % function.encode())
    end = next((at for at in sections if at > start), len(library))
    body = library.rindex(b"__kernel", start, end)  # prototypes of all kernels come before
    at = library.index(old, body, end)
    return with_library(package, copy, library[:at] + new + library[at + len(old) :])


def with_library(package: Path, copy: Path, library: bytes) -> Path:
    """Copy *package* with another mod.so, which its mod.json describes."""
    shutil.copytree(package, copy)
    (copy / "mod.so").write_bytes(library)
    facts = json.loads((copy / "mod.json").read_text())
    facts["files"]["mod.so"] |= {"sha256": hashlib.sha256(library).hexdigest(), "size": len(library)}
    (copy / "mod.json").write_text(json.dumps(facts))
    return copy


@contextmanager
def broken_tir(function: str, old: str, new: str) -> Iterator[None]:
    """Let compiling replace nodes of the kind *old* by the kind *new* in the kernel *function*."""
    import tvm

    @tvm.transform.module_pass(opt_level=0, name="Break")  # type: ignore[untyped-decorator]
    def wrong(module: Any, _context: Any) -> Any:
        variable = module.get_global_var(function)
        text = tvm.ir.save_json(module[variable])
        assert f'"{old}"' in text
        module.update_func(variable, tvm.ir.load_json(text.replace(f'"{old}"', f'"{new}"')))
        return module

    def prepare(*arguments: Any, **options: Any) -> Any:
        prepared = pipeline.prepare_module(*arguments, **options)
        passes = tvm.transform.Sequential([prepared.relax_pipeline, wrong])
        return replace(prepared, relax_pipeline=passes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assemble, "prepare_module", prepare)
        yield
