"""Scheduled kernels on this machine's OpenCL device, beside their plain loops on its CPU."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import tvm
from tvm.tirx import PrimFunc

from adt.bundle.plugins import load_plugin, opencl_runtime
from adt.compiler.passes.gpu.placement import with_images
from adt.compiler.passes.lowering import tir_pipeline
from support.models.blocked import PLAIN

ADRENO = tvm.target.Target(
    {
        "kind": "opencl",
        "device": "adreno",
        "keys": ["adreno", "opencl", "gpu", "texture"],
        "host": {"kind": "llvm"},
    }
)


def built(function: PrimFunc, target: Any = ADRENO) -> Any:
    """Compile *function*, for a GPU with its arguments in images or in buffers."""
    images = any("texture" in scope for scope in _scopes(function))
    gpu = target.kind.name == "opencl"
    main = function.with_attr({"global_symbol": "main", "tirx.noalias": True})
    pipeline = tir_pipeline(64, textures=gpu and images, buffers=gpu and not images)
    return tvm.compile(tvm.IRModule({"main": main}), target=target, tir_pipeline=pipeline)


def _scopes(function: PrimFunc) -> list[str]:
    return [function.buffer_map[parameter].scope() for parameter in function.params]


def _computed(function: PrimFunc, target: Any, device: Any, arrays: list[Any]) -> Any:
    tensors = [
        tvm.runtime.empty(
            array.shape, array.dtype, device, mem_scope=scope if "texture" in scope else None
        ).copyfrom(array)
        for array, scope in zip(arrays, _scopes(function), strict=True)
    ]
    built(function, target)["main"](*tensors)
    device.sync()
    return tensors[-1].numpy()


def check_schedules(function: PrimFunc, schedules: Iterable[PrimFunc]) -> None:
    """Check that *schedules* compute on OpenCL the values of the unscheduled *function* on the CPU."""
    load_plugin(opencl_runtime())
    random = np.random.default_rng(0)
    buffers = [function.buffer_map[parameter] for parameter in function.params]
    arrays = [random.uniform(-1, 1, [int(n) for n in b.shape]).astype(b.dtype) for b in buffers]
    plain = with_images(function, (False,) * len(buffers))
    expected = _computed(plain, tvm.target.Target(PLAIN), tvm.cpu(), arrays)
    arrays[-1] = np.full_like(arrays[-1], np.nan)
    for schedule in schedules:
        values = _computed(schedule, ADRENO, tvm.opencl(), arrays)
        np.testing.assert_allclose(
            values, expected, rtol=0, atol=1e-5 * float(np.abs(expected).max()), err_msg=str(schedule)
        )
