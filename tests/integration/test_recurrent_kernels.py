"""Recurrent layers as kernels of a GPU, on this machine's OpenCL driver, beside their plain loops."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import adt
from adt.package.host_run.run import HostRun, run_packages
from adt.package.inputs.random import random_inputs
from support.models import sequences
from support.models.onnx_graphs import joined, recurrent, write

LAYERS: dict[str, list[Callable[[Path], Path]]] = {
    "opencl": [
        lambda path: sequences.recurrent(path, "LSTM", 1, hidden=1),
        lambda path: sequences.recurrent(path, "GRU", 1, hidden=61, batch=2),
        lambda path: sequences.recurrent(path, "RNN", 1, hidden=700, steps=3),  # a kernel for each step
        lambda path: write(recurrent("GRU", 3, direction="reverse"), path),
    ],
    "adreno": [
        lambda path: sequences.recurrent(path, "LSTM", 1, hidden=61, directions=2),
        lambda path: sequences.recurrent(path, "LSTM", 1, hidden=512, steps=3, batch=5),  # one for each step
    ],
    "mali": [
        lambda path: write(recurrent("LSTM", 4, direction="bidirectional"), path),
        lambda path: sequences.recurrent(  # two kernels for each step
            path, "GRU", 1, hidden=300, steps=3, batch=3, directions=2, linear=False
        ),
    ],
}
"""Layers that are compiled for a target side by side."""


@pytest.mark.parametrize("target", LAYERS)
def test_layers_compute_what_onnxruntime_does(target: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write(joined([onnx.load(save(path)) for save in LAYERS[target]]), path)
    package = adt.compile(path, out=tmp_path / "pkg", platform="host", target=target, check=False)
    inputs = random_inputs(package.manifest.entry().inputs, 0)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    (outputs,) = run_packages([HostRun(package.path, inputs)], timeout=300)

    layers = [kernel for kernel in package.manifest.kernels if kernel.name.startswith(("lstm", "gru", "rnn"))]
    assert len(layers) == len(LAYERS[target]), "the steps were unrolled"
    for spec, expected in zip(session.get_outputs(), session.run(None, dict(inputs)), strict=True):
        most = np.abs(expected).max()
        np.testing.assert_allclose(outputs[spec.name], expected, rtol=1e-4, atol=5e-6 * most)


def test_kernels_compute_what_their_plain_loops_do(tmp_path: Path) -> None:
    path = sequences.recurrent(tmp_path / "m.onnx", "GRU", 1, hidden=61, directions=2, linear=False)
    package = adt.compile(path, out=tmp_path / "pkg", platform="host", target="opencl", check=True)
    assert package.checked is not None
