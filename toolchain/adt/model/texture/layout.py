"""Which operators of a model work on tensors in texels: convolutions, matrix products, and what joins them.

One walk over the model in its order (:mod:`adt.model.texture.walk`). An operator takes the
form of its tensors that it can use, and what is missing is made once. So whether an operator
works on texels is decided operator by operator, and the model stays right whatever is decided:
each rule rewrites one operator to one that computes the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adt.model.texture import shapes
from adt.model.texture.choice import BY_MODEL, Chooser
from adt.model.texture.convolutions import convolution
from adt.model.texture.elementwise import elementwise, prelu
from adt.model.texture.pools import adaptive_pool, global_pool, pool
from adt.model.texture.products import product
from adt.model.texture.report import Convolution
from adt.model.texture.rewriter import ELEMENTWISE, is_flat
from adt.model.texture.walk import RESHAPES, Rule, Walk

RULES: Mapping[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    **dict.fromkeys(RESHAPES, shapes.reshape),
    "relax.concat": shapes.concat,
    "relax.image.resize2d": shapes.resize,
    "relax.matmul": product,
    "relax.max": global_pool("max"),
    "relax.mean": global_pool("avg"),
    "relax.nn.adaptive_avg_pool2d": adaptive_pool,
    "relax.nn.avg_pool1d": pool("avg"),
    "relax.nn.avg_pool2d": pool("avg"),
    "relax.nn.conv1d": convolution,
    "relax.nn.conv2d": convolution,
    "relax.nn.max_pool1d": pool("max"),
    "relax.nn.max_pool2d": pool("max"),
    "relax.nn.pad": shapes.pad,
    "relax.nn.prelu": prelu,
    "relax.permute_dims": shapes.permute,
    "relax.split": shapes.split,
    "relax.strided_slice": shapes.strided_slice,
}


def block_channels(module: Any, chooser: Chooser = BY_MODEL) -> tuple[Any, tuple[Convolution, ...]]:
    """Rewrite ``main`` of the Relax *module* so that what can be in texels is.

    Args:
        module: static shapes; weights are bound as constants (they are packed here, once).
        chooser: says which of the operators that can be in texels are.

    Returns:
        The new module, and what became of each convolution and matrix product. A model with
        control flow, or without one of them that can be in texels, comes back as it was.
    """
    from tvm import relax

    if not is_flat(module):
        return module, ()
    walk = Walk(module, chooser, RULES)
    made = walk.run()
    operators = tuple(walk.operators)
    if all(done.reason for done in operators):
        return module, operators
    return relax.transform.DeadCodeElimination(["main"])(made), operators
