"""Names of kernels that every tool takes.

Fusing names a kernel after all of its operators; of a long chain that is longer than
some OpenCL implementations allow (PoCL keeps a kernel in a directory of its name, and
ends the process where the path is too long).
"""

from __future__ import annotations

import hashlib
from typing import Any

LONGEST = 60
"""Characters."""


def short_name(name: str) -> str:
    """*name*, or its beginning and a digest of it where it is longer than :data:`LONGEST`."""
    if len(name) <= LONGEST:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: LONGEST - 9].rstrip('_')}_{digest}"


def shorten_kernel_names() -> Any:
    """A pass that gives the kernels of a Relax module names that are not too long."""
    import tvm
    from tvm import ir, relax, tirx

    @tvm.transform.module_pass(opt_level=0, name="adt.ShortenKernelNames")  # type: ignore[untyped-decorator]
    def shorten(module: Any, _context: Any) -> Any:
        renamed = {}
        for variable, function in module.functions.items():
            short = short_name(variable.name_hint)
            if isinstance(function, tirx.PrimFunc) and short != variable.name_hint:
                renamed[variable] = ir.GlobalVar(short)
                relax.expr._update_struct_info(renamed[variable], variable.struct_info)
        if not renamed:
            return module

        @relax.expr_functor.mutator
        class Rename(relax.PyExprMutator):  # type: ignore[misc]
            def visit_global_var_(self, variable: Any) -> Any:
                return renamed.get(variable, variable)

        made = tvm.IRModule(attrs=module.attrs, global_infos=module.global_infos)
        for variable, function in module.functions.items():
            if isinstance(function, relax.Function):
                function = Rename(module).visit_expr(function)
            made.update_func(renamed.get(variable, variable), function)
        return made

    return shorten
