"""Plan the memory of a module with images.

TVM 0.25 multiplies the size of an image, which is in bytes, by the bytes of an element
once more: a module in float32 would ask for four times the memory of its images.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

SIZE_OF_IMAGE = "DeviceGetMemSize.opencl"
"""The function that TVM's memory planner asks for the bytes of an image."""


def plan_memory() -> Any:
    """TVM's pass that gives tensors whose lives do not overlap the same memory, with images at their size."""
    import tvm
    from tvm import relax

    @tvm.transform.module_pass(opt_level=0, name="adt.PlanMemory")  # type: ignore[untyped-decorator]
    def plan(module: Any, _context: Any) -> Any:
        with _sizes_in_elements():
            return relax.transform.StaticPlanBlockMemory()(module)

    return plan


@contextlib.contextmanager
def _sizes_in_elements() -> Iterator[None]:
    """Meanwhile the planner gets elements, which it then multiplies by their bytes."""
    import tvm_ffi

    in_bytes = tvm_ffi.get_global_func(SIZE_OF_IMAGE)

    def in_elements(shape: Any, dtype: Any, device: Any) -> Any:
        from tvm import tirx

        size = int(in_bytes(shape, dtype, device))
        return tirx.IntImm("int64", size // (tvm_ffi.dtype(str(dtype)).bits // 8))

    tvm_ffi.register_global_func(SIZE_OF_IMAGE, in_elements, override=True)
    try:
        yield
    finally:
        tvm_ffi.register_global_func(SIZE_OF_IMAGE, in_bytes, override=True)
