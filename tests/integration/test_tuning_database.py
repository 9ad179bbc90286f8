"""The tuning database with real processes that are killed, and with TVM's own databases."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import relax, te

import adt
from adt.compiler.passes.records.schedules import load_intrinsics
from adt.compiler.passes.records.traces import scheduled, trace_text
from adt.compiler.passes.records.workload import workload as normal
from adt.errors import ConfigError, DiskError, PackageError
from adt.tuning.database.changes import merge
from adt.tuning.database.overview import verify
from adt.tuning.database.sqlite_file import FILE
from adt.tuning.database.store import describe_workload, open_database
from adt.tuning.records import Context, Record
from support.devices.programs import adt as run_adt
from support.standins.tuning_records import (
    applicable,
    baseline,
    database_in,
    name_of,
    printed,
    record,
    running,
    workload,
)

SEED = 20261121
WRITER = """
import os, sys
from pathlib import Path
from adt.tuning.database.store import open_database
from support.standins.tuning_records import applicable, workload

first = int(sys.argv[2])
with open_database(Path(sys.argv[1]), write=True) as database:
    database.add((), [workload()])
    print("opened", flush=True)
    for batch in range(first, 1 << 30):
        database.add([applicable(f"{batch}_{i}_" + "x" * 150) for i in range(20)], [workload(f"new {batch}")])
        os.write(1, b"%d\\n" % batch)  # the batch is acknowledged
"""


@pytest.mark.parametrize("rounds", [5, pytest.param(50, marks=pytest.mark.nightly)])
def test_killed_writers_lose_nothing(tmp_path: Path, rounds: int) -> None:
    moments = random.Random(SEED)
    acknowledged: list[int] = []
    unfinished = 0
    for number in range(rounds):
        if number % 10 == 0:  # else ever more time goes into reading it
            directory, acknowledged = tmp_path / f"db{number}", []
        wait = moments.random() * 0.3
        with running(WRITER, directory, 1000 * number) as writer:
            assert printed(writer) == "opened"
            time.sleep(wait)
            writer.kill()
            acknowledged += [int(line) for line in writer.communicate()[0].split()]
        unfinished += (directory / f"{FILE}-wal").stat().st_size > 0
        with open_database(directory) as database:
            names = [name_of(entry).rpartition("_")[0] for entry in database.records()]
            moment = f"round {number}, killed after {wait:.3f} s"
            missing = {f"{batch}_{i}" for batch in acknowledged for i in range(20)} - set(names)
            assert not missing, moment
            assert len(names) == len(set(names)) and len(names) % 20 == 0, "batches are whole"
            assert {workload(f"new {batch}").id for batch in acknowledged} <= set(database.workloads), moment
        assert verify(directory).passed, moment
        assert acknowledged
    assert unfinished, "processes were killed before they had put their log into the file"
    with open_database(directory, write=True) as database:
        database.add([record("after all")])
    assert {path.name for path in directory.iterdir()} == {FILE, "lock"}


def test_the_lock_goes_with_its_process_whatever_it_forked(tmp_path: Path) -> None:
    holder = (
        "import os, sys, time\nfrom pathlib import Path\nfrom adt.tuning.database.store import open_database\n"
        "with open_database(Path(sys.argv[1]), write=True):\n"
        "    child = os.fork()\n"
        "    if child:\n        print(child, flush=True)\n"
        "    time.sleep(60)\n"
    )
    with running(holder, tmp_path / "db") as process:
        child = int(printed(process))
        try:
            process.kill()
            process.wait()
            os.kill(child, 0)
            database_in(tmp_path / "db", [record()])
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_real_limit_to_the_file_leaves_nothing_half_written(tmp_path: Path) -> None:
    with open_database(tmp_path / "db", write=True) as database:
        database.add([record("before")], [workload()])
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        most = (tmp_path / "db" / f"{FILE}-wal").stat().st_size + 100
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))  # Python ignores SIGXFSZ
        try:
            with pytest.raises(DiskError, match="could not be read or written"):
                database.add([record("x" * 5000)])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        with open_database(tmp_path / "db") as reading:
            assert len(reading.records()) == 1
        database.add([record("after")])
    assert verify(tmp_path / "db").records == 2


def dense(rows: int = 16, name: str = "A") -> tvm.IRModule:
    """Build a matrix multiplication as a workload; *name* of a variable decides nothing."""
    a, b = te.placeholder((rows, 16), name=name), te.placeholder((16, 16), name="B")
    k = te.reduce_axis((0, 16), name="k")
    c = te.compute((rows, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="dense")
    return normal(te.create_prim_func([a, b, c]))


def schedule(module: tvm.IRModule, factor: int) -> tvm.s_tir.Schedule:
    sch = tvm.s_tir.Schedule(module)
    i, _, _ = sch.get_loops(sch.get_sblock("dense"))
    _, inner = sch.split(i, [None, factor])
    sch.annotate(inner, "pragma_auto_unroll_max_step", 16)
    return sch


HOST = Context('{"arch":"x86_64","kind":"llvm"}', "0.25.0", "a processor", "")


def measured(identity: str, factor: int, seconds: float) -> Record:
    trace = trace_text(schedule(dense(), factor).trace)
    return Record(identity, HOST, "dense", trace, (seconds, seconds * 1.1), None, None, "", 0)


def test_equal_kernels_are_one_workload(tmp_path: Path) -> None:
    with open_database(tmp_path / "a", write=True) as database:
        identity = database.workload_id(dense())
        assert database.workload_id(dense(name="lv12")) == identity
        assert database.workload_id(dense(8)) != identity
        database.add([measured(identity, 4, 0.001)])
    other = describe_workload(dense(name="lv12"))
    assert other.id != identity, "its text is another"
    with open_database(tmp_path / "b", write=True) as database:
        database.add([measured(other.id, 8, 0.002)], [other])
    assert merge([tmp_path / "b"], tmp_path / "a").workloads == 0
    with open_database(tmp_path / "a") as database:
        assert len(database.records(workload=identity)) == 2
        assert database.find(dense(name="x")) == identity
        assert database.find(dense(7)) is None
        with pytest.raises(ValueError, match="for reading"):
            database.workload_id(dense(7))
    assert verify(tmp_path / "a").passed


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """Write MetaSchedule's two files of a database with a fast, a slow and a failed candidate."""
    with open_database(tmp_path / "db", write=True) as database:
        identity = database.workload_id(dense())
        failed = record(trace_text(schedule(dense(), 16).trace), failed="run", context=HOST)
        database.add([measured(identity, 4, 0.001), measured(identity, 8, 0.002)])
        database.add([baseline(3.0, context=HOST), failed], [workload()])
        database.add([Record(identity, HOST, "d", failed.trace, (), failed.failure, None, "", 0)])
        wrong = schedule(dense(), 2).trace  # the fastest, and wrong
        database.add([measured(identity, 2, 0.0001)])
        harm = record(failed="wrong").failure
        database.add([Record(identity, HOST, "d", trace_text(wrong), (), harm, None, "", 1)])
    done = adt.db_export(tmp_path / "db", metaschedule=tmp_path / "ms", failures=True)
    assert (done.workloads, done.records) == (1, 4)
    return tmp_path / "ms"


def test_tvm_reads_what_was_exported(exported: Path) -> None:
    load_intrinsics()
    from tvm.s_tir import meta_schedule as ms

    database = ms.database.JSONDatabase(work_dir=str(exported))
    assert len(database) == 4
    best = database.query_tuning_record(dense(), tvm.target.Target("llvm"), "main")
    assert [float(value) for value in best.run_secs] == pytest.approx([0.001, 0.0011])
    assert trace_text(best.trace) == trace_text(schedule(dense(), 4).trace)


def test_tvm_applies_what_was_exported(exported: Path) -> None:
    load_intrinsics()
    builder = relax.BlockBuilder()
    function = dense()["main"].without_attr("global_symbol")  # as what TVM makes of an operator
    x, w = (relax.Var(name, relax.TensorStructInfo((16, 16), "float32")) for name in "xw")
    with builder.function("main", [x, w]):
        callee = builder.add_func(function, "dense")
        out = relax.TensorStructInfo((16, 16), "float32")
        builder.emit_func_output(builder.emit(relax.call_tir(callee, [x, w], out_sinfo=out)))
    with tvm.target.Target("llvm"):
        applied = relax.transform.MetaScheduleApplyDatabase(str(exported))(builder.get())
    expected = scheduled(dense(), trace_text(schedule(dense(), 4).trace)).mod["main"]
    tvm.ir.assert_structural_equal(applied["dense"].body, expected.body)


def test_records_of_tvm_come_in_once(exported: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"into": tmp_path / "in", "device": "a processor"}
    done = adt.db_import(exported, **options)
    assert (done.records, done.duplicates, done.refused) == (4, 0, ())
    assert done.contexts == (HOST,), "the records' own target tells"
    assert adt.db_import(exported, **options).duplicates == 4
    with open_database(tmp_path / "in") as imported, open_database(tmp_path / "db") as original:
        (identity,) = imported.workloads
        assert imported.find(dense()) == identity
        assert imported.best(HOST)[identity].seconds == (0.001, 0.0011)
        traces = {entry.trace for entry in original.records(HOST) if entry.trace}
        assert {entry.trace for entry in imported.records()} == traces
        assert [entry.failure.kind for entry in imported.records() if entry.failure] == ["run"] * 2
    elsewhere = adt.db_import(exported, **options, platform="linux-aarch64", target="cpu", cpu="cortex-a76")
    assert "cortex-a76" in elsewhere.contexts[0].target


def test_what_tvm_itself_wrote_comes_in(tmp_path: Path) -> None:
    load_intrinsics()
    from tvm.s_tir import meta_schedule as ms

    (tmp_path / "ms").mkdir()
    theirs = ms.database.JSONDatabase(work_dir=str(tmp_path / "ms"))
    kernel = theirs.commit_workload(dense(name="X"))
    target = tvm.target.Target({"kind": "opencl", "device": "mali"})
    arguments = ms.arg_info.ArgInfo.from_prim_func(dense()["main"])
    for factor, seconds in ((2, [0.004]), (4, [1e10])):
        trace = schedule(dense(), factor).trace
        theirs.commit_tuning_record(ms.database.TuningRecord(trace, kernel, seconds, target, arguments))

    done = adt.db_import(tmp_path / "ms", into=tmp_path / "in", device="Mali-G78", driver="r32p1")

    assert (done.records, done.workloads, done.refused) == (2, 1, ())
    (context,) = done.contexts
    assert (context.device, context.driver, context.tvm) == ("Mali-G78", "r32p1", "0.25.0")
    assert json.loads(context.target) == {"device": "mali", "kind": "opencl", "textures": False}
    with open_database(tmp_path / "in") as imported:
        best = imported.best(context)[imported.find(dense()) or ""]
        assert (best.time, best.trace) == (0.004, trace_text(schedule(dense(), 2).trace))
        assert [entry.failure is None for entry in imported.records()] == [True, False]


def test_damaged_files_of_tvm(exported: Path, tmp_path: Path) -> None:
    rows = (exported / "database_tuning_record.json").read_text().splitlines()
    first = json.loads(rows[0])
    wrong = [[7, first[1]], [0, [[[], []], [0.1], None, None]], [0, [*first[1][:2], None, None]], "x", [0, 1]]
    lines = [*rows, *map(json.dumps, wrong), "no JSON"]
    (exported / "database_tuning_record.json").write_text("\n".join(lines))
    done = adt.db_import(exported, into=tmp_path / "in", device="d")
    assert done.records == 4
    assert len(done.refused) == 6
    assert "give --target" in done.refused[3]
    (exported / "database_workload.json").write_text('["1","bm8="]\n')
    with pytest.raises(PackageError, match="no workload that this TVM can read"):
        adt.db_import(exported, into=tmp_path / "in2", device="d")
    with pytest.raises(PackageError, match="there is no"):
        adt.db_import(tmp_path, into=tmp_path / "in2", device="d")
    assert not (tmp_path / "in2").exists()


def test_exporting_needs_one_context(tmp_path: Path) -> None:
    with open_database(tmp_path / "db", write=True) as database:
        database.add([record("a"), record("b", context=HOST)], [workload()])
    with pytest.raises(ConfigError, match="2 devices"):
        adt.db_export(tmp_path / "db", metaschedule=tmp_path / "ms")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").touch()
    with pytest.raises(PackageError, match="left alone"):
        adt.db_export(tmp_path / "db", metaschedule=tmp_path / "mine", device="Adreno")


def command(*arguments: object, code: int = 0) -> str:
    done = run_adt("db", *arguments)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_the_commands(tmp_path: Path) -> None:
    db = tmp_path / "db"
    with open_database(db, write=True) as database:
        records = [
            baseline(2.0),
            applicable("a", 1.0),
            applicable("b", 4.0, at=2),
            applicable("c", failed="hang"),
        ]
        database.add(records, [workload()])

    assert "Adreno (TM) 650, driver V@0502.0, adreno (textures), TVM 0.25.0" in (text := command("stats", db))
    assert "up to 2.00 times" in text and "1 hang; 1 never again" in text
    stats = json.loads(command("stats", db, "--json"))
    assert stats["schema"] == "adt.db-stats" and stats["contexts"][0]["failures"] == {"hang": 1}
    assert json.loads(command("merge", db, "--into", tmp_path / "all", "--json"))["records"] == 4
    assert "2 records" not in command("prune", db, "--keep", 1, "--dry-run")
    pruned = json.loads(command("prune", db, "--keep", 1, "--json"))
    assert (pruned["removed"], Path(pruned["backup"]).is_file()) == (1, True)
    archive = tmp_path / "x.tar.gz"
    published = json.loads(command("publish", db, "-o", archive, "--json"))
    fetched = command("fetch", archive, "-o", tmp_path / "got", "--sha256", published["sha256"])
    assert f"added 3 records to {tmp_path / 'got'}" in fetched
    assert "all whole" in command("verify", db)

    path = db / FILE
    path.write_bytes(path.read_bytes().replace(rb"\"a\"", rb"\"z\""))
    assert "row 3" in command("verify", db, code=11)
    assert json.loads(command("verify", db, "--json", code=11))["passed"] is False
    assert "taken out" in command("verify", db, "--repair")
    command("stats", tmp_path / "absent", code=11)
    command("prune", db, code=3)


def test_a_graph_that_ends_tvm_ends_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break TVM's stack by an endless sum; the text's check, which refuses it, is left out here."""
    from adt.package import graphs
    from adt.package.graphs import GraphError

    x = te.placeholder((4, 8), "float32", "x")
    function = te.create_prim_func([x, te.compute((4, 8), lambda i, j: x[i, j] + 1, "y")])
    whole = str(tvm.ir.save_json(tvm.IRModule({"main": function})))
    nodes = json.loads(whole)["nodes"]
    add = next(place for place, node in enumerate(nodes) if node["type"] == "tirx.Add")
    deep = nodes[: add + 1]
    deep += ({"type": "tirx.Add", "data": {**nodes[add]["data"], "a": add + i}} for i in range(100_000))
    endless = json.dumps({"root_index": len(deep) - 1, "nodes": deep})
    monkeypatch.setattr(graphs, "check_graph", lambda text: None)
    broken, read = graphs.read_graphs([endless, whole])
    assert isinstance(broken, GraphError) and "reading of it ended by" in str(broken)
    assert not isinstance(read, GraphError)


def test_what_was_mapped_before_is_no_part_of_a_readings_memory() -> None:
    """Subtract the many GiB that PyTorch beside TVM and a GPU's driver map."""
    x = te.placeholder((4, 8), "float32", "x")
    function = te.create_prim_func([x, te.compute((4, 8), lambda i, j: x[i, j] + 1, "y")])
    graph = str(tvm.ir.save_json(tvm.IRModule({"main": function})))
    program = (
        "import mmap, sys; held = mmap.mmap(-1, 40 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)\n"
        "from adt.host.isolated import limit_memory\n"
        "from adt.package.graphs import refusal\n"
        "limit_memory(8 << 30); print(repr(refusal.__wrapped__(sys.stdin.read())))"
    )
    done = subprocess.run([sys.executable, "-c", program], input=graph, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("''\n", 0), done.stderr
