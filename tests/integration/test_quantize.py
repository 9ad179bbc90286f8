"""`adt quantize` on real networks, and packages of what it writes: right, and near the float model."""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image

import adt as api
from adt.errors import ConfigError, VerifyFailed
from adt.package.inputs.pictures import PictureOptions
from adt.package.inputs.random import random_inputs
from adt.package.package import load_package
from adt.quantization.accuracy import compared, outputs_on
from support.devices.programs import adt, adt_json
from support.models.quantized_onnx import transformer
from support.models.vision import residual_blocks

pytestmark = pytest.mark.usefixtures("host_bundle")

EXAMPLES = Path(__file__).parents[2] / "examples"
NORMALISED = ("--range", "-1,1")
CAT = 285
"""Egyptian cat."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Download EfficientNet-Lite0 and cut pictures beside it."""
    directory = tmp_path_factory.mktemp("trained")
    sys.path.insert(0, str(EXAMPLES))
    from efficientnet_lite0 import download

    model = download(directory)
    (directory / "pictures").mkdir()
    whole = Image.open(directory / "cat.png")
    for number in range(5):
        left, top, side = 10 * number, 3 * number, 180 + 7 * number
        whole.crop((left, top, left + side, top + side)).save(directory / f"pictures/{number:02}.png")
    return model


@pytest.mark.nightly
def test_a_trained_network(trained: Path, tmp_path: Path) -> None:
    pictures, out = trained.parent / "pictures", tmp_path / "q.onnx"
    words = ["quantize", trained, "--calibrate", pictures, *NORMALISED, "-o", out]
    facts = adt_json(*words, "--target-snr", "15")
    assert (facts["calibrated_on"], facts["held_back"], facts["every"]) == (4, 1, 5)
    assert facts["outputs"][0]["snr_db"] >= 15 and 1 <= len(facts["kept"]) <= 9
    first = facts["layers"][0]  # a scale for a whole weight does not suit depthwise convolutions
    assert first["operator"] == "Conv" and first["snr_db"] < 12 and first["share"] > 0.3
    assert first["name"] in facts["kept"] and facts["bytes"] < 0.3 * facts["float_bytes"]

    done = adt(*words, "--per-channel")
    assert done.returncode == 0, done.stderr
    assert "calibrated on 4 samples of" in done.stdout and "1 samples" in done.stdout

    package = api.compile(out, out=tmp_path / "pkg", platform="host", check=False).path
    sample = pictures / "04.png"  # the one that was held back
    result = api.run(package, images=[sample], picture=PictureOptions(range=(-1, 1)))
    (scores,) = result.outputs.values()
    assert int(scores.argmax()) == CAT
    np.savez(tmp_path / "sample.npz", **{each.name: each.array for each in result.inputs})

    verify = ["verify", package, "-i", tmp_path / "sample.npz"]
    done = adt(*verify, "--max-steps", "4")
    assert done.returncode == 0, done.stdout
    near = adt_json(*verify, "--reference", trained, "--min-snr", "15", "--min-top1", "1")
    assert near["reference"] == "model" and near["outputs"][0]["top1"] == 1
    assert near["outputs"][0]["snr_db"] > 15


def test_blocks_of_networks_on_made_up_samples(tmp_path: Path) -> None:
    model = residual_blocks(tmp_path / "float.onnx", 64)
    words = ["quantize", model, "--calibrate", "random:10", "-o", tmp_path / "q.onnx", "--per-channel"]
    done = adt(*words, "--activations", "uint8")
    assert done.returncode == 0, done.stderr
    assert "calibrated on 8 MADE-UP samples" in done.stdout and "on 2 MADE-UP samples" in done.stdout

    package = api.compile(tmp_path / "q.onnx", out=tmp_path / "pkg", platform="host", check=False).path
    near = adt_json("verify", package, "--seeds", "3", "--reference", model)
    assert near["passed"] and near["outputs"][0]["shape"] == [3, 10] and len(near["runs"]) == 3
    done = adt("verify", package, "--reference", model, "--min-snr", "60", "--json")
    assert done.returncode == VerifyFailed.exit_code
    assert json.loads(done.stdout)["outputs"][0]["options"] == ["--min-snr"]

    specs, quantized = load_package(package).manifest.entry().inputs, onnx.load(tmp_path / "q.onnx")
    off = []
    for seed in range(5):
        inputs = random_inputs(specs, seed)
        (row,) = compared(api.run(package, inputs=inputs).outputs, outputs_on(quantized, [inputs]))
        off.append(row.metrics.snr_db)
    assert max(off) > 35, "it computes what the quanta stand for"
    assert min(off) > 15, "one value on the edge of two quanta, early, leaves some 20 dB"


def test_weights_alone(tmp_path: Path) -> None:
    """Quantize a transformer's products to 4 bits, and compute with the package."""
    onnx.save(transformer(steps=16, size=64), tmp_path / "bert.onnx")
    samples, out = tmp_path / "tokens.npz", tmp_path / "q.onnx"
    random = np.random.default_rng(2)
    np.savez(samples, **{name: random.integers(0, 2, (5, 16)) for name in ("ids", "kinds", "mask")})

    done = adt("quantize", tmp_path / "bert.onnx", "--weights-only", "int4", "-o", out)
    assert done.returncode == 0 and "accuracy not measured" in done.stdout, done.stderr
    words = ["quantize", tmp_path / "bert.onnx", "--weights-only", "int4", "--calibrate", samples]
    facts = adt_json(*words, "-o", tmp_path / "again.onnx")
    assert (facts["weights_only"], facts["held_back"]) == ("int4", 5) and facts["outputs"][0]["snr_db"] > 8
    assert (tmp_path / "again.onnx").read_bytes() == out.read_bytes()
    done = adt(*words, "--per-channel", "-o", out)
    assert done.returncode == ConfigError.exit_code and "--per-channel cannot be given" in done.stderr

    package = api.compile(out, out=tmp_path / "pkg", platform="host", check=False).path
    assert (package / "mod.params").stat().st_size < 0.3 * (tmp_path / "bert.onnx").stat().st_size
    for more in ([], ["--layers"]):
        done = adt("verify", package, *more)
        assert done.returncode == 0, done.stdout
