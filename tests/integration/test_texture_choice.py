"""Texture or buffers by records of both: which kernels compute the same, what is chosen, and that it stays right."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import adt
from adt.api.model import job_of
from adt.api.requests import CompileRequest
from adt.model.compilation import Compilation
from adt.model.networks.builder import Network
from adt.model.package.package import ModelPackage
from adt.model.passes.layout import blocks
from adt.model.passes.layout.signature import Signature, product, signature_of
from adt.model.passes.reports import Convolution
from adt.model.tuning.key import target_key, tvm_key
from adt.tuning.database.store import open_database
from adt.tuning.records import BASELINE, Context, MeasuredOn, Record
from adt.tuning.tasks import Task, extract, tuning_target
from support.models.reference import off_reference
from support.models.schedules import hand_trace

FORMS = {"adreno": "always", "adreno-buffer": "never"}
"""Target to the choice by which it has one form only."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three different convolutions, one after the other; what the second one makes is added to its input."""
    net = Network((1, 8, 12, 12))
    first = net.relu(net.conv("x", 16))
    second = net.relu(net.add(net.conv(first, 16, 1), first))
    third = net.relu(net.conv(second, 24, 3, 2))
    return net.save(tmp_path_factory.mktemp("model") / "three.onnx", third, (1, 24, 6, 6))


@functools.cache
def tasks_of(model: Path, target: str, choice: str = "") -> tuple[Compilation, dict[Signature, Task]]:
    """The tasks that compute convolutions or products, as `adt tune` takes them out of the model."""
    options = {"platform": "host", "check": False, "texture_choice": choice or FORMS[target]}
    compilation = job_of(CompileRequest(model, target=target, **options)).load(accuracy=False)
    found: dict[Signature, Task] = {}
    for task in extract(compilation).tasks:
        kernel = signature_of(task.module["main"])
        if kernel is not None:
            assert kernel.blocked == (options["texture_choice"] == "always")
            found[kernel.computes] = task
    return compilation, found


Traced = Callable[[Task, Compilation], Mapping[str, float]]
"""Seconds of a task by trace."""


def keep(directory: Path, model: Path, textures: Traced, buffers: Traced, *, in_buffers: str = "") -> Path:
    """A database with records of both forms, taken on one device.

    Args:
        in_buffers: the choice for buffers, if it is not to be plain ones.
    """
    for target, seconds, choice in zip(FORMS, (textures, buffers), ("", in_buffers), strict=True):
        compilation, tasks = tasks_of(model, target, choice)
        context = Context(target_key(compilation.target), tvm_key(), "a GPU", "1.0")
        with open_database(directory, write=True) as database:
            on = MeasuredOn("serial", "a phone", None)
            for task in tasks.values():
                named = database.workload_id(task.module)
                database.add(
                    Record(named, context, task.name, trace, (time,), None, on, "", 1.0)
                    for trace, time in seconds(task, compilation).items()
                )
    return directory


def compiled(model: Path, out: Path, **options: object) -> ModelPackage:
    wanted = {"platform": "host", "target": "adreno", "check": False, "use_cache": False, **options}
    return adt.compile(model, out=out, **wanted)  # type: ignore[arg-type]


def rows(package: ModelPackage) -> tuple[Convolution, ...]:
    report = package.manifest.made.textures
    assert report is not None
    return report.convolutions


def computes(task: Task) -> Signature:
    kernel = signature_of(task.module["main"])
    assert kernel is not None
    return kernel.computes


def test_a_convolution_has_one_signature_in_both_forms(tmp_path: Path) -> None:
    """Odd channels, groups, depthwise, windows with a border, strides, one pixel, a window as large as it."""
    net = Network((1, 3, 17, 15))
    x = net.silu(net.conv("x", 10, 5, 2))
    x = net.squeeze_excite(net.relu(net.conv(x, 12)), 4)
    x = net.add(net.conv(x, 12, 3, 1, groups=12), net.conv(x, 12, 3, 1, groups=3))
    model = net.save(tmp_path / "m.onnx", net.classifier(net.relu6(net.conv(x, 20, 1, 2)), 7), (1, 7))

    textures, buffers = (tasks_of(model, target)[1] for target in FORMS)

    assert len(buffers) == 8
    shared = textures.keys() & buffers.keys()
    assert {s for s in buffers if s.taps or s.channels > 4 or s.grouped} <= shared
    assert [s for s in shared if s.grouped and s.channels == 1] and [s for s in shared if s.channels == 4]


def test_the_faster_form_is_taken_and_the_package_is_right(model: Path, tmp_path: Path) -> None:
    strided = next(s for s in tasks_of(model, "adreno")[1] if s.strides == (2, 2))

    def textures(task: Task, _compilation: Compilation) -> dict[str, float]:
        return {BASELINE: 30.0 if computes(task) == strided else 1.0}

    def buffers(task: Task, compilation: Compilation) -> dict[str, float]:
        return {BASELINE: 90.0, hand_trace(task, tuning_target(compilation.target, 2)): 2.0}

    package = compiled(model, tmp_path / "package", db=keep(tmp_path / "db", model, textures, buffers))

    first, second, third = rows(package)
    assert not first.reason and not second.reason
    assert third.reason == "0.067 of the time in textures (2e+03 and 3e+04 ms, measured on a GPU)"
    assert "0.5 of the time in buffers" in first.grounds
    kernels = {kernel.name: kernel for kernel in package.manifest.kernels}
    [taken] = [kernel for name, kernel in kernels.items() if "conv2d" in name]
    assert taken.tuned and not taken.textures, "with the schedule of the record without textures"
    assert off_reference(package, model) < 1e-5


def test_a_record_that_would_not_apply_chooses_nothing(model: Path, tmp_path: Path) -> None:
    """Without the sum behind it, which its neighbour's textures take along, the second one is another kernel."""
    point = next(s for s in tasks_of(model, "adreno")[1] if not s.taps)

    def textures(task: Task, _compilation: Compilation) -> dict[str, float]:
        return {BASELINE: 30.0 if computes(task) == point else 1.0}

    def buffers(task: Task, compilation: Compilation) -> dict[str, float]:
        return {
            BASELINE: 90.0,
            hand_trace(task, tuning_target(compilation.target, 2)): 2.0 if computes(task) == point else 4.0,
        }

    package = compiled(model, tmp_path / "package", db=keep(tmp_path / "db", model, textures, buffers))

    assert [row.reason for row in rows(package)] == ["", "", ""]
    assert "0.33 of the time in buffers (3e+04 and 9e+04 ms" in rows(package)[1].grounds, "untuned"


def test_times_of_blocks_in_buffers_are_of_neither_form(model: Path, tmp_path: Path) -> None:
    db = keep(
        tmp_path / "db", model, lambda *_: {BASELINE: 30.0}, lambda *_: {BASELINE: 1.0}, in_buffers="always"
    )

    made = rows(compiled(model, tmp_path / "package", db=db))

    assert all("multiply-adds for each texel read" in row.grounds for row in made)


def test_inspect_tells_each_choice(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from typer.testing import CliRunner

    from adt.cli.app import app

    net = Network((1, 4, 8, 8))
    odd = net.save(tmp_path / "odd.onnx", net.conv(net.relu(net.conv("x", 8)), 5), (1, 5, 8, 8))
    compiled(odd, tmp_path / "package")

    shown = CliRunner().invoke(app, ["inspect", str(tmp_path / "package"), "--textures"]).output
    document = CliRunner().invoke(app, ["inspect", str(tmp_path / "package"), "--textures", "--json"]).output
    summary = CliRunner().invoke(app, ["inspect", str(tmp_path / "package")]).output

    why = "5 output channels leave 3 lanes idle"
    assert why in shown and "multiply-adds for each texel read" in shown
    assert [row["reason"] for row in json.loads(document)["textures"]["convolutions"]] == ["", why]
    assert "1 operators chosen for textures, 1 for buffers" in summary


def test_a_product_of_tokens_has_one_signature() -> None:
    from tvm import te

    one = (1, 1)
    window = blocks.Window(one, one, (0, 0), (0, 0), one)
    tokens, matrix = te.placeholder((2, 7, 8), name="x"), te.placeholder((8, 10), name="w")
    texels = te.placeholder((14, 2, 1, 1, 4), name="x"), te.placeholder((3, 1, 8, 4), name="w")
    k = te.reduce_axis((0, 8), "k")
    multiplied = te.compute(
        (2, 7, 10), lambda i, j, o: te.sum(tokens(i, j, k) * matrix(k, o), axis=k), name="matmul"
    )
    plain = signature_of(te.create_prim_func([tokens, matrix, multiplied]))
    blocked = signature_of(
        te.create_prim_func([*texels, blocks.convolution(*texels, window, 1, out_dtype="float32")])
    )

    assert plain is not None and blocked is not None
    assert plain.computes == blocked.computes == product("float32", (2, 7), 8, 10)
    assert blocked.blocked and not plain.blocked


def test_a_weight_of_another_order_is_no_kernel_of_ours() -> None:
    """Records of kernels as they were before say nothing about those of now."""
    from tvm import te

    data, weight = te.placeholder((1, 2, 6, 6, 4), name="x"), te.placeholder((3, 8, 1, 1, 4), name="w")
    channel = te.reduce_axis((0, 8), "channel")
    taps = [te.reduce_axis((0, 1), f"tap{axis}") for axis in (0, 1)]
    old = te.compute(
        (1, 3, 6, 6, 4),
        lambda n, b, y, x, lane: te.sum(
            data(n, channel // 4, y + taps[0], x + taps[1], channel % 4) * weight(b, channel, *taps, lane),
            axis=[channel, *taps],
        ),
    )

    assert signature_of(te.create_prim_func([data, weight, old])) is None
