"""Rewrites of the source that TVM writes of a kernel for OpenCL.

A package holds the sources of all kernels, and a driver compiles each. Half of such a text are declarations
of the model's other kernels, calls that tell where a work-item is, and the lanes of constants.
"""

from __future__ import annotations

import re

import tvm_ffi

from adt.compiler.passes.words import with_words

REGISTERED = "tvm_callback_opencl_postproc"  # by this name TVM asks for it
_DECLARED = re.compile(r"^__kernel void [^{\n]*;\n", re.MULTILINE)
_HEAD = re.compile(r"^__kernel void [^{\n]* \{\n", re.MULTILINE)
_PLACE = re.compile(r"\(convert_int\(get_(group|local)_id\((\d)\)\)\)")
_LANES = re.compile(r"\(\((\w+4)\)\(([^(),]+|as_float\(-?\d+\))(?:, \2){3}\)\)")
_AS = re.compile(r"\(\*\((\w+) \*\)\(&\((\w+)\)\)\)")


def finish_sources() -> None:
    """Have TVM give :func:`finished` sources to the driver."""
    tvm_ffi.register_global_func(REGISTERED, lambda source, _target: finished(source), override=True)


def finished(source: str) -> str:
    """The *source* of one kernel without repetitions, behind what words are."""
    alone = _AS.sub(r"as_\1(\2)", _LANES.sub(r"((\1)(\2))", _DECLARED.sub("", source)))
    places = sorted(set(_PLACE.findall(alone)))
    named = "".join(f"  const int adt_{kind}{axis} = get_{kind}_id({axis});\n" for kind, axis in places)
    body = _PLACE.sub(r"adt_\1\2", alone)
    return with_words(_HEAD.sub(lambda head: head[0] + named, body))
