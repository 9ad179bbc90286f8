"""Networks by name: their published sizes, their bytes, and how a model's name is looked up."""

import hashlib
import json
import logging
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import adt
from adt.compiler.importers.importer import declared_inputs
from adt.compiler.networks.known import NETWORKS, network_file, summary, write_network
from adt.errors import ModelError
from adt.verbs.compile import CompileRequest, ExplainRequest
from adt.verbs.tune_request import TuneRequest
from adt.verbs.verify import VerifyRequest
from support.devices.programs import adt as adt_program

PUBLISHED = {
    "resnet-18": (11_689_512, 1.814),
    "resnet-34": (21_797_672, 3.664),
    "resnet-50": (25_557_032, 4.089),
    "resnet-101": (44_549_160, 7.801),
    "resnet-152": (60_192_808, 11.514),
    "vgg-11": (132_863_336, 7.609),
    "vgg-13": (133_047_848, 11.308),
    "vgg-16": (138_357_544, 15.470),
    "vgg-19": (143_667_240, 19.632),
    "mobilenet": (4_231_976, 0.569),
    "mobilenet-v2": (3_504_872, 0.301),
    "mobilenet-v3-large": (5_483_032, 0.217),
    "efficientnet-b0": (5_288_548, 0.386),
    "squeezenet-v1.1": (1_235_496, 0.349),
    "inception-v3": (23_834_568, 5.713),
}
"""Parameters, and thousand millions of multiplications: torchvision's, MobileNet's of its paper (Keras's count)."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_multiplications_are_the_published_ones(name: str) -> None:
    network = summary(name)

    assert (network.parameters, round(network.macs / 1e9, 3)) == PUBLISHED[name]


def test_a_unet_is_that_of_its_paper_with_normalisations() -> None:
    assert NETWORKS.keys() - PUBLISHED == {"unet"}
    assert summary("unet").parameters == 31_037_633


def test_the_bytes_are_the_same_everywhere(tmp_path: Path) -> None:
    """Compare digests. Where these change on purpose, adt.compiler.networks.known.REVISION counts up:
    caches have the old ones."""
    digests = {
        name: hashlib.sha256(write_network(name, tmp_path / "m.onnx").read_bytes()).hexdigest()[:16]
        for name in ("squeezenet-v1.1", "mobilenet-v3-large", "resnet-18")
    }

    assert digests == {
        "squeezenet-v1.1": "d129041de31de6b4",
        "mobilenet-v3-large": "78bab5d8be8519cb",
        "resnet-18": "87f0603ff85a79f5",
    }


@pytest.mark.parametrize(
    "name", ["resnet-50", "mobilenet-v2", "mobilenet-v3-large", "efficientnet-b0", "inception-v3"]
)
def test_a_network_computes_numbers_that_half_precision_holds(name: str, tmp_path: Path) -> None:
    path = write_network(name, tmp_path / "m.onnx")
    onnx.checker.check_model(str(path))

    (scores,) = onnxruntime.InferenceSession(str(path)).run(
        None, {"x": np.random.default_rng(0).random((1, 3, 96, 96), np.float32)}
    )

    assert np.isfinite(scores).all() and scores.std() > 1e-3 and abs(scores).max() < 1e3


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("resnet18", "resnet-18"),
        ("mobilenet", "mobilenet"),
        ("MobileNet_v2", "mobilenet-v2"),
        ("squeezenet_v1.1", "squeezenet-v1.1"),
        ("mobilenet-v2-untrained", "mobilenet-v2"),
    ],
)
def test_a_network_by_any_spelling(
    spelling: str,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    with caplog.at_level(logging.INFO, "adt"):
        file = ExplainRequest(spelling).model
    assert file.name == f"{name}-untrained.onnx" and "untrained" in caplog.text
    assert file == adt.network(spelling) == TuneRequest(spelling).model
    assert file == VerifyRequest(package="p", model=spelling).model
    assert declared_inputs(file, {}) == {"x": (1, 3, 224, 224)}
    assert declared_inputs(file, {"size": 64, "batch": 4}) == {"x": (4, 3, 64, 64)}
    assert declared_inputs(file, {"x": (2, 3, 32, 32)}) == {"x": (2, 3, 32, 32)}


def test_a_file_of_that_name_wins_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    write_network("squeezenet-v1.1", Path("resnet-18"))
    assert CompileRequest("resnet-18").model == Path("resnet-18")
    assert "resnet-18 is a file here" in caplog.text
    Path("mobilenet").mkdir()  # a package, say: no model
    assert CompileRequest("mobilenet").model == network_file("mobilenet")


@pytest.mark.parametrize("name", ["resnet50.onnx", "resnet-50-untrained.onnx", "efficient.net", "./resnet50"])
def test_a_missing_file_is_no_network(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take a name with a suffix or a directory for a file, not for an untrained network."""
    monkeypatch.chdir(tmp_path)
    for request in (CompileRequest, TuneRequest, ExplainRequest):
        assert request(name).model == Path(name)
    assert VerifyRequest("p", model=name).model == Path(name)
    with pytest.raises(ModelError, match="there is no model file"):
        adt.explain(name)


def test_a_near_miss_says_what_was_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for ask in (CompileRequest, adt.network):
        with pytest.raises(ModelError, match=r"resnet-17.*Did you mean 'resnet-1") as refused:
            ask("resnet-17")
        assert "adt networks" in refused.value.remedy
    assert CompileRequest("./resnet-18").model == Path("resnet-18")  # a path is looked up nowhere
    assert CompileRequest("m").model == Path("m")  # nothing like it: its own verb says that there is none
    assert CompileRequest("resnet-17.tflite").model == Path("resnet-17.tflite")


def test_the_list() -> None:
    listing = adt_program("networks").stdout
    rows = json.loads(adt_program("networks", "--json").stdout)["networks"]
    assert [row["name"] for row in rows] == list(NETWORKS)
    assert "resnet-18              224x224   11,689,512       1,814.1" in listing.splitlines()
