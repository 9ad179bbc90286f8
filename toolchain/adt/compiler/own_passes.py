"""Passes of the user's own, on a model that was just imported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import tvm
from tvm import relax, tirx

from adt.compiler.importers.imported_model import ImportedModel
from adt.compiler.targets import ModelTarget
from adt.errors import ModelError, last_line

OPAQUE = 8  # TVM's ``relax::OpPatternKind`` of what is not fused


def with_passes(
    imported: ImportedModel, passes: Sequence[Callable[[Any], Any]], target: ModelTarget, opt_level: int
) -> ImportedModel:
    """Apply the user's *passes* to *imported* in order; *target* is TVM's current one meanwhile."""
    module, before = imported.module, imported.module["main"]
    for each in passes:
        name = str(getattr(getattr(each, "info", None), "name", "")) or getattr(each, "__name__", repr(each))
        try:
            with tvm.transform.PassContext(opt_level=opt_level), tvm.target.Target(target.spec):
                module = each(module)
            main = module["main"]
            same = _types(main) == _types(before)
        except Exception as error:  # the user's own code
            raise ModelError(
                f"the pass {name} failed: {type(error).__name__}: {last_line(error)}",
                remedy="It is called with a tvm.IRModule and returns one, with main.",
            ) from error
        if not same:
            raise ModelError(
                f"the pass {name} changes what main takes or returns",
                remedy="Keep main's parameters, their order and types, and its result's type.",
            )
        module["main"] = main.with_attr("num_input", before.attrs["num_input"])
    return replace(imported, module=_unfused(module))


def _types(main: relax.Function) -> list[str]:
    return [str(parameter.struct_info) for parameter in main.params] + [str(main.ret_struct_info)]


def _unfused(module: tvm.IRModule) -> tvm.IRModule:
    """*module* whose kernels with 32-bit extents, as TVMScript has them unless ``T.int64`` is written, are
    not fused with others: TVM takes a buffer with other types of extents for another buffer."""
    for variable, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc):
            extents = [extent for buffer in function.buffer_map.values() for extent in buffer.shape]
            if any(str(extent.dtype) != "int64" for extent in extents):
                module[variable] = function.with_attr("op_pattern", OPAQUE)
    return module
