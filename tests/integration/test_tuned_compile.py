"""Compiling with tuning records: what is tunable, which kernels get their records, and that they stay right."""

import dataclasses
import functools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

import adt
from adt.compiler import kernel_check as check_module
from adt.compiler.compilation import Compilation, CompileJob
from adt.compiler.networks.builder import Network
from adt.compiler.passes.gpu.tiles import cost
from adt.compiler.passes.records.key import target_key, tvm_key
from adt.compiler.passes.records.schedules import Recording, load_intrinsics
from adt.compiler.passes.records.traces import trace_text
from adt.compiler.passes.records.workload import same, workload
from adt.errors import ConfigError
from adt.package.host_run.run import run_package, run_packages
from adt.package.inputs.random import random_inputs
from adt.package.package import KernelCheck, ModelPackage, load_package
from adt.tuning.database.store import open_database
from adt.tuning.database.tuned_schedules import GPUS, keep_gpu
from adt.tuning.fit import fit_gpu, sums_of, tile_of
from adt.tuning.records import BASELINE, Context, MeasuredOn, Record
from adt.tuning.search.strategies import RANDOM, SearchOptions
from adt.tuning.search.task_search import Searches
from adt.tuning.tasks import (
    Extraction,
    Task,
    extract,
    extraction_of,
    toolchain_of,
    tuning_target,
    untunable_reason,
)
from adt.verbs.compile import CompileRequest, job_of, tuned_job
from support.models.onnx_graphs import graph_of, node, write
from support.models.schedules import apply_by_hand, hand_trace

TARGETS = ("cpu", "opencl", "adreno")
UNTUNED, TUNED = 2.0, 1.0
"""Seconds on record."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    net = Network((1, 4, 8, 8))
    first = net.relu(net.conv("x", 8))
    second = net.relu(net.conv(first, 8))
    third = net.relu(net.conv(second, 8))
    return net.save(tmp_path_factory.mktemp("model") / "three.onnx", third, (1, 8, 8, 8))


def job(model: Path, target: str, **options: Any) -> CompileJob:
    return job_of(CompileRequest(model, **{"platform": "host", "target": target, "check": False, **options}))


@functools.cache
def read(model: Path, target: str, **options: Any) -> tuple[Compilation, Extraction]:
    """Return the import of *model* and its tasks, which tests share."""
    compilation = job(model, target, **options).load(accuracy=False)
    return compilation, extract(compilation)


def context_of(compilation: Compilation) -> Context:
    return Context(target_key(compilation.target), tvm_key(), "a GPU", "1.0")


def keep(directory: Path, compilation: Compilation, task: Task, trace: str, seconds: float) -> None:
    with open_database(directory, write=True) as database:
        on = MeasuredOn("serial", "a phone", None)
        named = database.workload_id(task.module)
        database.add(
            [Record(named, context_of(compilation), task.name, trace, (seconds,), None, on, "", 1.0)]
        )


def tuned_by_hand(directory: Path, compilation: Compilation, tasks: tuple[Task, ...]) -> Path:
    """Write a database with a schedule for each task, each said to be faster than the untuned one."""
    for task in tasks:
        keep(directory, compilation, task, BASELINE, UNTUNED)
        keep(directory, compilation, task, hand_trace(task, tuning_target(compilation.target, 2)), TUNED)
    return directory


def compiled(model: Path, out: Path, target: str, **options: Any) -> ModelPackage:
    return adt.compile(model, out=out, **{"platform": "host", "target": target, "check": False, **options})


@pytest.mark.parametrize("target", TARGETS)
def test_tasks_are_the_kernels_that_compiling_makes(model: Path, target: str, tmp_path: Path) -> None:
    compilation, survey = read(model, target)
    package = compiled(model, tmp_path / "package", target)
    assert {name for task in survey.tasks for name in task.kernels} == {
        k.name for k in package.manifest.kernels
    }
    assert not survey.untunable
    convolutions = [task for task in survey.tasks if "conv" in task.name]
    assert sorted(task.weight for task in convolutions) == [1, 2]
    flops = {task.weight: task.flops for task in convolutions}
    assert flops[2] is not None and flops[1] is not None and flops[2] > flops[1] >= 2 * 8 * 8 * 8 * 4 * 9
    scopes = {argument.scope for task in survey.tasks for argument in task.arguments}
    assert scopes == ({"global", "global.texture"} if target == "adreno" else {"global"})
    for task in survey.tasks:
        assert [tuple(int(e) for e in b.shape) for b in task.module["main"].buffer_map.values()] == [
            argument.shape for argument in task.arguments
        ]
    how = toolchain_of(compilation)
    assert (how.target, how.textures) == (compilation.target.spec, target == "adreno")


def test_kernels_that_are_the_same_code_are_one_task() -> None:
    from tvm import relax, te

    data = te.placeholder((4,), name="given")
    twice = te.create_prim_func([data, te.compute((4,), lambda i: data[i] * 2.0, name="twice")])
    recording, builder = Recording(), relax.BlockBuilder()
    first, other = (builder.add_func(recording.take(twice), name) for name in ("one", "other"))
    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    with builder.function("main", [x]):
        value: Any = x
        for kernel in (first, other, first):
            value = builder.emit(relax.call_tir(kernel, [value], relax.TensorStructInfo((4,), "float32")))
        builder.emit_func_output(value)
    lowered = relax.transform.CallTIRRewrite()(builder.get())
    [task] = extraction_of(lowered, recording, "").tasks
    assert (task.name, task.kernels, task.weight) == ("one", ("one", "other"), 3)


def test_a_row_fitted_to_records_is_what_a_compile_schedules_for(model: Path, tmp_path: Path) -> None:
    """Fit the searches' own schedules to the times of a device on which the cost model is exact."""
    compilation, extraction = read(model, "opencl")
    before = compilation.target.gpu
    assert before is not None
    device = dataclasses.replace(before, items=128, sums=4)
    searches = Searches(tuning_target(compilation.target, 2), SearchOptions(RANDOM, "none"))
    for task in extraction.tasks:
        sums = sums_of(task.module)
        if sums is None:
            continue
        for candidate in searches.search(task).next_batch(12) or ():
            tile = tile_of(candidate.trace)
            assert tile is not None
            keep(tmp_path, compilation, task, candidate.trace, 1e-9 * cost(sums, tile, device))
    with open_database(tmp_path) as database:
        fitted = fit_gpu(database, context_of(compilation), before)
    assert fitted.kernels == 2 and fitted.ordered > max(0.95, fitted.ordered_before)
    keep_gpu(tmp_path, context_of(compilation), fitted.gpu)

    tuned = tuned_job(job(model, "opencl", db=tmp_path))

    gpu = tuned.target().gpu
    assert gpu is not None and (gpu.name, gpu.items) == ("a GPU", fitted.gpu.items)
    assert tuned.tuning is not None and gpu.items < before.items
    (tmp_path / GPUS).unlink()
    untuned = tuned_job(job(model, "opencl", db=tmp_path))
    assert untuned.target().gpu == before
    assert untuned.tuning and untuned.tuning.digest != tuned.tuning.digest, "packages are cached by it"


@pytest.fixture(scope="module")
def unblocked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build two reductions, which nothing blocks or rewrites: its kernels are those that TVM itself makes."""
    nodes = [
        node("ReduceMax", ["x"], ["most"], axes=[1], keepdims=0),
        node("ReduceMin", ["x"], ["least"], axes=[0], keepdims=0),
    ]
    path = tmp_path_factory.mktemp("unblocked") / "reductions.onnx"
    return write(graph_of(nodes, {"x": (8, 16)}, ["most", "least"]), path)


def test_another_program_s_records_of_the_same_model_are_found(unblocked: Path, tmp_path: Path) -> None:
    """Extract tasks by TVM itself, and read what MetaSchedule writes down of them."""
    load_intrinsics()
    from tvm import relax
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule.relax_integration import extract_tasks

    compilation, survey = read(unblocked, "cpu")
    target = tvm.target.Target(tuning_target(compilation.target, 2))
    with target:
        tasks = extract_tasks(relax.get_pipeline("zero")(compilation.imported.module), target)
    # where NaN is, TVM asks in kernels of their own; adt's keep it in one pass
    theirs = [task for task in tasks if not re.search("isnan|greater.*where", task.task_name)]
    ours = {task.name: task for task in survey.tasks}
    assert {task.task_name: task.weight for task in theirs} == {
        task.name: task.weight for task in survey.tasks
    }
    (tmp_path / "theirs").mkdir()
    written = ms.database.JSONDatabase(work_dir=str(tmp_path / "theirs"))
    for task in theirs:
        assert same(task.mod, ours[task.task_name].module)
        schedule = tvm.s_tir.Schedule(task.mod)
        apply_by_hand(schedule, gpu=False)
        arguments = ms.arg_info.ArgInfo.from_prim_func(task.mod["main"])
        workload_there = written.commit_workload(task.mod)
        written.commit_tuning_record(
            ms.database.TuningRecord(schedule.trace, workload_there, [TUNED], target, arguments)
        )
    adt.db_import(tmp_path / "theirs", into=tmp_path / "db", device="a board", platform="host", target="cpu")
    package = compiled(unblocked, tmp_path / "package", "cpu", db=tmp_path / "db")
    assert package.manifest.tuned == package.manifest.total == len(theirs)
    assert package.manifest.made.tuning is not None and package.manifest.made.tuning.device == "a board"


@pytest.mark.parametrize("target", TARGETS)
def test_a_baseline_is_what_compiling_gives_without_records(model: Path, target: str) -> None:
    """Bound to threads on a GPU; by vectors on a CPU."""
    _, survey = read(model, target)
    for task in survey.tasks:
        baseline = tvm.ir.load_json(task.baseline)
        text = str(baseline.script())
        assert ("blockIdx.x" in text) == (target != "cpu")
        assert "T.vectorized" in text or target != "cpu"
        assert not same(workload(baseline["main"]), task.module)


@pytest.mark.parametrize("target", ["cpu", "opencl"])
def test_what_cannot_be_tuned_is_named_with_the_reason(tmp_path: Path, target: str) -> None:
    nodes = [node("Relu", ["x"], ["r"]), node("TopK", ["r", "k"], ["v", "i"], axis=1)]
    path = write(graph_of(nodes, {"x": (1, 64)}, ["v"], {"k": np.array([8])}), tmp_path / "top.onnx")
    _, survey = read(path, target)
    assert [task.name for task in survey.tasks] == ["relu"]
    [other] = survey.untunable
    assert other.name == "topk" and other.reason.startswith("its schedule is given (sorting")


def test_open_shapes_and_loops_without_an_end_cannot_be_tuned() -> None:
    from tvm import te, tirx

    length = te.var("n")
    data = te.placeholder((length,), name="given")
    opened = te.create_prim_func([data, te.compute((length,), lambda i: data[i] * 2.0, name="twice")])
    assert "known at run time" in untunable_reason(opened)
    fixed = te.placeholder((16,), name="fixed")
    closed = te.create_prim_func([fixed, te.compute((16,), lambda i: fixed[i] * 2.0, name="twice")])
    assert untunable_reason(closed) == ""
    forever = closed.with_body(tirx.While(tirx.const(1, "bool"), closed.body))
    assert "loops until" in untunable_reason(forever)


@pytest.mark.parametrize("target", ["cpu", pytest.param("opencl", marks=pytest.mark.nightly), "adreno"])
def test_kernels_get_their_records_and_stay_right(model: Path, tmp_path: Path, target: str) -> None:
    compilation, survey = read(model, target)
    records = tuned_by_hand(tmp_path / "db", compilation, survey.tasks)
    plain = compiled(model, tmp_path / "plain", target)
    check = {} if target == "cpu" else {"check": True}
    tuned = compiled(model, tmp_path / "tuned", target, db=records, **check)

    facts = tuned.manifest
    assert facts.tuned == facts.total == plain.manifest.total and all(k.tuned for k in facts.kernels)
    assert facts.made.tuning is not None
    assert (facts.made.tuning.device, facts.made.tuning.driver) == ("a GPU", "1.0")
    assert facts.made.tuning.kept == facts.made.tuning.refused == ()
    assert plain.manifest.tuned == 0 and plain.manifest.made.tuning is None
    assert not {"db", "tuned_on"} & facts.made.settings.keys()
    assert facts.files["mod.so"].sha256 != plain.manifest.files["mod.so"].sha256
    assert facts.files["mod.params"].sha256 == plain.manifest.files["mod.params"].sha256
    if target == "cpu":
        inputs = random_inputs(facts.entry().inputs, 3)
        [name] = [output.name for output in facts.entry().outputs]
        computed, expected = (run_package(p.path, inputs, timeout=300)[name] for p in (tuned, plain))
        assert np.abs(computed - expected).max() <= 1e-5 * np.abs(expected).max()
    else:
        assert isinstance(tuned.checked, KernelCheck)


@pytest.mark.nightly
def test_another_machine_s_package_is_checked_with_its_records(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int, int]] = []

    def spied(runs: Any, **options: Any) -> Any:
        for run in runs:
            facts = load_package(run.package).manifest
            seen.append((facts.target.name, facts.tuned, facts.total))
        return run_packages(runs, **options)

    monkeypatch.setattr(check_module, "run_packages", spied)
    elsewhere = {"platform": "linux-aarch64"}
    compilation, survey = read(model, "adreno", **elsewhere)
    records = tuned_by_hand(tmp_path / "db", compilation, survey.tasks)
    package = compiled(
        model, tmp_path / "package", "adreno", db=records, check=True, use_cache=False, **elsewhere
    )
    assert isinstance(package.checked, KernelCheck)
    count = package.manifest.total
    assert package.manifest.tuned == count
    assert [row[:2] for row in seen] == [("adreno", count), ("cpu", 0)]


@pytest.mark.nightly
def test_what_a_library_computes_is_named(model: Path) -> None:
    _, survey = read(model, "adreno", platform="linux-aarch64", offload="clml")
    assert "CLML computes it" in {other.reason for other in survey.untunable}


def test_a_kernel_whose_untuned_schedule_is_faster_keeps_it(model: Path, tmp_path: Path) -> None:
    compilation, survey = read(model, "cpu")
    records = tuned_by_hand(tmp_path / "db", compilation, survey.tasks)
    for task in survey.tasks:
        keep(records, compilation, task, BASELINE, TUNED / 2)
        keep(records, compilation, task, BASELINE, TUNED / 2)
    plain = compiled(model, tmp_path / "plain", "cpu")
    tuned = compiled(model, tmp_path / "tuned", "cpu", db=records)
    report = tuned.manifest.made.tuning
    assert report is not None and set(report.kept) == {kernel.name for kernel in plain.manifest.kernels}
    assert tuned.manifest.tuned == 0
    assert tuned.manifest.files["mod.so"].sha256 == plain.manifest.files["mod.so"].sha256


@pytest.mark.parametrize(
    ("target", "trace"),
    [("cpu", "no JSON"), ("adreno", '[[["GetSBlock",[],["no such block","main"],["b0"]]],[]]')],
)
def test_a_record_that_does_not_apply_is_passed_over(
    model: Path, tmp_path: Path, target: str, trace: str, caplog: pytest.LogCaptureFixture
) -> None:
    compilation, survey = read(model, target)
    task = survey.tasks[0]
    keep(tmp_path / "db", compilation, task, trace, TUNED)
    plain = compiled(model, tmp_path / "plain", target)
    package = compiled(model, tmp_path / "tuned", target, db=tmp_path / "db")
    report = package.manifest.made.tuning
    assert report is not None and report.refused == (task.name,) and package.manifest.tuned == 0
    assert package.manifest.files["mod.so"].sha256 == plain.manifest.files["mod.so"].sha256
    assert f"the record of {task.name} does not apply to it" in caplog.text


def test_a_record_of_tvms_schedules_for_a_blocked_convolution_is_passed_over(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Pass over a record of an earlier adt, which applies and would leave the kernel without vectors."""
    compilation, survey = read(model, "cpu")
    task = next(task for task in survey.tasks if "conv" in task.name)
    schedule = tvm.s_tir.Schedule(task.module)
    apply_by_hand(schedule, gpu=False)
    keep(tmp_path / "db", compilation, task, trace_text(schedule.trace), TUNED)
    package = compiled(model, tmp_path / "tuned", "cpu", db=tmp_path / "db", use_cache=False)
    report = package.manifest.made.tuning
    assert report is not None and set(report.refused) == set(task.kernels)
    assert package.manifest.tuned == 0
    assert "computed by tiles" in caplog.text


def test_a_record_that_misuses_images_is_passed_over(model: Path, tmp_path: Path) -> None:
    """Skip a schedule with a work-item for each lane, whose stores would overwrite one another."""
    compilation, survey = read(model, "adreno")
    task = next(task for task in survey.tasks if task.arguments[-1].scope == "global.texture")
    schedule = tvm.s_tir.Schedule(task.module)
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        loops = schedule.get_loops(block)[:5]
        group, item = schedule.split(schedule.fuse(*loops), [None, 32])
        schedule.bind(group, "blockIdx.x")
        schedule.bind(item, "threadIdx.x")
    keep(tmp_path / "db", compilation, task, trace_text(schedule.trace), TUNED)
    package = compiled(model, tmp_path / "package", "adreno", db=tmp_path / "db")
    report = package.manifest.made.tuning
    assert report is not None and report.refused == (task.name,)
    plain = compiled(model, tmp_path / "plain", "adreno")
    assert package.manifest.files["mod.so"].sha256 == plain.manifest.files["mod.so"].sha256


def test_records_decide_the_entry_of_the_cache(model: Path, tmp_path: Path) -> None:
    compilation, survey = read(model, "cpu")
    records = tuned_by_hand(tmp_path / "db", compilation, survey.tasks[:1])
    first = compiled(model, tmp_path / "first", "cpu", db=records)
    moved = records.rename(tmp_path / "elsewhere")
    again = compiled(model, tmp_path / "again", "cpu", db=moved)
    assert again.cached and first.manifest == again.manifest
    anew = compiled(model, tmp_path / "anew", "cpu", db=moved, use_cache=False)
    assert (
        anew.manifest.files == first.manifest.files
        and anew.manifest.made.tuning == first.manifest.made.tuning
    )
    assert compiled(model, tmp_path / "plain", "cpu").manifest.tuned == 0
    tuned_by_hand(moved, compilation, survey.tasks[1:])
    more = compiled(model, tmp_path / "more", "cpu", db=moved)
    assert more.manifest.tuned > first.manifest.tuned >= 1


def test_the_database_can_be_a_setting(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compilation, survey = read(model, "cpu")
    tuned_by_hand(tmp_path / "db", compilation, survey.tasks)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "adt.toml").write_text('[compile]\ndb = "db"\n')
    assert compiled(model, tmp_path / "package", "cpu").manifest.tuned == len(survey.tasks)
    with pytest.raises(ConfigError, match="no records of 'another'"):
        compiled(model, tmp_path / "other", "cpu", tuned_on="another")
    (tmp_path / "adt.toml").unlink()
    with pytest.raises(ConfigError, match="--tuned-on can be given only with --db"):
        compiled(model, tmp_path / "other", "cpu", tuned_on="another")


def test_records_of_a_texture_kernel_are_not_those_of_a_buffer_kernel(model: Path, tmp_path: Path) -> None:
    textures, survey = read(model, "adreno")
    buffers, _ = read(model, "adreno-buffer")
    records = tuned_by_hand(tmp_path / "db", textures, survey.tasks)
    package = compiled(model, tmp_path / "package", "adreno-buffer", db=records)
    assert package.manifest.tuned == 0 and package.manifest.made.tuning is None
    assert context_of(textures) != context_of(buffers)
    assert context_of(textures) == context_of(dataclasses.replace(textures, alignment=128))
