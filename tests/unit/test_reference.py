"""Choice of the reference, and the messages where there is none."""

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from onnx import TensorProto

from adt.errors import ConfigError, InputError, ModelError, ToolNotFound
from adt.measure import reference
from adt.measure.reference import Reference, reference_named
from adt.options.resolve import load_settings
from adt.options.sections import Settings
from adt.package.package import ModelPackage
from support.models.onnx_graphs import graph_of, node, write
from support.standins.artefacts import package_manifest

PACKAGE = ModelPackage(Path("p"), package_manifest())


HEADS = {
    "m.onnx": b"\x08\x08:",
    "m.tflite": b"\x1c\x00\x00\x00TFL3",
    "m.h5": b"\x89HDF\r\n\x1a\n",
}
"""First bytes of files of these formats."""


@pytest.fixture
def settings() -> Settings:
    return load_settings({}).settings


def no_model() -> Path:
    pytest.fail("the package's own model is not needed")


def named(name: str, settings: Settings, model: Path) -> Reference:
    model.write_bytes(HEADS[model.name])
    return reference_named(name, PACKAGE, lambda: model, settings)


@pytest.mark.parametrize(
    ("file", "name", "other"),
    [
        ("m.onnx", "onnxruntime", "keras"),
        ("m.tflite", "tflite", "onnxruntime"),
        ("m.h5", "keras", "torch"),
    ],
)
def test_auto_is_the_runtime_of_the_format(
    settings: Settings, tmp_path: Path, file: str, name: str, other: str
) -> None:
    assert named("auto", settings, tmp_path / file).name == name
    assert named(name, settings, tmp_path / file).name == name
    with pytest.raises(ConfigError, match=f"which {other} does not run"):
        named(other, settings, tmp_path / file)
    with pytest.raises(ConfigError, match="oracle is no reference"):
        named("oracle", settings, tmp_path / file)


def test_a_missing_runtime_can_be_gone_round(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = ToolNotFound("needs the package tflite", remedy="pip install it")
    monkeypatch.setattr(reference, "run_reference", Mock(side_effect=missing))
    with pytest.raises(ToolNotFound, match="tflite") as caught:
        named("auto", settings, tmp_path / "m.tflite").run({})
    assert "pip install it" in caught.value.remedy and "--reference host" in caught.value.remedy


def test_a_file_needs_no_model(settings: Settings, tmp_path: Path) -> None:
    np.savez(tmp_path / "right.npz", x=np.ones((1, 4), np.float32))
    source = reference_named(str(tmp_path / "right.npz"), PACKAGE, no_model, settings)
    assert source.name == "file" and source.run({})["x"].shape == (1, 4)
    np.savez(tmp_path / "in.npz", bytes=np.ones(3, np.float32))
    with pytest.raises(InputError, match=r"gives x; .*in\.npz has bytes"):
        reference_named(str(tmp_path / "in.npz"), PACKAGE, no_model, settings)
    (tmp_path / "bad.npz").write_bytes(b"no zip")
    with pytest.raises(InputError, match=r"is not an \.npz file"):
        reference_named(str(tmp_path / "bad.npz"), PACKAGE, no_model, settings)


def test_another_model_is_a_reference(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "float.tflite").write_bytes(HEADS["m.tflite"])

    source = reference_named(str(tmp_path / "float.tflite"), PACKAGE, no_model, settings)
    assert source.name == "model" and source.what == "float.tflite by tflite on this machine"
    (tmp_path / "notes.txt").write_text("no model")
    with pytest.raises(ModelError, match="is of a format that adt does not read"):
        reference_named(str(tmp_path / "notes.txt"), PACKAGE, no_model, settings)


def test_what_onnxruntime_prints_does_not_reach_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Hide its messages: they name the node that fails, and a name may hold what sets a terminal's title."""
    title = "\x1b]0;of the model\x07"
    nodes = [node("Gather", ["table", "indices"], ["y"], name=title)]
    model = graph_of(nodes, {"indices": (1,)}, ["y"], {"table": np.float32([1, 2])}, kind=TensorProto.INT64)
    with pytest.raises(InputError) as refused:
        reference.run_reference(write(model, tmp_path / "m.onnx"), {"indices": np.array([7])})
    assert "Gather" in refused.value.details and "\x1b" not in refused.value.details
    assert capfd.readouterr() == ("", "")
