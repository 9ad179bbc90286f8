"""Operators in half precision and their weights; numbers are in the integration tests."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from adt.compiler.passes.precision.half import rewrite
from adt.compiler.passes.precision.policy import KEPT, multiplications, operator_of, policy
from adt.errors import ConfigError

Build = Callable[[relax.BlockBuilder, Any, Mapping[str, Any]], Any]


def module(build: Build, shape: Sequence[int], **weights: np.ndarray) -> tuple[Any, dict[str, Any]]:
    """Return ``main(x, weights…)`` with the body that *build* emits, and its parameters."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo(shape, "float32"))
    params = {
        name: relax.Var(name, relax.TensorStructInfo(data.shape, "float32")) for name, data in weights.items()
    }
    with builder.function("main", [x, *params.values()], {"num_input": 1}):
        with builder.dataflow():
            result = builder.emit_output(build(builder, x, params))
        builder.emit_func_output(result)
    return builder.get(), {name: tvm.runtime.tensor(data) for name, data in weights.items()}


def operators(reduced: Any) -> list[tuple[str, str]]:
    """Return operator and type of its result, casts left out, in order of execution."""
    return [
        (operator_of(binding.value), binding.var.struct_info.dtype)
        for block in reduced["main"].body.blocks
        for binding in block.bindings
        if operator_of(binding.value) not in ("", "astype")
        and isinstance(binding.var.struct_info, relax.TensorStructInfo)
    ]


def types(params: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(tensor.dtype) for name, tensor in params.items()}


def weight(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def mlp(builder: relax.BlockBuilder, x: Any, w: Mapping[str, Any]) -> Any:
    """Build matmul, add, relu, matmul, softmax."""
    h = builder.emit(relax.op.matmul(x, w["w"]))
    h = builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(h, w["b"]))))
    return builder.emit(relax.op.nn.softmax(builder.emit(relax.op.matmul(h, w["v"]))))


MLP = {"w": weight(8, 16), "b": weight(16), "v": weight(16, 4)}


@pytest.mark.parametrize("precision", ["float16", "float16_acc32"])
def test_inputs_and_outputs_stay_float32(precision: str) -> None:
    rewritten, params = rewrite(*module(mlp, (2, 8), **MLP), precision)
    assert [p.struct_info.dtype for p in rewritten["main"].params][:1] == ["float32"]
    assert rewritten["main"].ret_struct_info.dtype == "float32"
    assert len(rewritten["main"].params) == 1 + len(params) and rewritten["main"].attrs["num_input"] == 1
    relax.analysis.well_formed(rewritten)


def test_acc32_adds_up_in_float32_and_rounds_behind_the_fused_operators() -> None:
    rewritten, params = rewrite(*module(mlp, (2, 8), **MLP), "float16_acc32")
    assert operators(rewritten) == [
        ("matmul", "float32"),
        ("add", "float32"),
        ("nn.relu", "float32"),
        ("matmul", "float32"),
        ("nn.softmax", "float32"),
    ]
    assert types(params) == {"w": "float16", "b": "float32", "v": "float16"}
    reads = [b.value for b in rewritten["main"].body.blocks[0].bindings if operator_of(b.value) == "matmul"]
    assert {arg.struct_info.dtype for call in reads for arg in call.args} == {"float16"}


def test_float16_adds_up_in_half_precision() -> None:
    rewritten, params = rewrite(*module(mlp, (2, 8), **MLP), "float16")
    assert operators(rewritten)[:4] == [
        ("matmul", "float16"),
        ("add", "float16"),
        ("nn.relu", "float16"),
        ("matmul", "float16"),
    ]
    assert operators(rewritten)[4] == ("nn.softmax", "float32")
    assert set(types(params).values()) == {"float16"}
    assert params["w"].numpy() == pytest.approx(MLP["w"].astype(np.float16))


def test_float32_changes_nothing() -> None:
    original, params = module(mlp, (2, 8), **MLP)
    assert rewrite(original, params, "float32") == (original, params)


def test_what_was_given_is_left_alone() -> None:
    original, params = module(mlp, (2, 8), **MLP)
    before = original.script()
    rewrite(original, params, "float16")
    assert original.script() == before and set(types(params).values()) == {"float32"}


def test_a_weight_is_cast_through_what_only_moves_it() -> None:
    """Store w as half although ONNX's transposed matrices reach the product as permute_dims(w)."""

    def build(builder: relax.BlockBuilder, x: Any, w: Mapping[str, Any]) -> Any:
        return builder.emit(relax.op.matmul(x, builder.emit(relax.op.permute_dims(w["w"], [1, 0]))))

    rewritten, params = rewrite(*module(build, (2, 8), w=weight(4, 8)), "float16_acc32")
    assert types(params) == {"w": "float16"}
    assert operators(rewritten)[0] == ("permute_dims", "float16")


def test_a_weight_of_two_minds_is_stored_twice() -> None:
    def build(builder: relax.BlockBuilder, x: Any, w: Mapping[str, Any]) -> Any:
        total = builder.emit(relax.op.sum(w["w"]))
        return builder.emit(relax.op.add(builder.emit(relax.op.matmul(x, w["w"])), total))

    _, params = rewrite(*module(build, (2, 8), w=weight(8, 4)), "float16")
    assert types(params) == {"w": "float32", "w.float16": "float16"}


def test_what_nobody_reads_is_dropped() -> None:
    def build(builder: relax.BlockBuilder, x: Any, w: Mapping[str, Any]) -> Any:
        return builder.emit(relax.op.matmul(x, w["w"]))

    _, params = rewrite(*module(build, (2, 8), w=weight(8, 4), unused=weight(3, 3)), "float16")
    assert list(params) == ["w"]


def swapped(builder: relax.BlockBuilder, h: Any) -> Any:
    """Exchange the halves of *h*."""
    parts = builder.emit(relax.op.split(h, 2, axis=1))
    both = [builder.emit(relax.TupleGetItem(parts, i)) for i in (1, 0)]
    return builder.emit(relax.op.concat(both, axis=1))


def product_around(middle: Build) -> Build:
    """Emit *middle* between two products, so that it is neither before the first nor behind the last."""

    def build(builder: relax.BlockBuilder, x: Any, w: Mapping[str, Any]) -> Any:
        return builder.emit(
            relax.op.matmul(middle(builder, builder.emit(relax.op.matmul(x, w["w"])), w), w["w"])
        )

    return build


@pytest.mark.parametrize(
    ("name", "call", "is_float32"),
    [
        ("clip", lambda h: relax.op.clip(h, 0, 6), False),
        ("add", lambda h: relax.op.add(h, relax.const(3.0)), False),
        ("add", lambda h: relax.op.add(h, relax.const(1e-12)), True),  # 0 in half precision
        ("multiply", lambda h: relax.op.multiply(h, relax.const(1e6)), True),  # infinite
        ("maximum", lambda h: relax.op.maximum(h, relax.const(-np.inf, "float32")), False),
        ("sigmoid", relax.op.sigmoid, False),
        ("exp", relax.op.exp, True),
        ("power", lambda h: relax.op.power(h, relax.const(2.0)), True),
        ("multiply", lambda h: relax.op.multiply(h, h), True),  # a square
        ("cumsum", lambda h: relax.op.cumsum(h, axis=1), True),
        ("argsort", lambda h: relax.op.astype(relax.op.argsort(h), "float32"), True),
    ],
)
def test_delicate_operators_stay_float32(name: str, call: Callable[[Any], Any], is_float32: bool) -> None:
    def middle(builder: relax.BlockBuilder, h: Any, _w: Mapping[str, Any]) -> Any:
        return builder.emit(call(h))

    rewritten, _ = rewrite(*module(product_around(middle), (2, 8), w=weight(8, 8)), "float16")
    reads = {
        operator_of(b.value): b.value.args[0].struct_info.dtype
        for b in rewritten["main"].body.blocks[0].bindings
        if operator_of(b.value)
    }
    assert reads[name] == ("float32" if is_float32 else "float16")


def test_behind_the_last_product_nothing_is_rounded() -> None:
    def build(builder: relax.BlockBuilder, x: Any, w: Mapping[str, Any]) -> Any:
        return swapped(builder, builder.emit(relax.op.matmul(x, w["w"])))

    rewritten, _ = rewrite(*module(build, (2, 8), w=weight(8, 8)), "float16_acc32")
    casts = [b for b in rewritten["main"].body.blocks[0].bindings if operator_of(b.value) == "astype"]
    assert [str(cast.value.attrs.dtype) for cast in casts] == ["float16"], "the input's, and no other"


def test_tuples_are_followed() -> None:
    def middle(builder: relax.BlockBuilder, h: Any, _w: Mapping[str, Any]) -> Any:
        return swapped(builder, h)

    rewritten, _ = rewrite(*module(product_around(middle), (2, 8), w=weight(8, 8)), "float16")
    assert ("concat", "float16") in operators(rewritten)


def test_spectra_of_which_the_logarithm_is_taken_stay_float32() -> None:
    def middle(builder: relax.BlockBuilder, h: Any, _w: Mapping[str, Any]) -> Any:
        return builder.emit(relax.op.log(builder.emit(relax.op.multiply(h, h))))

    rewritten, _ = rewrite(*module(product_around(middle), (2, 8), w=weight(8, 8)), "float16")
    assert [dtype for op, dtype in operators(rewritten) if op == "matmul"] == ["float32", "float16"]


def test_an_embedding_is_stored_half() -> None:
    def build(builder: relax.BlockBuilder, x: Any, w: Mapping[str, Any]) -> Any:
        rows = builder.emit(relax.op.astype(x, "int32"))
        h = builder.emit(relax.op.take(w["table"], rows, axis=0))
        return builder.emit(relax.op.matmul(h, w["w"]))

    _, params = rewrite(*module(build, (3,), table=weight(100, 8), w=weight(8, 4)), "float16_acc32")
    assert types(params) == {"table": "float16", "w": "float16"}


def test_batch_norm_is_taken_apart_unless_it_is_kept() -> None:
    def middle(builder: relax.BlockBuilder, h: Any, w: Mapping[str, Any]) -> Any:
        norm = relax.op.nn.batch_norm(h, w["g"], w["g"], w["g"], w["g"], axis=1, training=False)
        return builder.emit(relax.TupleGetItem(builder.emit(norm), 0))

    original = module(product_around(middle), (2, 8), w=weight(8, 8), g=np.abs(weight(8)) + 1)
    assert "nn.batch_norm" not in dict(operators(rewrite(*original, "float16")[0]))
    result, _ = rewrite(*original, "float16", ["nn.batch_norm"])
    norm = next(b for b in result["main"].body.blocks[0].bindings if operator_of(b.value) == "nn.batch_norm")
    assert {arg.struct_info.dtype for arg in norm.value.args} == {"float32"}


def test_control_flow_computes_as_before() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((2, 8), "float32"))
    c = relax.Var("c", relax.TensorStructInfo((), "bool"))
    w = relax.Var("w", relax.TensorStructInfo((8, 8), "float32"))
    with builder.function("main", [x, c, w], {"num_input": 2}):
        h = builder.emit(relax.op.matmul(x, w))
        branches = [relax.SeqExpr([], op(h, h)) for op in (relax.op.add, relax.op.multiply)]
        y = builder.emit(relax.If(c, *branches))
        builder.emit_func_output(builder.emit(relax.op.matmul(y, w)))
    rewritten, _ = rewrite(builder.get(), {"w": tvm.runtime.tensor(weight(8, 8))}, "float16")
    relax.analysis.well_formed(rewritten)
    assert [dtype for op, dtype in operators(rewritten) if op == "matmul"] == ["float16", "float16"]


def test_keep_names_operators_and_variables() -> None:
    original = module(mlp, (2, 8), **MLP)
    rewritten, params = rewrite(*original, "float16", ["nn.relu", "relax.add"])
    assert [dtype for op, dtype in operators(rewritten) if op in ("add", "nn.relu")] == ["float32", "float32"]
    first = next(iter(original[0]["main"].body.blocks[0].bindings)).var.name_hint
    rewritten, params = rewrite(*original, "float16", [first])
    assert [dtype for op, dtype in operators(rewritten) if op == "matmul"] == ["float32", "float16"]
    assert types(params)["w"] == "float32"


def test_keep_frees_what_is_kept_by_default() -> None:
    def middle(builder: relax.BlockBuilder, h: Any, _w: Mapping[str, Any]) -> Any:
        return builder.emit(relax.op.exp(h))

    rewritten, _ = rewrite(*module(product_around(middle), (2, 8), w=weight(8, 8)), "float16", ["-exp"])
    assert ("exp", "float16") in operators(rewritten)


def test_only_what_is_named_computes_in_half_precision() -> None:
    rewritten, params = rewrite(*module(mlp, (2, 8), **MLP), "float16", only=["nn.dense", "nn.softmax"])
    assert operators(rewritten) == [
        ("matmul", "float16"), ("add", "float32"), ("nn.relu", "float32"), ("matmul", "float16"),
        ("nn.softmax", "float32"),
    ]  # fmt: skip
    assert types(params) == {"w": "float16", "b": "float32", "v": "float16"}
    with pytest.raises(ConfigError, match=r"--half-only nn\.conv2: .*Did you mean 'nn\.conv2d'"):
        rewrite(*module(mlp, (2, 8), **MLP), "float16", only=["nn.conv2"])


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ("nn.sofmax", "Did you mean 'nn.softmax'"),
        ("-nn.relu", "not kept by default"),
        ("Softmax", "is no operator of Relax"),
    ],
)
def test_unknown_names_are_refused(keep: str, message: str) -> None:
    original, _ = module(mlp, (2, 8), **MLP)
    with pytest.raises(ConfigError, match=message):
        policy(original, "float16", [keep])


def test_every_table_names_operators_of_relax() -> None:
    from adt.compiler.passes.precision.policy import (
        ELEMENTWISE,
        LAYOUT,
        MOVING,
        PRODUCTS,
        STORED_HALF,
    )

    known = {str(name).removeprefix("relax.") for name in tvm.ir.Op.list_op_names()}
    for table in (PRODUCTS, ELEMENTWISE, LAYOUT, MOVING, STORED_HALF, set(KEPT)):
        assert table <= known, table - known
    assert not set(KEPT) & (PRODUCTS | ELEMENTWISE | MOVING) and set(KEPT) >= STORED_HALF


def test_multiplications_are_counted() -> None:
    def build(builder: relax.BlockBuilder, x: Any, w: Mapping[str, Any]) -> Any:
        h = builder.emit(relax.op.nn.conv2d(x, w["k"], padding=1))
        return builder.emit(relax.op.nn.conv2d(h, w["d"], padding=1, groups=6))

    network, _ = module(build, (1, 4, 10, 10), k=weight(6, 4, 3, 3), d=weight(6, 1, 3, 3))
    assert multiplications(network) == 6 * 100 * 4 * 9 + 6 * 100 * 9
    assert multiplications(module(mlp, (2, 8), **MLP)[0]) == 2 * 8 * 16 + 2 * 16 * 4
