"""Parameters lie in mod.params where kernels of a CPU can read them."""

from pathlib import Path

import numpy as np
import pytest
import tvm

from adt.package.files import LEAST_BYTES, PADDING, read_tensors, write_params


@pytest.mark.parametrize("alignment", [32, 64, 128])
def test_larger_parameters_are_aligned_in_the_file(tmp_path: Path, alignment: int) -> None:
    random = np.random.default_rng(0)
    arrays = {
        "weights of ä layer": random.standard_normal((33, 65)).astype(np.float32),
        "bias": random.standard_normal(33).astype(np.float32),
        "half": random.standard_normal((3, 1021)).astype(np.float16),
        "scalar": np.float32(2.5).reshape(()),
        "empty": np.zeros((0, 3), np.int8),
        "bytes": random.integers(-128, 127, LEAST_BYTES + 1).astype(np.int8),
    }
    path = tmp_path / "mod.params"
    write_params({name: tvm.runtime.tensor(array) for name, array in arrays.items()}, path, alignment)
    contents = path.read_bytes()
    for name in ("weights of ä layer", "half", "bytes"):
        assert contents.find(arrays[name].tobytes()) % alignment == 0, name
    read = read_tensors(path)
    assert list(read) == list(arrays)
    for name, array in arrays.items():
        assert np.array_equal(read[name].numpy(), array) and str(read[name].dtype) == str(array.dtype), name


def test_files_of_gpus_have_no_paddings(tmp_path: Path) -> None:
    path = tmp_path / "mod.params"
    write_params({"weights": tvm.runtime.tensor(np.ones((64, 64), np.float32))}, path, 1)
    assert PADDING.encode() not in path.read_bytes()
