"""Records that say what a schedule must not do: each is left out by name, and the package is as without it."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tvm
from test_cpu_space import TARGETS, of_bytes
from test_tuned_compile import TUNED, compiled, keep, read

from adt.compiler import compile as compile_module
from adt.compiler.passes.records.schedules import Tuned, load_intrinsics
from adt.compiler.passes.records.traces import trace_text
from adt.compiler.passes.records.tuning import TunedKernel, Tuning
from adt.compiler.passes.records.workload import MARK, REFUSED, workload
from adt.compiler.targets import ModelTarget
from adt.errors import VerifyFailed
from adt.package.package import KernelCheck
from adt.tuning.search.design_space import rule_space
from support.models.onnx_graphs import graph_of, node
from support.models.schedules import apply_by_hand

SIDE = 200
"""Extent of a square tensor, whose shape stays the same when its axes are exchanged."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "sum.onnx"
    graph = graph_of(
        [node("Exp", ["x"], ["e"]), node("Add", ["e", "z"], ["y"])],
        {"x": (SIDE, SIDE), "z": (1, SIDE)},
        ["y"],
    )
    path.write_bytes(graph.SerializeToString())
    return path


def loops(schedule: Any) -> tuple[Any, list[Any]]:
    block = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
    return block, schedule.get_loops(block)


def exchange(schedule: Any) -> None:
    schedule.transform_layout(loops(schedule)[0], ("read", 0), lambda i, j: (j, i))


def overlap(schedule: Any) -> None:
    schedule.transform_layout(
        loops(schedule)[0], ("write", 0), lambda i, j: (i // 2, j), assume_injective_transform=True
    )


def reread(schedule: Any) -> None:
    schedule.reindex_cache_read(loops(schedule)[0], 0, "global", lambda i, j: (i // 2, j))


def beyond(schedule: Any) -> None:
    schedule.split(loops(schedule)[1][0], [None, 64], disable_predication=True)


def bind(schedule: Any) -> None:
    schedule.bind(loops(schedule)[1][0], "threadIdx.x")


def shared(schedule: Any) -> None:
    schedule.cache_write(loops(schedule)[0], 0, "shared")


def unroll(schedule: Any) -> None:
    for loop in loops(schedule)[1]:
        schedule.unroll(loop)


def unroll_behind_an_annotation(schedule: Any) -> None:
    each = loops(schedule)[1]
    schedule.annotate(each[0], "pragma_auto_unroll_max_step", 1 << 20)
    schedule.annotate(each[0], "pragma_unroll_explicit", 1)


def vectorize(schedule: Any) -> None:
    schedule.vectorize(schedule.fuse(*loops(schedule)[1]))


def enormous_tiles(schedule: Any) -> None:
    schedule.split(loops(schedule)[1][0], [1 << 12, 1 << 12])


def stride(schedule: Any) -> None:
    copy = schedule.cache_write(loops(schedule)[0], 0, "global")
    schedule.storage_align(copy, 0, 0, 1 << 30, 1)


WRONG: dict[Callable[[Any], None], str] = {
    exchange: "it changes the arguments",
    overlap: "a map that is not proven",
    reread: "it computes other numbers",
    beyond: "no predicate",
    bind: "threads",
    shared: "shared memory",
    unroll: "unrolls and vectorizes",
    unroll_behind_an_annotation: "unrolls and vectorizes",
    vectorize: "unrolls and vectorizes",
    enormous_tiles: "iterations",
    stride: "the alignment",
}


@pytest.mark.parametrize("wrong", WRONG, ids=lambda function: function.__name__)
def test_a_record_that_is_no_schedule_is_left_out(
    model: Path, tmp_path: Path, wrong: Callable[[Any], None], caplog: pytest.LogCaptureFixture
) -> None:
    compilation, extraction = read(model, "cpu")
    (task,) = extraction.tasks
    schedule = tvm.s_tir.Schedule(task.module)
    wrong(schedule)
    keep(tmp_path / "db", compilation, task, trace_text(schedule.trace), TUNED)
    plain = compiled(model, tmp_path / "plain", "cpu")
    began = time.monotonic()
    package = compiled(model, tmp_path / "tuned", "cpu", db=tmp_path / "db", use_cache=False)
    assert time.monotonic() - began < 120
    report = package.manifest.made.tuning
    assert report is not None and report.refused == (task.name,) and package.manifest.tuned == 0
    assert package.manifest.files["mod.so"].sha256 == plain.manifest.files["mod.so"].sha256
    assert WRONG[wrong] in caplog.text and f"the record of {task.name} does not apply" in caplog.text


def test_a_record_that_is_right_is_applied(model: Path, tmp_path: Path) -> None:
    compilation, extraction = read(model, "cpu")
    (task,) = extraction.tasks
    schedule = tvm.s_tir.Schedule(task.module)
    schedule.parallel(schedule.fuse(*loops(schedule)[1]))
    keep(tmp_path / "db", compilation, task, trace_text(schedule.trace), TUNED)
    package = compiled(model, tmp_path / "tuned", "cpu", db=tmp_path / "db", use_cache=False)
    assert package.manifest.tuned == 1


def test_what_no_compiler_takes_is_left_out(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Leave half of the kernel without threads, which TVM sees last of all."""
    compilation, extraction = read(model, "opencl")
    (task,) = extraction.tasks
    schedule = tvm.s_tir.Schedule(task.module)
    bind(schedule)
    keep(tmp_path / "db", compilation, task, trace_text(schedule.trace), TUNED)
    package = compiled(model, tmp_path / "tuned", "opencl", db=tmp_path / "db", use_cache=False)
    report = package.manifest.made.tuning
    assert report is not None and report.refused == (task.name,)
    assert "a record is left out" in caplog.text


def test_an_instruction_that_the_processor_lacks_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Compile in another process, which LLVM ends."""
    load_intrinsics("x86_64-linux-gnu")
    function = of_bytes()
    space = rule_space(workload(function)["main"], tvm.target.Target(TARGETS["x86"]))
    assert space
    point = space.point({})
    assert point and "llvm.x86.avx2.pmadd.wd" in point.candidate.trace
    module = workload(function)
    bare = ModelTarget("cpu", "cpu", {"kind": "llvm", "mtriple": "x86_64-linux-gnu"}, ("cpu",))
    known = TunedKernel(str(tvm.ir.save_json(module)), point.candidate.trace, TUNED, None)
    for target, mark in ((bare, REFUSED), (replace(bare, spec=TARGETS["x86"]), "tuned")):
        with contextlib.closing(Tuned(Tuning((known,), "", "a CPU", ""), target)) as tuned:
            assert tuned.take(module["main"]).attrs[MARK] == mark, caplog.text
    assert "it is not built" in caplog.text


def test_kernels_that_a_gpu_s_check_finds_wrong_are_compiled_without_records(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Fail a check with records only; which race of a GPU that is does not matter here."""
    compilation, extraction = read(model, "opencl")
    (task,) = extraction.tasks
    schedule = tvm.s_tir.Schedule(task.module)
    apply_by_hand(schedule, gpu=True)
    keep(tmp_path / "db", compilation, task, trace_text(schedule.trace), TUNED)

    def checked(_compilation: Any, package: Any, _mode: str) -> KernelCheck:
        if package.manifest.tuned:
            raise VerifyFailed("the kernels compute wrong numbers", remedy="None is needed.")
        return KernelCheck(device="a stand-in", inputs="none", limit=0.0, outputs=())

    monkeypatch.setattr(compile_module, "check", checked)
    package = compiled(model, tmp_path / "tuned", "opencl", db=tmp_path / "db", check=True, use_cache=False)
    assert package.manifest.tuned == 0 and package.manifest.made.tuning is None
    assert "its tuning records are left out" in caplog.text
