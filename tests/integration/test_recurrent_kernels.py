"""Recurrent layers as kernels of a GPU, on this machine's OpenCL driver, beside their plain loops."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import adt
from adt.package.host_run.run import HostRun, run_packages
from adt.package.inputs.random import random_inputs
from support.models import sequences
from support.models.onnx_graphs import recurrent, write

Write = Callable[[Path], Path]
LAYERS: dict[str, tuple[str, Write]] = {
    "lstm of one": ("opencl", lambda path: sequences.recurrent(path, "LSTM", 1, hidden=1)),
    "lstm of 61, both ways": (
        "adreno",
        lambda path: sequences.recurrent(path, "LSTM", 1, hidden=61, directions=2),
    ),
    "lstm of 512, a kernel for each step": (
        "adreno-buffer",
        lambda path: sequences.recurrent(path, "LSTM", 1, hidden=512, steps=3, batch=5),
    ),
    "lstm, states": ("mali", lambda path: write(recurrent("LSTM", 4, direction="bidirectional"), path)),
    "gru, states, reset first": (
        "opencl",
        lambda path: write(recurrent("GRU", 3, direction="reverse"), path),
    ),
    "gru of 61, reset after": (
        "opencl",
        lambda path: sequences.recurrent(path, "GRU", 1, hidden=61, batch=2),
    ),
    "gru of 300, two kernels for each step": (
        "mali",
        lambda path: sequences.recurrent(
            path, "GRU", 1, hidden=300, steps=3, batch=3, directions=2, linear=False
        ),
    ),
    "rnn of 700, a kernel for each step": (
        "opencl",
        lambda path: sequences.recurrent(path, "RNN", 1, hidden=700, steps=3),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_computes_what_onnxruntime_does(name: str, tmp_path: Path) -> None:
    target, save = LAYERS[name]
    path = save(tmp_path / "m.onnx")
    package = adt.compile(path, out=tmp_path / "pkg", platform="host", target=target, check=False)
    inputs = random_inputs(package.manifest.entry().inputs, 0)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    (outputs,) = run_packages([HostRun(package.path, inputs)], timeout=300)

    layers = [kernel.name for kernel in package.manifest.kernels if kernel.name in ("lstm", "gru", "rnn")]
    assert layers, "the steps were unrolled"
    for spec, expected in zip(session.get_outputs(), session.run(None, dict(inputs)), strict=True):
        most = np.abs(expected).max()
        np.testing.assert_allclose(outputs[spec.name], expected, rtol=1e-4, atol=5e-6 * most)


def test_kernels_compute_what_their_plain_loops_do(tmp_path: Path) -> None:
    path = sequences.recurrent(tmp_path / "m.onnx", "GRU", 1, hidden=61, directions=2, linear=False)
    package = adt.compile(path, out=tmp_path / "pkg", platform="host", target="opencl", check=True)
    assert package.checked is not None
