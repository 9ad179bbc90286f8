"""Arguments of kernels under test."""

import numpy as np
import pytest

from adt.compiler.passes.records.arguments import Argument, sample_data, unwritten_data


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float64", 48),
        ("float16", 12),
        ("bfloat16", 12),
        ("bool", 6),
        ("int4", 3),
        ("int64", 48),
        ("float32x4", 96),
    ],
)
def test_every_type_has_its_size(dtype: str, expected: int) -> None:
    argument = Argument((2, 3), dtype)
    assert argument.size == len(sample_data(argument, 0)) == len(unwritten_data(argument)) == expected


def test_numbers_are_the_same_everywhere_differ_by_position_and_suit_every_kernel() -> None:
    argument = Argument((50, 20), "float32")
    first, second = sample_data(argument, 1), sample_data(argument, 2)
    assert first == sample_data(argument, 1) != second
    numbers = np.frombuffer(first, np.float32)
    assert numbers.min() >= 0 and numbers.max() < 1 and numbers.std() > 0.2
    widened = (
        np.frombuffer(sample_data(Argument((50, 20), "bfloat16"), 1), np.uint16).astype(np.uint32) << 16
    ).view(np.float32)
    assert np.abs(widened - numbers).max() < 2**-7
    assert set(np.frombuffer(sample_data(Argument((1000,), "int8"), 0), np.int8)) == {1, 2, 3}
    assert not any(sample_data(Argument((10,), "int32"), 0)), "it may be an index"
    assert np.isnan(np.frombuffer(unwritten_data(argument), np.float32)).all()
