"""Half precision: which operators compute in it.

``float16`` computes, and adds up, in half precision. ``float16_acc32`` does too, but convolutions and matrix
products add up in float32, and what is fused behind them works on the unrounded sums. Inputs and outputs stay
float32. Weights that half operators read become half in ``mod.params``.

Half precision has 11 significant bits, ends at 65504, and everything under 6e-8 is 0. The
operators in KEPT do not stand that; they compute in float32.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.ir import Op

from adt.compiler.ir.nodes import operator_name
from adt.compiler.ir.rewriter import bindings_of, static_shape
from adt.errors import ConfigError
from adt.options.option import did_you_mean

log = logging.getLogger("adt.compile")

LARGEST = 65504.0  # the largest finite number of half precision

PRODUCTS = frozenset((
    "matmul", "nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.conv1d_transpose", "nn.conv2d_transpose",
    "nn.conv3d_transpose",
))  # fmt: skip
"""Operators that half precision is for: their inputs become half wherever they come from."""

ELEMENTWISE = frozenset((
    "abs", "add", "ceil", "clip", "divide", "erf", "floor", "maximum", "minimum", "multiply",
    "negative", "nn.dropout", "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.prelu", "nn.relu",
    "nn.selu", "nn.silu", "round", "rsqrt", "sigmoid", "sign", "sqrt", "subtract", "tanh", "trunc",
    "where",
))  # fmt: skip
"""Operators that follow their inputs, element by element."""

LAYOUT = frozenset((
    "broadcast_to", "concat", "expand_dims", "flatten", "flip", "layout_transform",
    "nn.batch_flatten", "nn.pad", "nn.pixel_shuffle", "permute_dims", "repeat", "reshape",
    "squeeze", "stack", "strided_slice", "tile", "tril", "triu",
))  # fmt: skip
"""Operators that follow their inputs and only move values, which is right on weights as well."""

MOVING = LAYOUT | frozenset((
    "full_like", "gather_elements", "gather_nd", "image.resize2d", "max", "min", "nn.max_pool1d",
    "nn.max_pool2d", "nn.max_pool3d", "split", "take",
))  # fmt: skip
"""Operators that follow their inputs but are no epilogue of another one."""

STORED_HALF = frozenset((
    "nn.softmax", "nn.log_softmax", "nn.layer_norm", "nn.group_norm", "nn.instance_norm",
    "nn.rms_norm", "nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d", "nn.adaptive_avg_pool1d",
    "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d",
))  # fmt: skip
"""Operators in KEPT whose result is as tame as their input: half again behind half inputs."""

EXPONENTIALS = "exp passes 65504 at 11.1, and its sums sooner"
SQUARES = "squares pass 65504 at 256, and epsilons under 6e-8 are 0"
SUMS = "a long sum in half precision loses its small terms, or passes 65504"
ANGLES = "an angle of 11 bits says little once it is over a few turns"

KEPT: Mapping[str, str] = {
    **dict.fromkeys(("nn.softmax", "nn.log_softmax", "nn.softplus", "exp", "log"), EXPONENTIALS),
    **dict.fromkeys(("nn.layer_norm", "nn.group_norm", "nn.instance_norm", "nn.rms_norm"), SQUARES),
    **dict.fromkeys(("power", "square", "variance", "std"), SQUARES),
    **dict.fromkeys(("sum", "mean", "prod", "cumsum", "cumprod"), SUMS),
    **dict.fromkeys((f"nn.{kind}avg_pool{n}d" for kind in ("", "adaptive_") for n in (1, 2, 3)), SUMS),
    **dict.fromkeys(("sin", "cos", "tan"), ANGLES),
}
"""Operators that compute in float32 unless ``--keep-float32=-NAME`` frees them, with the reason.

So do x * x, which is a square, and any operator that is in none of these tables.
"""


COMPUTING = PRODUCTS | ELEMENTWISE | KEPT.keys()  # operators that can compute in half precision

RELAY_NAMES = {"nn.dense": "matmul", "nn.batch_matmul": "matmul"}
"""Names of Relay's for operators of other names: ``--half-only`` takes lists that were written for it."""


@dataclass(frozen=True)
class Policy:
    """Policy of precision of the operators of one module."""

    accumulate: str
    """Type in which convolutions and matrix products add up: ``float16`` or ``float32``."""
    kept: frozenset[str]
    """Operators, without ``relax.``, that compute in float32."""
    kept_bindings: frozenset[str]
    """Relax variables whose operator computes in float32."""

    def half(self, op: str, binding: str) -> bool:
        """Return True if the operator *op* that gives *binding* may compute in half precision."""
        able = op in COMPUTING or op in MOVING
        return able and op not in self.kept and binding not in self.kept_bindings


def policy(
    module: tvm.IRModule, precision: str, keep: Sequence[str] = (), only: Sequence[str] = ()
) -> Policy:
    """Make the policy for *precision*.

    Args:
        keep: names of Relax operators (``nn.softmax``) or of Relax variables of *module*
            (``lv12``) that stay float32 on top of KEPT; ``-NAME`` takes an operator out of KEPT.
        only: the operators that may compute in half precision, of KEPT, too, besides those that only move
            values; none: all but KEPT.
    """
    kept = set(COMPUTING - _able(only)) if only else set(KEPT)
    bindings = set[str]()
    names = map(str, Op.list_op_names())
    operators = sorted(name.removeprefix("relax.") for name in names if name.startswith("relax."))
    bound = bindings_of(module)
    variables = {str(each.var.name_hint): name for each in bound if (name := operator_of(each.value))}
    for text in keep:
        freed = text.startswith("-")
        name = text.removeprefix("-").removeprefix("relax.")
        if freed and name in KEPT:
            kept.discard(name)
        elif not freed and name in operators:
            kept.add(name)
            if name not in variables.values():
                log.debug("--keep-float32 %s: the model has no such operator", name)
        elif not freed and name in variables:
            bindings.add(name)
        else:
            known = sorted(KEPT) if freed else [*operators, *variables]
            wrong = "is not kept by default" if freed else "is no operator of Relax"
            raise ConfigError(
                f"--keep-float32 {text}: {name!r} {wrong}.{did_you_mean(name, known)}",
                remedy=f"Kept by default: {', '.join(known)}."
                if freed
                else "Name operators as Relax does (nn.softmax, exp, add) or a variable of the imported "
                f"module (lv12). This model's operators: {', '.join(sorted(set(variables.values())))}.",
            )
    accumulate = "float32" if precision == "float16_acc32" else "float16"
    return Policy(accumulate, frozenset(kept), frozenset(bindings))


def _able(names: Sequence[str]) -> set[str]:
    """Return the operators that *names* mean; ConfigError if one cannot compute in half precision."""
    found = {name: RELAY_NAMES.get(name, name).removeprefix("relax.") for name in names}
    for name, operator in found.items():
        if operator not in COMPUTING:
            raise ConfigError(
                f"--half-only {name}: no such operator computes in half precision."
                f"{did_you_mean(operator, sorted(COMPUTING))}",
                remedy=f"Those that do: {', '.join(sorted(COMPUTING))}; what only moves values follows them.",
            )
    return set(found.values())


def multiplications(module: tvm.IRModule) -> int:
    """Return the multiplications in convolutions and products of *module*, as far as shapes are fixed."""
    total = 0
    for binding in bindings_of(module):
        call = binding.value
        if (op := operator_of(call)) not in PRODUCTS:
            continue
        output, weight = static_shape(binding.var), static_shape(call.args[1])
        if output and weight and len(weight) > 1:
            layout = "" if op == "matmul" else str(call.attrs.kernel_layout)
            terms = math.prod(weight) // weight[layout.index("O")] if layout else weight[-2]
            total += math.prod(output) * terms
    return total


def sums_whole_numbers(module: tvm.IRModule) -> bool:
    """Return True if a convolution or matrix product of *module* reads what was quantized."""
    values = {binding.var: binding.value for binding in bindings_of(module)}
    read = [value.args[0] for value in values.values() if operator_of(value) in PRODUCTS]
    return any("int" in dtype_of(data) or operator_of(values.get(data)) == "dequantize" for data in read)


def dtype_of(var: relax.Var) -> str:
    """Return the type of a tensor's elements; empty for what is no tensor."""
    return str(getattr(var.struct_info, "dtype", ""))


def operator_of(value: relax.Expr) -> str:
    """Return the operator that *value* calls, without ``relax.``; empty when it calls none."""
    return operator_name(value).removeprefix("relax.")
