"""Windows by way of WSL2: names that Windows gives to directories, and paths in its own spelling."""

from pathlib import Path

import numpy as np
import pytest

from support.devices.programs import adt
from support.models.small import small_model


def test_a_model_below_windows_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adt("build-target", "--for", "host")
    place = tmp_path / "mnt/c/Users/Jane Doe (work)/models & more"
    place.mkdir(parents=True)
    programs = tmp_path / "mnt/c/Program Files (x86)/Android"
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    model = small_model(place / "model [1].onnx")
    for words in (
        ("compile", model, "--for", "host", "-o", place / "my package.tar"),
        ("run", "my package.tar", "--fill-mode", "ones", "--output", "out 'of' it.npz"),
        ("verify", "my package.tar"),
    ):
        done = adt(*words, cwd=place)
        assert done.returncode == 0, done.stderr
    with np.load(place / "out 'of' it.npz") as outputs:
        assert np.allclose(outputs["y"], np.maximum(0, np.arange(12).reshape(4, 3).sum(0) / 10 - 2))


def test_a_path_of_windows_says_what_it_is_here() -> None:
    done = adt("compile", r"C:\Users\Jane Doe\model.onnx", "--for", "host")
    assert done.returncode == 8
    assert r"""$(wslpath 'C:\Users\Jane Doe\model.onnx')""" in " ".join(done.stderr.split())
