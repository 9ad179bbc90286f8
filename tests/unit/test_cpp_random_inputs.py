"""The generator of random inputs.

tests/integration/test_cpp_runner.py compares the C++ copy with it.
"""

import numpy as np
import pytest

from adt.errors import InputError
from adt.package.inputs.random import random_inputs
from adt.package.manifest import TensorSpec, ValueRange

DTYPES = (
    "float16", "float32", "float64", "int8", "int16", "int32", "int64",
    "uint8", "uint16", "uint32", "uint64", "bool",
)  # fmt: skip


def splitmix64(state: int, count: int) -> list[int]:
    """Compute Vigna's sequential splitmix64, as the published algorithm states it."""
    mask = (1 << 64) - 1
    words = []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        words.append(z ^ (z >> 31))
    return words


def fnv1a64(text: str) -> int:
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & ((1 << 64) - 1)
    return value


def test_values_are_the_published_sequence() -> None:
    # A stream is splitmix64 seeded with one (unstepped) mix of seed + hash of the name.
    z = (7 + fnv1a64("größe")) & ((1 << 64) - 1)
    stream = splitmix64((z - 0x9E3779B97F4A7C15) & ((1 << 64) - 1), 1)[0]
    words = splitmix64(stream, 6)
    values = random_inputs([TensorSpec("größe", (2, 3), "float64")], 7)["größe"]
    assert values.tolist() == [
        [(w >> 11) * 2.0**-53 for w in words[:3]],
        [(w >> 11) * 2.0**-53 for w in words[3:]],
    ]


@pytest.mark.parametrize("dtype", DTYPES)
def test_type_shape_and_range(dtype: str) -> None:
    array = random_inputs([TensorSpec("x", (64, 64), dtype)], 3)["x"]
    assert array.dtype == np.dtype(dtype)
    assert array.shape == (64, 64)
    values = array.astype("float64")
    top = 1 if dtype.startswith("float") else 2 if dtype == "bool" else 100
    assert values.min() >= 0
    assert values.max() < top
    assert abs(values.mean() - (top - (0 if dtype.startswith("float") else 1)) / 2) < top * 0.03
    assert len(np.unique(values)) > (1 if dtype == "bool" else 90)


def test_a_stream_depends_on_name_and_seed_only() -> None:
    first, two = TensorSpec("a", (4,), "float32"), TensorSpec("b", (4,), "float32")
    both = random_inputs([first, two], 1)
    swapped = random_inputs([two, first], 1)
    assert list(swapped) == ["b", "a"]
    assert both["a"].tolist() == swapped["a"].tolist()
    assert both["a"].tolist() != both["b"].tolist()
    assert both["a"].tolist() != random_inputs([first], 2)["a"].tolist()


def test_largest_seed_scalar_and_empty_shape() -> None:
    arrays = random_inputs([TensorSpec("s", (), "int32"), TensorSpec("e", (0, 3), "float32")], 2**64 - 1)
    assert arrays["s"].shape == ()
    assert arrays["e"].shape == (0, 3)


@pytest.mark.parametrize(
    ("dtype", "fill_mode", "start"),
    [
        ("float16", "arange", [0, 1, 2]),
        ("int8", "arange", [0, 1, 2]),
        ("bool", "arange", [False, True, False]),
        ("float32", "ones", [1, 1, 1]),
        ("uint8", "zeros", [0, 0, 0]),
    ],
)
def test_other_fill_modes_number_the_elements(dtype: str, fill_mode: str, start: list[float]) -> None:
    array = random_inputs([TensorSpec("x", (70000,), dtype)], 0, fill_mode)["x"]
    assert array.dtype == np.dtype(dtype) and array[:3].tolist() == start
    assert np.isfinite(array.astype("float64")).all()


def test_numbers_stay_in_a_known_range() -> None:
    spec = TensorSpec("x", (7,), "int64", ValueRange("index", 2, 4))
    assert random_inputs([spec], 0, "arange")["x"].tolist() == [2, 2, 2, 3, 4, 2, 3]


@pytest.mark.parametrize("spec", [TensorSpec("x", ("n", 3), "float32"), TensorSpec("x", (3,), "complex64")])
def test_what_has_no_random_values_is_refused(spec: TensorSpec) -> None:
    with pytest.raises(InputError, match="x"):
        random_inputs([spec], 0)
