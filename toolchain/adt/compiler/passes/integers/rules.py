"""Rules by which the operators of a quantized model are rewritten."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax

from adt.compiler.passes.dot import Dot
from adt.compiler.passes.integers import moves
from adt.compiler.passes.integers.rewriter import Integers, Rule
from adt.compiler.passes.integers.sums import biased, convolution, product, summed, transposed
from adt.compiler.passes.integers.tensors import RANGES
from adt.package.reports import Convolution

_MOVES = (
    "expand_dims", "flatten", "nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d", "split", "squeeze",
    "strided_slice",
)  # fmt: skip
_RULES: Mapping[str, Rule] = {
    **{f"relax.{name}": moves.moved for name in _MOVES},
    **{f"relax.nn.avg_pool{rank}d": moves.mean for rank in (1, 2, 3)},
    **{f"relax.nn.conv{rank}d": summed(convolution) for rank in (1, 2, 3)},
    **{f"relax.nn.conv{rank}d_transpose": summed(transposed) for rank in (1, 2, 3)},
    "relax.add": biased,
    "relax.astype": moves.widened,
    "relax.concat": moves.concat,
    "relax.dequantize": moves.dequantize,
    "relax.image.resize2d": moves.nearest,
    "relax.matmul": summed(product),
    "relax.mean": moves.mean,
    "relax.nn.adaptive_avg_pool2d": moves.mean,
    "relax.nn.pad": moves.pad,
    "relax.nn.relu": moves.relu,
    "relax.permute_dims": moves.transposed_weights,
    "relax.quantize": moves.quantize,
    "relax.reshape": moves.reshaped_weights,
    "relax.subtract": moves.subtracted,
    "relax.take": moves.taken,
    "relax.where": moves.finite,
}


def in_integers(
    module: tvm.IRModule,
    data: str,
    least: int = RANGES["int8"][0],
    computed: Dot | None = None,
    *,
    inlined: bool = False,
) -> tuple[tvm.IRModule, tuple[Convolution, ...]]:
    """Rewrite the flat *module*, with its parameters bound, to integers.

    Returns it, and the outcome of each convolution and product if it is quantized.

    Args:
        data: type of what the processor multiplies by weights.
        least: of these; what has others stays as it is.
        computed: its instruction for products of two computed tensors; None: these are of floats.
        inlined: a scale is part of each kernel: a GPU takes longer to be told of each parameter. Else it is
            one, so that layers of other scales have the same kernel.
    """
    integers = Integers(module, _RULES, data, least, computed, inlined)
    result = relax.transform.DeadCodeElimination(["main"])(integers.run())
    return result, integers.convolutions()
