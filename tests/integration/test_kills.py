"""Kills at random moments: complete files stay complete, nothing is left over, and no printed promise is
lost.

A few rounds always, 200 of deploy, RPC and compile and 50 of each of the others in the nightly run. The moments come
from a seed, are spread over the whole time that each command takes here, and a failure shows them with
the round. In a quarter of the rounds the whole process group is killed, in another it is ctrl-C.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import onnx
import pytest
from test_tune import QUICK, records, small_network

import adt
from adt.bundle.bundle import TargetBundle
from adt.checkup.storage import LEFTOVER
from adt.device.deploy.store import Deployment, deploy
from adt.device.device import Device
from adt.errors import INTERRUPTED, TERMINATED
from adt.rpc import state
from adt.tuning.database.changes import fetch
from adt.tuning.database.overview import verify
from adt.tuning.database.store import open_database
from support.devices.fixtures import Rack
from support.devices.programs import ADT, command_lines, invoke, invoke_json
from support.devices.remains import remains, soon_nothing, wrong_files
from support.models.onnx_graphs import f32, graph_of, node
from support.models.small import small_model
from support.standins.artefacts import native_bundle as make_bundle
from support.standins.artefacts import native_package as make_package
from support.standins.ndk import make_standin_ndk
from support.standins.tuning_records import applicable, baseline, workload
from support.waiting import wait_for

SEED = 20261121
MARK = "ADT_TEST_KILLED"
"""Environment variable by which all that a killed adt started is known."""
SESSION = ".ses"
"""A file that onnxruntime keeps in TMPDIR, and shares between processes."""
ENDS: tuple[tuple[str, Callable[[int], None]], ...] = (
    ("SIGINT", lambda pid: os.kill(pid, signal.SIGINT)),
    ("SIGKILL", lambda pid: os.kill(pid, signal.SIGKILL)),
    ("SIGKILL to the group", lambda pid: os.killpg(pid, signal.SIGKILL)),
    ("SIGKILL", lambda pid: os.kill(pid, signal.SIGKILL)),
)


@dataclass
class Range:
    """A place where adt is killed: directories of its own for all that it writes on this machine."""

    top: Path
    moments: random.Random = field(default_factory=lambda: random.Random(SEED))
    codes: Counter[int] = field(default_factory=Counter)
    times: dict[str, float] = field(default_factory=dict)
    """Seconds that each kind of command takes."""

    def __post_init__(self) -> None:
        for name in ("tmp", "cache", "out"):
            (self.top / name).mkdir(exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "TMPDIR": str(self.top / "tmp"),
            MARK: str(self.top),
            "ADT_CACHE_DIR": str(self.top / "cache"),
        }

    def start(self, words: list[object]) -> subprocess.Popen[bytes]:
        with (self.top / "stderr").open("wb") as errors:
            return subprocess.Popen(
                [str(ADT), *map(str, words)],
                env=os.environ | self.environment,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,
            )

    def ended(self, code: int, way: str) -> None:
        """Check the exit code of a killed command: 0 if it was quicker."""
        errors = (self.top / "stderr").read_text()
        expected = {0, -signal.SIGKILL} if "KILL" in way else {0, INTERRUPTED, TERMINATED, -signal.SIGINT}
        # Python's own start (streams, site, the path of the script) fails with 1 when it is interrupted, and so
        # may the imports of main()'s module: no code of ours could tell it otherwise.
        starts = code == 1 and "KeyboardInterrupt" in errors and ", in main\n" not in errors
        assert code in expected or starts, (way, code, errors)
        self.codes[code] += 1

    def kill(self, kind: str, number: int, *words: object, after: Callable[[], bool] = lambda: True) -> str:
        """Run adt with *words* and end it at some moment *after* a condition holds; says how and when.

        The first of each *kind* may end.
        """
        way, end = ENDS[number % len(ENDS)]
        moment = self.moments.random() * self.times.get(kind, 0) if kind in self.times else None
        began = time.monotonic()
        with self.start([*words]) as running:
            try:
                if moment is None:
                    assert running.wait(600) == 0, words
                    self.times[kind] = time.monotonic() - began
                    return f"{kind} was not killed"
                wait_for(lambda: after() or running.poll() is not None, "the moment")
                time.sleep(moment)
                if running.poll() is None:
                    end(running.pid)
                self.ended(running.wait(300), way)
            finally:
                running.kill()
        return f"round {number}, {kind}: {way} after {moment:.3f} s"

    def nothing_here(self, description: str) -> None:
        """Wait until no process of the killed one runs and none of its temporary names is there."""
        end = time.monotonic() + 60
        while left := [*self.running(), *self.temporary()]:
            assert time.monotonic() < end, "\n".join([description, *left])
            time.sleep(0.1)

    def running(self) -> Iterator[str]:
        for pid, line in command_lines("", f"{MARK}={self.top}").items():
            yield f"process {pid} {line!r}"

    def temporary(self) -> Iterator[str]:
        inside = (path for path in (self.top / "tmp").iterdir() if path.name != SESSION)
        yield from (f"in TMPDIR: {path}" for path in inside)
        for name in ("cache", "out"):
            for place, directories, files in os.walk(self.top / name):  # in which a holder may be removing
                for path in (*directories, *files):
                    if LEFTOVER.fullmatch(path) or re.search(r"\.tmp$|\.part$", path):
                        yield f"temporary name: {place}/{path}"


@dataclass
class Deploys:
    """Packages that were never there, several files, one of a few MB; one deployment is there from the start."""

    device: Device
    top: Path
    complete: Deployment

    def kill(self, place: Range, number: int) -> None:
        bundle = make_bundle(self.top / "bundle", {"lib/large.so": place.moments.randbytes(4 << 20)})
        package = make_package(self.top / "package", params=b"%d" % number)
        words = ("deploy", package.path, "--bundle", bundle.path, "--serial", self.device.serial)
        description = place.kill("deploy", number, *words)
        soon_nothing(self.device, after=description)
        whole = self.complete
        assert wrong_files(self.device, whole.directory, whole.manifest) == [], description
        if number % 8 == 0:
            document = invoke_json(*words)
            again = invoke_json(*words)
            assert again["sent_files"] == [], (description, document, again)


@dataclass
class Servers:
    """A tracker and a server on the device: both are started and stopped; either is killed."""

    device: Device
    bundle: Path

    def kill(self, place: Range, number: int) -> None:
        start = ("rpc", "start", "--serial", self.device.serial, "--bundle", self.bundle, "--key", "killed")
        stopping = number % 2 == 1 and "rpc start" in place.times
        if stopping:
            assert invoke(*start).returncode == 0
            description = place.kill("rpc stop", number, "rpc", "stop", "--all")
        else:
            description = place.kill("rpc start", number, *start)
        assert invoke("rpc", "stop", "--all").returncode == 0, description
        assert invoke("tracker", "stop").returncode == 0, description
        soon_nothing(self.device, after=description)
        files = [path for path in state.rpc_directory().rglob("*") if path.is_file()]
        assert [path.name for path in files if path.suffix not in (".lock", ".log")] == [], description


@dataclass
class Compiles:
    """A model to a directory, to the same one again, to an archive; with the cache and without."""

    model: Path

    def kill(self, place: Range, number: int) -> None:
        out = place.top / "out" / ("pkg", "pkg.tar")[number % 2]
        words: list[object] = ["compile", self.model, "--for", "host", "-o", out]
        opt = number // 2 % 4
        description = place.kill(
            "compile", number, *words, "--opt-level", opt, *(["--no-cache"] * (number % 3 == 0))
        )
        place.nothing_here(description)
        if out.exists():
            assert invoke("package", "verify", out).returncode == 0, description


def logged(database: Path) -> int:
    """Count the lines of the tasks' logs: each is written when its record was acknowledged."""
    return sum(log.read_text().count("\n") for log in database.glob("logs/*/*.log"))


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("rounds", [2, pytest.param(50, marks=pytest.mark.nightly)])
def test_kills_of_tuning_lose_nothing(
    tmp_path: Path, rounds: int, record_property: Callable[..., None]
) -> None:
    bundle = adt.build_target(platform="host").bundle
    place = Range(tmp_path)
    network, database = small_network(tmp_path / "small.onnx"), tmp_path / "db"
    words = ("tune", network, "--target", "host", *QUICK, "--db", database, "--bundle", bundle.path)
    place.times["tune"] = 20.0 if rounds > 2 else 4.0
    records_before: list[object] = []
    began = time.monotonic()
    for number in range(rounds):
        # Every second one has measured something new before it is killed.
        after = [lambda: True, lambda: logged(database) > len(records_before)][number % 2]  # noqa: B023
        description = place.kill("tune", number, *words, "--trials", 400, "--seed", number, after=after)
        place.nothing_here(description)
        records_now: list[object] = [*records(database)]
        assert records_now[: len(records_before)] == records_before, description
        assert logged(database) <= len(records_now), description
        assert not database.exists() or verify(database).passed, description
        records_before = records_now
    record_property("killed", {str(code): count for code, count in place.codes.items()})
    record_property("records", len(records_before))
    record_property("seconds", round(time.monotonic() - began))
    assert records_before, "some of them measured"
    wait_for(lambda: not list(place.running()), "all of it ended")
    assert invoke_json("db", "verify", database)["passed"]


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("rounds", [12, pytest.param(200, marks=pytest.mark.nightly)])
def test_kills_of_deploy_rpc_and_compile_leave_nothing(
    native_rack: Rack,
    native_bundle: TargetBundle,
    tmp_path: Path,
    rounds: int,
    record_property: Callable[..., None],
) -> None:
    device = native_rack.start("phone")
    device.shell(["rm", "-rf", "/data/local/tmp/adt"])
    place = Range(tmp_path)
    steady = make_bundle(tmp_path / "bundle", {"lib/steady.so": place.moments.randbytes(2 << 20)})
    graph = graph_of([node("MatMul", ["x", "w"], ["y"])], {"x": (4, 64)}, ["y"], {"w": f32(64, 64)})
    (tmp_path / "model.onnx").write_bytes(graph.SerializeToString())
    victims = [
        Deploys(device, tmp_path, deploy(device, steady, make_package(tmp_path / "good")).deployment),
        Servers(device, native_bundle.path),
        Compiles(tmp_path / "model.onnx"),
    ]
    began = time.monotonic()
    for number in range(rounds):
        victims[number % 3].kill(place, number // 3)
        place.nothing_here(f"round {number}")
    assert remains(device) == []
    assert any(code in place.codes for code in (INTERRUPTED, TERMINATED, -signal.SIGKILL)), (
        "some of them were killed"
    )
    record_property("killed", {str(code): count for code, count in place.codes.items()})
    record_property("seconds", round(time.monotonic() - began))


@dataclass(frozen=True)
class Writing:
    """A command that writes one file or directory."""

    words: tuple[object, ...]
    out: Path
    """Below the range's ``out``."""
    complete: Callable[[], object]
    """Fails if :attr:`out`, which is there, is damaged."""


def quantizing(place: Range) -> Writing:
    network, out = small_network(place.top / "small.onnx"), place.top / "out/q.onnx"
    words = ("quantize", network, "--calibrate", "random:4", "-o", out)
    return Writing(words, out, lambda: onnx.checker.check_model(str(out), full_check=True))


def packing(place: Range) -> Writing:
    ndk = str(make_standin_ndk())
    bundle = adt.build_target(platform="android-arm64-v8a", ndk=ndk).bundle
    model = small_model(place.top / "small.onnx")
    package = adt.compile(
        model, platform="android-arm64-v8a", ndk=ndk, out=place.top / "package", check=False
    )
    out = place.top / "out/app.apk"
    words = ("apk", package.path, "--bundle", bundle.path, "--ndk", ndk, "--package", "com.example.vision")
    verify = ["apksigner", "verify", "--min-sdk-version", "24", str(out)]
    return Writing((*words, "-o", out), out, lambda: subprocess.run(verify, check=True, timeout=300))


def filled(database: Path) -> Path:
    with open_database(database, write=True) as opened:
        opened.add(
            [baseline(2.0), *(applicable(f"t{number}", at=number) for number in range(5000))], [workload()]
        )
    return database


def publishing(place: Range) -> Writing:
    out = place.top / "out/records.tar.gz"

    def complete() -> None:
        with tempfile.TemporaryDirectory(dir=place.top) as scratch:
            assert fetch(str(out), Path(scratch) / "db").merged.records == 5001

    return Writing(("db", "publish", filled(place.top / "db"), "-o", out), out, complete)


def fetching(place: Range) -> Writing:
    archive, out = place.top / "records.tar.gz", place.top / "out/db"
    adt.db_publish(filled(place.top / "db"), archive)

    def complete() -> None:
        assert verify(out).passed

    return Writing(("db", "fetch", archive, "-o", out), out, complete)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("rounds", [2, pytest.param(50, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", [quantizing, packing, publishing, fetching], ids=lambda kind: kind.__name__)
def test_kills_of_what_writes_leave_all_of_it_or_nothing(
    kind: Callable[[Range], Writing], tmp_path: Path, rounds: int, record_property: Callable[..., None]
) -> None:
    place = Range(tmp_path)
    writing = kind(place)
    began = time.monotonic()
    for number in range(rounds + 1):  # the first one is not killed
        description = place.kill("writing", number, *writing.words)
        place.nothing_here(description)
        if writing.out.exists():
            writing.complete()
        if number % 2:  # the next one begins without
            shutil.rmtree(writing.out) if writing.out.is_dir() else writing.out.unlink(missing_ok=True)
    with place.start([*writing.words]) as last:
        assert last.wait(600) == 0
    writing.complete()
    place.nothing_here("after the last one")
    record_property("killed", {str(code): count for code, count in place.codes.items()})
    record_property("seconds", round(time.monotonic() - began))
    assert any(code in place.codes for code in (INTERRUPTED, TERMINATED, -signal.SIGKILL)), (
        "some of them were killed"
    )
