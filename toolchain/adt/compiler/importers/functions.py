"""The functions of TVM's runtime that a compiled model calls.

The compiler takes any name on trust: a function that nothing registers where the model runs is
missed by the first run, on the device. TVM's Python code registers some that no runtime has.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, tirx

from adt.compiler.importers.imported_model import ImportedModel
from adt.compiler.importers.op_table import OpRow
from adt.compiler.ir.nodes import is_call, relax_nodes, tir_nodes
from adt.errors import UnsupportedOp
from adt.host.process import run

GPU_KINDS = ("opencl", "cuda")  # kinds of modules with a GPU's kernels
OWN = "__tvm"  # names of the code generator's own functions, which every runtime has, start so

# Arguments: libraries, "--", names. Prints the names that none of the libraries registers.
_ASK = """
import ctypes, sys
split = sys.argv.index("--")
ffi, *_ = [ctypes.CDLL(library, ctypes.RTLD_GLOBAL) for library in sys.argv[1:split]]
class Text(ctypes.Structure):
    _fields_ = [("data", ctypes.c_char_p), ("size", ctypes.c_size_t)]
for name in sys.argv[split + 1:]:
    function = ctypes.c_void_p()
    ffi.TVMFFIFunctionGetGlobal(ctypes.byref(Text(name.encode(), len(name))), ctypes.byref(function))
    if not function.value:
        print(name)
"""


def called_functions(built: Any, lowered: Any) -> tuple[str, ...]:
    """Return the functions of the runtime that a compiled model, or a kernel of *lowered*, calls, sorted.

    *lowered* is the module after the last Relax pass.
    """
    globals_line = re.search(r"Globals \(#\d+\): \[(.*)\]", built.stats())
    names = set(globals_line[1].split(", ")) if globals_line else set()
    names -= set(re.findall(r"^@(\S+):", built.as_text(), re.MULTILINE))  # the executable's own
    kernels = {
        str(variable.name_hint): function
        for variable, function in lowered.functions.items()
        if isinstance(function, tirx.PrimFunc)
    }
    names |= {
        str(call.args[0].value)
        for kernel in kernels.values()
        for call in tir_nodes(kernel.body, tirx.Call)
        if is_call(call, "tirx.tvm_call_packed")
    }
    parts = list(_imported(built.mod))
    own = {name for name in names if any(part.implements_function(name, False) for part in parts)}
    return tuple(sorted(name for name in names - own - kernels.keys() if not name.startswith(OWN)))


def _imported(module: Any) -> Iterator[Any]:
    """Yield the modules with what was handed over to libraries.

    Modules with kernels are left out: the lowered module has their names, and TVM's wheel refuses to list
    those of a GPU or another processor. So are the constants around them.
    """
    for inner in module.imports:
        if inner.kind not in (*GPU_KINDS, "llvm", "const_loader"):
            yield inner
        if inner.kind not in GPU_KINDS:
            yield from _imported(inner)


def packed_functions(module: Any) -> tuple[str, ...]:
    """Return the functions of the runtime that operators of an imported *module* stand for, sorted."""
    names = {
        str(call.op.get_attr("FCallPacked") or "")
        for function in module.functions.values()
        if isinstance(function, relax.Function)
        for call in relax_nodes(function, relax.Call)
        if isinstance(call.op, ir.Op)
    }
    return tuple(sorted(names - {""}))


def check_functions(imported: ImportedModel, called: Iterable[str], registered: Collection[str]) -> None:
    """Check that a runtime has the functions that *imported* calls; the error names operators, if it can."""
    missing = missing_functions(called, registered)
    if not missing:
        return
    rows = rows_of_functions(imported.ops, missing)
    operators = ", ".join(f"{row.op} ({row.count} of them)" if row.count > 1 else row.op for row in rows)
    raise UnsupportedOp(
        f"{imported.file.name} would compile but not run: it needs {', '.join(missing)}, which no runtime on"
        f" a device has{f'; operator: {operators}' if operators else ''}",
        remedy="Export the model without that operator, or only the part before it;"
        f" `adt compile {quote(str(imported.file))} --explain` lists every operator.",
    )


def rows_of_functions(ops: Iterable[OpRow], functions: Iterable[str]) -> list[OpRow]:
    """Return the operators that *functions* come from, as far as their names tell."""
    stems = {name.rpartition(".")[2].replace("_", "") for name in functions}
    return [row for row in ops if row.op.rpartition(":")[2].replace("_", "").lower() in stems]


def unrunnable(module: Any, ops: Sequence[OpRow]) -> dict[str, str]:
    """Return those of *ops*, the operators of an imported *module*, that no runtime can run, with a note."""
    missing = missing_functions(packed_functions(module), ())
    return {
        row.op: "it is computed by a Python function of TVM, which no runtime on a device has"
        for row in rows_of_functions(ops, missing)
    }


def missing_functions(called: Iterable[str], registered: Collection[str]) -> tuple[str, ...]:
    """Return those of *called* that a runtime lacks; the installed TVM's, where *registered* is empty."""
    if registered:
        return tuple(name for name in called if name not in registered)

    parts = [Path(tvm.__file__).parent / "lib" / f"libtvm_runtime{part}.so" for part in ("", "_extra")]
    present = [library for library in parts if library.is_file()]
    ffi = Path(tvm_ffi.libinfo.find_libtvm_ffi())
    return unregistered([ffi, *present], called) if present else ()


def unregistered(libraries: Sequence[Path], names: Iterable[str]) -> tuple[str, ...]:
    """Return those of *names* that no library (libtvm_ffi is first) registers, without TVM's Python code."""
    return tuple(run([sys.executable, "-I", "-S", "-c", _ASK, *libraries, "--", *names]).stdout.split())
