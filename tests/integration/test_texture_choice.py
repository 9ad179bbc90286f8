"""Textures or buffers: `adt inspect` tells each choice, and what stays in buffers has its record there."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import adt
from adt.cli.app import app
from adt.compiler.networks.builder import Network
from adt.compiler.passes.records.key import target_key, tvm_key
from adt.package.package import ModelPackage
from adt.tuning.database.store import open_database
from adt.tuning.records import BASELINE, Context, MeasuredOn, Record
from adt.tuning.tasks import extract, tuning_target
from adt.verbs.compile import CompileRequest, job_of
from support.models.reference import off_reference
from support.models.schedules import hand_trace


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build two convolutions, the second with five output channels: too few for textures."""
    net = Network((1, 4, 8, 8))
    output = net.conv(net.relu(net.conv("x", 8)), 5)
    return net.save(tmp_path_factory.mktemp("model") / "odd.onnx", output, (1, 5, 8, 8))


def compiled(model: Path, out: Path, **options: object) -> ModelPackage:
    settings = {"platform": "host", "target": "adreno", "check": False, "use_cache": False, **options}
    return adt.compile(model, out=out, **settings)  # type: ignore[arg-type]


def test_a_kernel_in_buffers_has_the_schedule_of_its_record_without_textures(
    model: Path, tmp_path: Path
) -> None:
    request = CompileRequest(
        model, platform="host", target="adreno-buffer", texture_choice="never", check=False
    )
    compilation = job_of(request).load(accuracy=False)
    context = Context(target_key(compilation.target), tvm_key(), "a GPU", "1.0")
    textures = job_of(CompileRequest(model, platform="host", target="adreno")).target()
    textured = replace(context, target=target_key(textures))
    on = MeasuredOn("serial", "a phone", None)
    with open_database(tmp_path / "db", write=True) as database:
        for task in extract(compilation).tasks:
            identity = database.workload_id(task.module)
            measured = {BASELINE: 90.0, hand_trace(task, tuning_target(compilation.target, 2)): 2.0}
            for trace, seconds in measured.items():
                database.add([Record(identity, context, task.name, trace, (seconds,), None, on, "", 1.0)])
            database.add([Record(identity, textured, task.name, BASELINE, (90.0,), None, on, "", 1.0)])

    package = compiled(model, tmp_path / "package", db=tmp_path / "db")

    report = package.manifest.made.textures
    assert report is not None
    assert [row.reason for row in report.convolutions] == ["", "5 output channels leave 3 lanes idle"]
    [in_buffers] = [kernel for kernel in package.manifest.kernels if "conv2d" in kernel.name]
    assert in_buffers.tuned and not in_buffers.textures
    assert off_reference(package, model) < 1e-5


def test_inspect_tells_each_choice(model: Path, tmp_path: Path) -> None:
    compiled(model, tmp_path / "package")

    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "package"), "--textures"]).output
    document = CliRunner().invoke(app, ["inspect", str(tmp_path / "package"), "--textures", "--json"]).output
    summary = CliRunner().invoke(app, ["inspect", str(tmp_path / "package")]).output

    reason = "5 output channels leave 3 lanes idle"
    assert reason in shown and "multiply-adds for each texel read" in shown
    assert [row["reason"] for row in json.loads(document)["textures"]["convolutions"]] == ["", reason]
    assert "1 operators chosen for textures, 1 for buffers" in summary
