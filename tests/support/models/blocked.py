"""Small models in Relax, and whether they compute the same on tensors in texels; run on the CPU."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from adt.compiler.passes.gpu.choice import ALWAYS, TextureChooser
from adt.compiler.passes.layout.channels import channels_first
from adt.compiler.passes.layout.operators import block_channels

RANDOM = np.random.default_rng(7)
_FIRST = RANDOM.bit_generator.state


def model(shape: tuple[int, ...], body: Callable[[relax.BlockBuilder, Any], Any]) -> tvm.IRModule:
    """Return a module whose ``main`` computes *body* of one float32 input of *shape*.

    Its random weights, and the inputs drawn after them, are the same whatever other tests drew before.
    """
    RANDOM.bit_generator.state = _FIRST
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo(shape, "float32"))
    with builder.function("main", params=[x], attrs={"num_input": 1}):
        with builder.dataflow():
            result = builder.emit_output(body(builder, x))
        builder.emit_func_output(result)
    return builder.get()


def emitted(builder: relax.BlockBuilder, call: relax.Call) -> relax.Var:
    """Bind the calls within *call* to variables, and then *call*."""
    args = [emitted(builder, arg) if isinstance(arg, relax.Call) else arg for arg in call.args]
    return builder.emit(relax.Call(call.op, args, call.attrs, call.sinfo_args))


def weight(*shape: int) -> relax.Constant:
    return relax.const(RANDOM.normal(size=shape).astype(np.float32))


PLAIN = {"kind": "llvm", "opt-level": 0}
"""Code that LLVM does not optimize, which is compiled fastest."""


def computed(
    module: tvm.IRModule, x: np.ndarray, *weights: Any, target: Any = PLAIN, lowered: bool = False
) -> list[np.ndarray]:
    """Return the outputs of *module* on this machine's CPU.

    Args:
        lowered: its kernels are scheduled; without, they are plain loops.
    """
    pipeline = tvm.transform.Sequential([]) if lowered else relax.get_pipeline("default_build")
    executable = tvm.compile(module, tvm.target.Target(target), relax_pipeline=pipeline)
    result = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x), *weights)
    return [result.numpy()] if hasattr(result, "numpy") else [part.numpy() for part in result]


def blocked_like_plain(
    module: tvm.IRModule, shape: tuple[int, ...], chooser: TextureChooser = ALWAYS
) -> tuple[tvm.IRModule, list[str]]:
    """Check that blocking changes no number; the blocked module and why convolutions were left alone.

    Channels that are last are moved first.
    """
    blocked, convolutions = block_channels(channels_first(module), chooser.choose)
    x = RANDOM.normal(size=shape).astype(np.float32)
    for have, expected in zip(computed(blocked, x), computed(module, x), strict=True):
        assert have.shape == expected.shape
        np.testing.assert_allclose(have, expected, rtol=1e-4, atol=1e-5)
    return blocked, [row.reason for row in convolutions]


def calls(module: tvm.IRModule) -> list[str]:
    """Return kernels and operators that ``main`` calls, by name."""
    values = [binding.value for block in module["main"].body.blocks for binding in block.bindings]
    return [
        value.args[0].name_hint if value.op.name == "relax.call_tir" else value.op.name
        for value in values
        if isinstance(value, relax.Call)
    ]


def conv(x: Any, out: int, inputs: int, kernel: int = 3, **options: Any) -> Any:
    options = {"padding": kernel // 2, **options}
    return relax.op.nn.conv2d(x, weight(out, inputs, kernel, kernel), **options)


def transposed(x: Any, inputs: int, out: int, kernel: int = 3, *, groups: int = 1, **options: Any) -> Any:
    return relax.op.nn.conv2d_transpose(
        x, weight(inputs, out // groups, kernel, kernel), groups=groups, **options
    )


def last(x: Any, out: int, inputs: int, kernel: int = 3, order: str = "HWIO", **options: Any) -> Any:
    """Return a convolution with its channels last, as TFLite's importer writes it."""
    sizes = {"H": kernel, "W": kernel, "I": inputs, "O": out}
    options = {"padding": kernel // 2, "data_layout": "NHWC", "kernel_layout": order, **options}
    return relax.op.nn.conv2d(x, weight(*(sizes[axis] for axis in order)), **options)
