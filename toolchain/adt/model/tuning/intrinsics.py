"""TVM's tensor intrinsics, for the processors that are compiled for.

Whatever tunes or applies a schedule with TVM's MetaSchedule imports all intrinsics that
TVM has. Those for tensor cores of CUDA GPUs alone take ten seconds, and no device that
adt serves has any.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec

PACKAGE = "tvm.s_tir.tensor_intrin"
PROCESSORS = {"x86_64": "x86", "aarch64": "arm_cpu"}
"""Module of the intrinsics by architecture, the first word of LLVM's triple."""


def need_intrinsics(triple: str = "") -> None:
    """Make TVM know the intrinsics for *triple*; for a GPU, without one, none.

    TVM's package is put in place without running what it runs on import; a module of it that
    somebody else wants can still be imported.
    """
    import tvm.s_tir  # noqa: F401

    if PACKAGE not in sys.modules and (found := find_spec(PACKAGE)) and found.submodule_search_locations:
        bare = ModuleSpec(PACKAGE, None, is_package=True)
        bare.submodule_search_locations = list(found.submodule_search_locations)
        sys.modules[PACKAGE] = module_from_spec(bare)
    if module := PROCESSORS.get(triple.partition("-")[0]):
        importlib.import_module(f"{PACKAGE}.{module}")
