"""Constants that kernels read become parameters, under the names that the model's weights have."""

from typing import Any

import numpy as np

from adt.compiler.ir.rewriter import lift_constants


def lifted(weights: dict[str, np.ndarray], constants: list[np.ndarray]) -> dict[str, Any]:
    """Return the parameters of a model that returns *constants*, by name, of one that was imported with *weights*."""
    import tvm
    from tvm import relax

    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            results = [builder.emit(relax.op.abs(relax.const(array))) for array in constants]
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    params = {name: tvm.runtime.tensor(array) for name, array in weights.items()}
    module, named = lift_constants(builder.get(), params)
    assert [param.name_hint for param in module["main"].params] == list(named)
    return {name: tensor.numpy() for name, tensor in named.items()}


def packed(array: np.ndarray) -> np.ndarray:
    """Pack *array* ``(O, I)`` as ``(ceil(O/4), I, 4)``, with zeros where there is no output."""
    rows, columns = array.shape
    filled = np.pad(array, ((0, -rows % 4), (0, 0)))
    return np.ascontiguousarray(filled.reshape(-1, 4, columns).transpose(0, 2, 1))


def test_a_weight_keeps_its_name_packed_or_not() -> None:
    rng = np.random.default_rng(0)
    first, second = (rng.standard_normal((6, 3)).astype("float32") for _ in range(2))
    named = lifted({"w1": first, "w2": second}, [packed(second), first])
    assert {name: array.shape for name, array in named.items()} == {"w2": (2, 3, 4), "w1": (6, 3)}


def test_both_forms_of_a_weight_and_what_is_no_weight_have_names_of_their_own() -> None:
    weight = np.arange(1, 19, dtype="float32").reshape(6, 3)
    named = lifted({"w": weight}, [packed(weight), weight, weight * 2, weight * 3])
    assert list(named) == ["w", "w_0", "folded", "folded_0"]
    assert named["w"].shape == (2, 3, 4) and named["w_0"].shape == (6, 3)


def test_values_of_another_type_and_zeros_are_no_weight() -> None:
    weight, zeros = np.ones((4, 4), "float32"), np.zeros((4, 4), "float32")
    named = lifted({"w": weight, "z": zeros}, [weight.astype("int32"), np.zeros((2, 8), "float32"), zeros])
    assert list(named) == ["folded", "folded_0", "z"]
