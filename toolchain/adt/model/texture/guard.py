"""What lowered kernels must fulfil so that their images hold what they should.

TVM's OpenCL code generator takes every store to an image for that of a whole texel,
and an image that is both read and written for one that is read. Neither is an error
there; both give wrong numbers. Here they are errors.

:func:`lowering` is what TVM does to a kernel on the way to OpenCL, with this check.
"""

from __future__ import annotations

from typing import Any

from adt.model.texture.blocks import LANES


def lowering() -> Any:
    """TVM's lowering of TIR, for kernels some of whose arguments are images."""
    import tvm
    import tvm.s_tir.pipeline
    from tvm.s_tir.backend.adreno.transform import TextureFlatten
    from tvm.tirx.compilation_pipeline import PIPELINE_MAP

    lower, _, _ = PIPELINE_MAP["s_tir"]()
    return tvm.transform.Sequential([TextureFlatten(), lower])


def check_images() -> Any:
    """A pass for lowered TIR that raises RuntimeError where :func:`image_faults` finds one.

    Every kernel was tried before (:func:`adt.model.texture.schedule.proven`): this is the
    last line, and what it stops is a fault of adt's.
    """
    import tvm

    @tvm.transform.module_pass(opt_level=0, name="adt.CheckImages")  # type: ignore[untyped-decorator]
    def check(module: Any, _context: Any) -> Any:
        if faults := image_faults(module):
            # Of any exception, TVM carries no more than the message through a pass.
            raise RuntimeError("a kernel would use images wrongly (use --target adreno-buffer): " + faults[0])
        return module

    return check


def image_faults(module: Any) -> list[str]:
    """What kernels of the lowered TIR *module* (after vectorisation) do wrong with images."""
    from tvm import tirx

    faults: list[str] = []
    for name, function in module.functions.items():
        if isinstance(function, tirx.PrimFunc):
            faults += [f"{name.name_hint} {fault}" for fault in _faults_of(function)]
    return faults


def _faults_of(function: Any) -> list[str]:
    from tvm import tirx

    read: set[str] = set()
    written: set[str] = set()
    faults: list[str] = []

    def visit(node: Any) -> None:
        if not isinstance(node, tirx.Call):
            return
        operator = getattr(node.op, "name", "")
        if operator == "tirx.texture2d_store":
            written.add(node.args[0].name)
            if not node.args[-1].dtype.endswith(f"x{LANES}"):
                faults.append(f"stores {node.args[-1].dtype}, which is no texel, to {node.args[0].name}")
        elif operator == "tirx.texture2d_load":
            read.add(node.args[0].name)
            if not _within_texel(node.args[-1]):
                faults.append(f"reads the lanes {node.args[-1]} of {node.args[0].name} at once")

    tirx.stmt_functor.post_order_visit(function.body, visit)
    return faults + [f"reads and writes the image {both}" for both in sorted(read & written)]


def _within_texel(lanes: Any) -> bool:
    """Whether the index of a load is one lane, or neighbouring ones."""
    from tvm import tirx

    if isinstance(lanes, tirx.Ramp):
        return int(lanes.lanes) <= LANES and isinstance(lanes.stride, tirx.IntImm) and int(lanes.stride) == 1
    return "x" not in lanes.dtype
