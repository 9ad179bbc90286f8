"""Candidates are compiled in processes that may crash or hang, here and on the workers of a Dask cluster."""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from adt.errors import ConfigError, MismatchError, ToolNotFound
from adt.host.elf import read_elf
from adt.host.extras import install_command
from adt.tuning.candidates import BuildJob, BuildOutcome, Toolchain
from adt.tuning.fleet.builders import Builders, LocalBuilders, build, make_builders
from support.devices.ports import free_port
from support.waiting import wait_for

TOOLCHAIN = Toolchain({"kind": "llvm", "mtriple": "x86_64-linux-gnu"}, "cpu", 64, False, 3, "g++", (), None)
TIMEOUT = 15.0
"""Seconds for a candidate that hangs; a busy machine takes several for one that does not."""


@pytest.fixture(scope="module")
def candidate() -> str:
    import tvm
    from tvm import te

    a = te.placeholder((128,), name="a")
    b = te.compute((128,), lambda i: a[i] + 1.0, name="b")
    function = te.create_prim_func([a, b]).with_attr("global_symbol", "main")
    return str(tvm.ir.save_json(tvm.IRModule({"main": function})))


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that no file of a candidate is left, whatever happens to it."""
    directory = tmp_path_factory.mktemp("temporary")
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield
    assert not list(directory.glob("adt-candidate-*"))


@pytest.fixture
def compilers(tmp_path: Path) -> dict[str, str]:
    """Write compilers that end or hang the process that calls them."""
    programs = {}
    for name, line in {
        "crashing": "kill -KILL $PPID",
        "hanging": f"echo $$ >> {tmp_path}/pids; sleep 1000",
    }.items():
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
        programs[name] = str(path)
    return programs


class Results:
    """Results of builders by the number of the job."""

    def __init__(self) -> None:
        self.built: dict[int, BuildOutcome] = {}
        self._come = threading.Condition()

    def __call__(self, built: BuildOutcome) -> None:
        with self._come:
            assert built.id not in self.built, "told twice"
            self.built[built.id] = built
            self._come.notify()

    def wait(self, count: int) -> dict[int, BuildOutcome]:
        with self._come:
            assert self._come.wait_for(lambda: len(self.built) == count, 120), self.built.keys()
            return self.built


def submit_all_kinds(builders: Builders, candidate: str, compilers: dict[str, str]) -> Results:
    """Have good candidates built beside ones that are refused, crash the compiler, or hang it."""
    results = Results()
    toolchains = {
        1: TOOLCHAIN,
        2: dataclasses.replace(TOOLCHAIN, compiler=compilers["crashing"]),
        3: TOOLCHAIN,
        4: dataclasses.replace(TOOLCHAIN, compiler=compilers["hanging"]),
        6: TOOLCHAIN,
    }
    for number, toolchain in toolchains.items():
        builders.submit(BuildJob(number, candidate, toolchain), results)
    builders.submit(BuildJob(5, "{}", TOOLCHAIN), results)
    return results


def check_all_kinds(results: Results, path: Path) -> None:
    built = results.wait(6)
    kinds = {number: each.failure and each.failure.kind for number, each in sorted(built.items())}
    assert kinds == {1: None, 2: "build-crash", 3: None, 4: "build-timeout", 5: "build", 6: None}
    assert built[1].library == built[3].library == built[6].library
    path.write_bytes(built[1].library)
    assert any(name.endswith("main") for name in read_elf(path).functions)
    assert "SIGKILL" in built[2].failure.message and not built[2].library  # type: ignore[union-attr]


def test_closing_ends_what_is_being_compiled(
    candidate: str, compilers: dict[str, str], tmp_path: Path
) -> None:
    builders = make_builders("1", TOOLCHAIN)
    results = Results()
    hanging = dataclasses.replace(TOOLCHAIN, compiler=compilers["hanging"])
    for number in range(3):
        builders.submit(BuildJob(number, candidate, hanging), results)
    wait_for((tmp_path / "pids").exists, "the start of a compiler")
    builders.close()
    builders.close()
    [pid] = (tmp_path / "pids").read_text().split()
    assert not psutil.pid_exists(int(pid)) and not results.built


def test_what_the_linker_says_is_the_failures_message(candidate: str, tmp_path: Path) -> None:
    unlinkable = dataclasses.replace(TOOLCHAIN, link_options=("-lnowhere",))
    failure = build(BuildJob(1, candidate, unlinkable)).failure
    assert failure is not None and failure.kind == "build" and "linking mod.so failed" in failure.message
    without = dataclasses.replace(TOOLCHAIN, compiler="/nowhere/g++")
    failure = build(BuildJob(1, candidate, without)).failure
    assert failure is not None and "/nowhere/g++" in failure.message
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "asked", ["0", "-1", "many", "http://127.0.0.1:1", "dask://127.0.0.1", "dask://127.0.0.1:x"]
)
def test_builders_that_are_none(asked: str) -> None:
    with pytest.raises(ConfigError):
        make_builders(asked, TOOLCHAIN)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start a scheduler and two workers of one thread each that know adt as this process does."""
    import distributed

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        with distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster:
            yield cluster


def test_here_and_on_a_cluster(
    cluster: Any, candidate: str, compilers: dict[str, str], tmp_path: Path
) -> None:
    """Wait for what hangs on both at the same time."""
    address = cluster.scheduler_address.replace("tcp://", "dask://")
    with contextlib.ExitStack() as stack:
        results = []
        for builders in (
            LocalBuilders(2, timeout=TIMEOUT),
            make_builders(address, TOOLCHAIN, timeout=TIMEOUT),
        ):
            stack.callback(builders.close)
            assert builders.workers == 2
            results.append(submit_all_kinds(builders, candidate, compilers))
        for each in results:
            check_all_kinds(each, tmp_path / "candidate.so")
    for pid in (tmp_path / "pids").read_text().split():
        assert not psutil.pid_exists(int(pid)), "the compiler that hung was left behind"
    children = [" ".join(each.cmdline()) for each in psutil.Process().children()]
    assert not [each for each in children if "fleet.builders" in each]

    again = make_builders(address, TOOLCHAIN)
    results = Results()
    try:
        again.submit(BuildJob(1, candidate, TOOLCHAIN), results)
        assert not results.wait(1)[1].failure, "the cluster outlives its user"
    finally:
        again.close()


def test_dask_workers_must_be_able_to_build(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = dataclasses.replace(TOOLCHAIN, compiler="/nowhere/clang++")
    with pytest.raises(ToolNotFound, match="lacks /nowhere/clang"):
        make_builders(cluster.scheduler_address, lacking)
    monkeypatch.setattr("adt.__version__", "9.9")
    with pytest.raises(MismatchError, match=r"has adt .*, this machine 9\.9"):
        make_builders(cluster.scheduler_address, TOOLCHAIN)


def test_a_lost_dask_worker_costs_at_most_a_candidate(cluster: Any, candidate: str) -> None:
    builders = make_builders(cluster.scheduler_address, TOOLCHAIN)
    results = Results()
    try:
        for number in range(6):
            builders.submit(BuildJob(number, candidate, TOOLCHAIN), results)
        pid = next(iter(builders._client.run(os.getpid).values()))  # type: ignore[attr-defined]
        os.kill(pid, signal.SIGKILL)
        built = results.wait(6)
        assert sum(each.failure is None for each in built.values()) >= 5
    finally:
        builders.close()


def test_no_dask_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adt.tuning.fleet.builders.ANSWER_SECONDS", 0.5)
    with pytest.raises(ConfigError, match="no Dask scheduler answers"):
        make_builders(f"dask://127.0.0.1:{free_port()}", TOOLCHAIN)


def test_without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ToolNotFound, match="takes Dask") as caught:
        make_builders("dask://127.0.0.1:8786", TOOLCHAIN)
    assert caught.value.remedy == install_command(extra="dask")


def test_killed_with_minus_nine_nothing_is_left(
    candidate: str, compilers: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "candidate.json").write_text(candidate)
    program = (
        "import sys, time; from pathlib import Path; from adt.tuning.fleet.builders import LocalBuilders\n"
        "from adt.tuning.candidates import BuildJob, Toolchain\n"
        f"toolchain = Toolchain({TOOLCHAIN.target!r}, 'cpu', 64, False, 3, sys.argv[2], (), None)\n"
        "LocalBuilders(1).submit(BuildJob(1, Path(sys.argv[1]).read_text(), toolchain), print)\n"
        "time.sleep(1000)"
    )
    argv = [sys.executable, "-c", program, str(tmp_path / "candidate.json"), compilers["hanging"]]
    with subprocess.Popen(argv) as parent:
        wait_for((tmp_path / "pids").exists, "the start of a compiler")
        children = psutil.Process(parent.pid).children(recursive=True)
        parent.kill()
    assert len(children) >= 3, "the compiling process, the compiler, what that runs"
    _, alive = psutil.wait_procs(children, timeout=120)
    assert not alive
