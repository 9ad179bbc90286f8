"""The application without Java, libadt_activity.so, played by a stand-in for Android.

The library is the bundle's own, built with the NDK stand-in for arm64 Linux and
run by qemu. Assets, window, input queue and log are stand-ins
(tests/support/standins/libandroid); Android itself is not there. Tracker and
clients of its RPC server are TVM's.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import adt
from adt.bundle.bundle import ACTIVITY, TargetBundle, load_bundle
from adt.device.deploy.payload import payload_of
from adt.host.cache import file_sha256
from adt.host.elf import read_elf
from adt.integrate.contents import BenchPlan, PlannedExtent, PlannedModel
from adt.measure import app_bench
from adt.rpc import wire
from adt.rpc.wire import Answer
from support.devices.ports import free_port
from support.devices.programs import invoke_json
from support.models.kernels import add_one, compile_add_one
from support.models.small import small_model
from support.standins.ndk import make_player, make_standin_ndk
from support.waiting import wait_for

ABI = "arm64-v8a"
SHIFT = b"PK!"
"""Bytes before the first asset of an APK, so that no asset begins at a page."""
PROPERTIES = {
    "ro.product.model": "Stand-in",
    "ro.soc.manufacturer": "Nobody",
    "ro.soc.model": "N1",
    "ro.build.version.release": "14",
    "ro.build.version.sdk": "34",
}
PLAN = BenchPlan(
    app="com.example.vision",
    bundle_digests={ABI: "cd" * 32},
    models=(PlannedModel("small", "libsmall_model.so", "main"),),
    warmup_runs=2,
    warmup_ms=0,
    runs=5,
    min_ms=0,
    sample_ms=0,
    threads=1,
)
GREY, GREEN, RED = "window #757575", "window #2e7d32", "window #b71c1c"


@dataclass(frozen=True)
class Parts:
    """The parts that every test uses."""

    program: Path
    system: Path
    """The stand-ins of Android's own libraries."""
    bundle: TargetBundle
    package: Path
    open_package: Path
    """Its input's first extent is a symbol."""
    libraries: Path
    kernel: Path
    """A library that clients send."""


@dataclass
class App:
    """One application and the process that plays Android for it."""

    parts: Parts
    directory: Path
    compressed: bool = False
    media: str = "media"
    """Directory that adb may read, too; empty: there is none."""
    process: subprocess.Popen[str] = field(init=False)

    @property
    def results(self) -> Path:
        return self.directory / (self.media or "external") / "adt-bench"

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    def pack(
        self, plan: BenchPlan = PLAN, *, params: bytes | None = None, package: Path | None = None
    ) -> None:
        """Lay the assets out as ``adt apk`` does."""
        self.asset("adt/bench.json", plan.text().encode())
        for model in plan.models:
            for name in ("mod.json", "mod.params"):
                contents = ((package or self.parts.package) / name).read_bytes()
                if name == "mod.params" and params is not None:
                    contents = params
                shared = name == "mod.params" and model.shared_params
                self.asset(f"adt/{model.stem}/{name if shared else f'{ABI}/{name}'}", contents)

    def asset(self, path: str, contents: bytes) -> None:
        file = self.directory / "assets" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(SHIFT + contents)

    def start(self) -> None:
        for name in ("assets", "internal", "external", "media"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        places = f"LD_LIBRARY_PATH={self.parts.libraries}:{self.parts.system}"
        self.process = subprocess.Popen(
            [
                "qemu-aarch64-static", "-L", "/usr/aarch64-linux-gnu", "-E", places, self.parts.program,
                Path(ACTIVITY).name, "assets", "internal", "external", self.media, str(len(SHIFT)),
                str(int(self.compressed)),
            ],
            cwd=self.directory,
            env=os.environ | PROPERTIES,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self.directory / "log").open("w"),
            text=True,
        )  # fmt: skip

    def do(self, *words: str) -> list[str]:
        """Send callbacks; what the stand-in told of them."""
        lines: list[str] = []
        assert self.process.stdin and self.process.stdout
        for word in words:
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()
            while (line := self.process.stdout.readline().strip()) != "ok":
                assert line, f"the process ended after {word}:\n{self.log}"
                lines.append(line)
        return lines

    def document(self, name: str = "small") -> dict[str, Any]:
        """Return the document in the file *name*, once it is there."""
        file = self.results / f"{name}.json"
        self.wait(file.is_file, f"{file.name} is written")
        document: dict[str, Any] = json.loads(file.read_text())
        return document

    def take_error(self) -> dict[str, Any]:
        """Return the document about an error and remove it, for the next one."""
        error = self.document("error")
        (self.results / "error.json").unlink()
        return error

    def wait(self, done: Any, event: str) -> None:
        for _ in range(1200):
            if done():
                return
            time.sleep(0.05)
        pytest.fail(f"waited a minute until {event}; the log:\n{self.log}")

    def wait_for_model(self) -> None:
        """Wait until the model's library is loaded: the measurement is under way."""
        maps = Path(f"/proc/{self.process.pid}/maps")
        self.wait(lambda: "libsmall_model.so" in maps.read_text(), "the model is loaded")

    def threads(self) -> int:
        return int(self.do("threads")[-1].split()[1])


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    place = tmp_path_factory.mktemp("activity")
    ndk = make_standin_ndk()
    words = ["--ndk", ndk]
    bundle = load_bundle(Path(invoke_json("build-target", "--for", f"android-{ABI}", *words)["path"]))
    libraries = place / "lib"
    shutil.copytree(bundle.file("lib"), libraries)
    for name, dims in (("small", (1, 4)), ("open", ("n", 4))):
        model = small_model(place / f"{name}.onnx", dims=dims)
        package = place / name
        built = ["--bundle", bundle.path, "-o", package]
        invoke_json("compile", model, "--for", f"android-{ABI}", *words, *built)
        shutil.copy(package / "mod.so", libraries / f"lib{name}_model.so")
    kernel = compile_add_one(
        place / "add_one.so", platform=f"android-{ABI}", ndk=str(ndk), bundle=bundle.path
    )
    return Parts(*make_player(ndk, place), bundle, place / "small", place / "open", libraries, kernel)


@pytest.fixture
def app(parts: Parts, tmp_path: Path) -> Iterator[App]:
    application = App(parts, tmp_path)
    yield application
    if hasattr(application, "process"):
        application.process.kill()
        application.process.communicate()


def test_the_bundle_has_it_for_applications_alone(parts: Parts) -> None:
    elf = read_elf(parts.bundle.file(ACTIVITY))
    assert {"libandroid.so", "liblog.so", "libtvm_runtime.so"} <= set(elf.needed)
    assert "libadt_runner.so" not in elf.needed
    assert set(elf.functions) == {"ANativeActivity_onCreate"}
    assert elf.page_alignment == 16384
    assert set(parts.bundle.manifest.app_files) == {ACTIVITY}
    assert ACTIVITY not in {file.name for file in payload_of(parts.bundle, None).files}
    texts = {
        f"licenses/{name}" for name in ("tvm/LICENSE", "tvm/NOTICE", "tvm-ffi/LICENSE", "tvm-ffi/NOTICE")
    }
    assert texts <= set(parts.bundle.manifest.licenses)


def test_it_measures_and_leaves_a_document(app: App) -> None:
    app.pack()
    app.start()
    assert app.do("create", "window") == ["window flags +80 -0", GREY]
    assert app.do("input") == ["finished 2 of 3"], "an input method took the third"
    assert not app.results.exists(), "nothing is measured before the activity is in the foreground"
    app.do("resume")
    document = app.document()
    mod_json = app.parts.package / "mod.json"
    expected = {
        "schema": "adt.app-bench",
        "app": "com.example.vision",
        "writer": "native-activity",
        "package_digest": file_sha256(mod_json),
        "bundle_digest": "cd" * 32,
        "threads": 1,
        "warmup_runs": 2,
        "program_cache": "off",
    }
    assert {key: document[key] for key in expected} == expected
    assert document["machine"] == {
        "model": "Stand-in", "soc": "Nobody N1", "android_release": "14", "api_level": 34, "abi": ABI,
    }  # fmt: skip
    assert document["device"]["kind"] == "cpu"
    assert len(document["run_ms"]) == len(document["start_ms"]) == 5
    assert document["start_ms"] == sorted(document["start_ms"])
    assert app_bench.read(app.results / "small.json").subject.package == document["package"]
    app.wait(lambda: GREEN in app.do("redraw"), "the window is green")
    assert app.do("window-gone", "redraw", "pause", "destroy") == []
    assert '"schema": "adt.app-bench"' in app.log and "adt: small: media/adt-bench/small.json" in app.log


def test_results_lie_among_external_files_where_there_is_no_directory_of_media(app: App) -> None:
    app.media = ""
    app.pack()
    app.start()
    app.do("create", "resume")
    assert app.document()["run_ms"]
    assert not (app.directory / "media/adt-bench").exists()


def test_compressed_assets_and_one_library_after_the_other(app: App) -> None:
    """Read compressed assets, which a store that packs an application again may make."""
    app.compressed = True
    again = PlannedModel("again", "libsmall_model.so", "main", shared_params=True)
    app.pack(replace(PLAN, models=(*PLAN.models, again), end_to_end=True))
    app.start()
    app.do("create", "resume")
    assert app.document()["end_to_end"]
    assert app.document("again")["schema"] == "adt.app-bench"
    copies = app.directory / "internal/code_cache/adt-assets/adt/again"
    assert {path.name for path in copies.iterdir()} == {ABI, "mod.params"}, "and nothing half copied"
    assert file_sha256(copies / "mod.params") == file_sha256(app.parts.package / "mod.params")


def test_what_the_background_disturbed_is_measured_again(app: App) -> None:
    app.pack(replace(PLAN, min_ms=2000))
    app.start()
    app.do("create", "resume")
    app.wait_for_model()
    app.do("pause")
    app.wait(lambda: "was in the background" in app.log, "the measurement is given up")
    assert not (app.results / "small.json").exists()
    app.do("resume")
    assert app.document()["run_ms"]


def test_an_activity_that_goes_waits_for_nothing_and_the_next_one_measures(app: App) -> None:
    app.pack(replace(PLAN, min_ms=3000))
    app.start()
    before = app.threads()
    app.do("create", "window", "resume")
    app.wait_for_model()
    assert GREY not in app.do("pause", "window-gone", "destroy")
    app.wait(lambda: app.threads() == before, "the worker has ended")
    assert "the activity is gone" in app.log
    assert not (app.results / "small.json").exists()
    app.pack()
    app.do("create", "resume")
    assert app.document()["run_ms"]


def test_extras_of_the_intent_change_the_plan(app: App) -> None:
    other = PlannedModel("other", "libsmall_model.so", "main")
    app.pack(replace(PLAN, models=(other, *PLAN.models)))
    app.start()
    app.do("model=small", "runs=7", "warmup_runs=4", "seed=3", "affinity=all", "create", "resume")
    document = app.document()
    assert (len(document["run_ms"]), document["warmup_runs"], document["seed"]) == (7, 4, 3)
    assert (document["threads"], document["affinity"]) == (1, "all")
    assert not (app.results / "other.json").exists()


def test_extras_that_cannot_be_are_an_error(app: App) -> None:
    app.pack()
    app.start()
    for extras, reason in (
        (["runs=-1"], "the extra runs is less than 0"),
        (["runs=5", "model=absent"], "there is no model absent, only small"),
    ):
        app.do(*extras, "create", "resume")
        error = app.take_error()
        assert error["what"] == reason
        assert "am start" in error["remedy"]
        app.do("pause", "destroy")


def test_symbols_have_the_extents_of_the_plan_or_of_an_extra(app: App) -> None:
    model = PlannedModel("open", "libopen_model.so", "main", (PlannedExtent("n", 2),))
    app.pack(replace(PLAN, models=(model,)), package=app.parts.open_package)
    app.start()
    app.do("create", "resume")
    assert app.document("open")["run_ms"]
    app.do("pause", "destroy", "extent_n=-2", "create", "resume")
    assert app.document("error")["what"] == "the extra extent_n is less than 0"


def test_a_damaged_model_is_a_document_too_and_others_are_measured(app: App) -> None:
    app.pack(replace(PLAN, models=(PlannedModel("broken", "libsmall_model.so", "main"), *PLAN.models)))
    params = (app.parts.package / "mod.params").read_bytes()
    app.asset(f"adt/broken/{ABI}/mod.params", params[:-1] + bytes([params[-1] ^ 1]))
    app.results.mkdir(parents=True)
    (app.results / "old.json").write_text("of an earlier run")
    app.start()
    app.do("create", "window", "resume")
    assert app.document()["schema"] == "adt.app-bench"
    document = app.document("broken")
    assert document["schema"] == "adt.app-bench-error" and document["model"] == "broken"
    assert "mod.params" in document["what"] and document["remedy"]
    assert not (app.results / "old.json").exists()
    app.wait(lambda: RED in app.do("redraw"), "the window is red")


def test_an_application_without_its_parts_says_so(app: App) -> None:
    app.pack()
    app.start()
    for path, text, reason in (
        (f"adt/small/{ABI}/mod.json", None, f"assets/adt/small/{ABI}/mod.json: No such file"),
        ("adt/bench.json", None, "assets/adt/bench.json: No such file"),
        ("adt/bench.json", b'{"schema": "adt.app-bench-plan"}', "assets/adt/bench.json: schema_version"),
        ("adt/bench.json", PLAN.text().replace('"runs": 5', '"runs": -5').encode(), "runs is less than 0"),
    ):
        app.pack()
        if text is None:
            (app.directory / "assets" / path).unlink()
        else:
            app.asset(path, text)
        assert app.do("create", "window", "resume")[-1] == RED
        error = app.take_error()
        assert reason in error["what"] and "adt apk" in error["remedy"]
        assert reason in app.log
        app.do("window-gone", "pause", "destroy")


# The RPC server


@dataclass(frozen=True)
class Served:
    """An application that is a server, and a tracker that knows it."""

    app: App
    tracker: str
    port: int

    def session(self, **options: Any) -> Any:
        return adt.rpc_session(key="phone", tracker=self.tracker, wait=120, **options)

    def registered(self) -> bool:
        return [server.port for server in wire.summary(self.tracker).servers] == [self.port]


@pytest.fixture
def served(app: App) -> Iterator[Served]:
    tracker, port = adt.tracker_start(port=free_port()), free_port()
    app.pack(replace(PLAN, models=()))
    app.start()
    tracker_port = tracker.address.rpartition(":")[2]
    app.do("key=phone", f"port={port}", f"tracker_port={tracker_port}", "create", "window", "resume")
    application = Served(app, tracker.address, port)
    app.wait(application.registered, "the tracker knows it")
    yield application
    adt.tracker_stop()


def test_sessions_follow_one_another_in_one_process(served: Served) -> None:
    app, kernel = served.app, served.app.parts.kernel
    assert GREEN in app.do("redraw")
    with served.session() as remote:
        add_one(remote, kernel)
        assert "TVM" in remote.get_function("adt.runner_version")()
    with served.session(timeout=60) as remote:
        with pytest.raises(Exception, match=kernel.name):  # what the first client sent is gone
            remote.load_module(kernel.name)
        add_one(remote, kernel)
    app.wait(lambda: "session 2 is over" in app.log, "the server is free again")
    assert wire.try_server("127.0.0.1", served.port, key="phone", seconds=30) is Answer.MISMATCH
    with socket.create_connection(("127.0.0.1", served.port)) as silent:
        silent.sendall(b"GET / HTTP/1.1")
        with served.session() as remote:  # once the silent one has had its time
            add_one(remote, kernel)
    assert app.process.poll() is None


def test_a_tracker_that_comes_back_knows_it_again(served: Served) -> None:
    adt.tracker_stop()
    served.app.wait(lambda: "no tracker" in served.app.log, "the server misses it")
    adt.tracker_start(port=int(served.tracker.rpartition(":")[2]))
    served.app.wait(served.registered, "it is registered again")
    with served.session() as remote:
        add_one(remote, served.app.parts.kernel)


def test_a_client_that_is_gone_without_a_word_ends_the_process(served: Served) -> None:
    """End the process, which nobody else would free of the client's handles."""
    code = f"""
import adt, time
with adt.rpc_session(key="phone", tracker={served.tracker!r}) as remote:
    remote.upload(bytearray(1 << 20), "left")
    print("there", flush=True)
    time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None and client.stdout.readline() == "there\n"
        client.kill()
    assert served.app.process.wait(120) != 0
    assert "the server ends: its client was gone" in served.app.log
    wait_for(lambda: not served.registered(), "the tracker forgets it")


def test_a_client_whose_time_is_over_ends_the_process_whatever_it_does(served: Served) -> None:
    with pytest.raises(Exception, match=r"time limit of 2 s"), served.session(timeout=2) as remote:
        for _ in range(600):
            add_one(remote, served.app.parts.kernel)
            time.sleep(0.1)
    assert served.app.process.wait(120) == -signal.SIGALRM


def test_a_server_that_cannot_begin_says_why(app: App) -> None:
    app.pack(replace(PLAN, models=()))
    app.start()
    assert app.do("key=phone", "create", "window")[-1] == RED
    assert "the extras key, port and tracker_port are not all there" in app.document("error")["what"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        app.process.stdin.write(f"port={port}\ntracker_port=1\ncreate\n")  # type: ignore[union-attr]
        app.process.stdin.flush()  # type: ignore[union-attr]
        assert app.process.wait(120) != 0
    assert f"the server ends: port {port} cannot be listened at" in app.log


def test_a_server_that_is_closed_ends(served: Served) -> None:
    served.app.process.stdin.write("pause\ndestroy\n")  # type: ignore[union-attr]
    served.app.process.stdin.flush()  # type: ignore[union-attr]
    assert served.app.process.wait(120) == 0
