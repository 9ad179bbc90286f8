"""Processes that answer one request at a time, and may crash or hang."""

import os
import pickle
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adt.compiler.passes.records.arguments import Argument
from adt.host.child import Child, ChildDied, ChildHung, Speech
from adt.host.messages import ARRAY, BYTES, BadMessage, decode, encode
from adt.host.process import kill_group
from adt.tuning.candidates import Timing
from adt.tuning.fleet import measure_child
from support.devices.programs import run_program
from support.waiting import wait_gone


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Iterator[Child]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    child = Child("support.standins.child")
    yield child
    child.close()


def test_requests_of_any_size_are_answered_by_one_process(child: Child) -> None:
    large = os.urandom(3 << 20)
    assert child.ask(("echo", large), 20) == large
    pid, parent, niceness = child.ask(("pid", None), 20)
    assert (pid, parent) == (child.pid, os.getpid()) and niceness >= min(19, os.nice(0) + 3)
    assert child.ask(("pid", None), 20)[0] == pid


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (("signal", "SIGSEGV"), "ended by signal 11 (SIGSEGV): the last words"),
        (("exit", 3), "ended with code 3"),
        (("raise", "no"), "ended with code 1: ValueError: no"),
    ],
)
def test_the_next_request_after_a_crash_finds_another_process(
    child: Child, request_: tuple[str, object], message: str
) -> None:
    with pytest.raises(ChildDied, match="^" + message.replace("(", r"\(").replace(")", r"\)") + "$"):
        child.ask(request_, 20)
    assert child.ask(("echo", 1), 20) == 1


def test_what_was_printed_for_an_answer_explains_no_later_failure(child: Child) -> None:
    assert child.ask(("echo", 1), 20) == 1  # it prints, too
    with pytest.raises(ChildDied) as caught:
        child.ask(("exit", 3), 20)
    assert caught.value.output == ""


def test_what_hangs_is_killed_with_all_it_started(child: Child) -> None:
    started = child.ask(("start", None), 20)
    pid = child.pid
    with pytest.raises(ChildHung, match=r"within 0\.2 s"):
        child.ask(("sleep", 100), 0.2)
    assert pid is not None
    wait_gone(pid)
    wait_gone(started)
    assert child.ask(("echo", 2), 20) == 2


def test_closing_interrupts_a_request(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    signalled: list[int | None] = []

    def count(process: subprocess.Popen[bytes], grace: float) -> None:
        signalled.append(process.returncode)
        kill_group(process, grace)

    monkeypatch.setattr("adt.host.child.kill_group", count)
    child.ask(("echo", None), 20)
    timer = threading.Timer(0.1, child.close)
    timer.start()
    with pytest.raises(ChildDied, match="it was closed"):
        child.ask(("sleep", 100), 50)
    timer.join()
    assert signalled == [None], "once only: after that its pid may be another's"
    with pytest.raises(ChildDied, match="it was closed"):
        child.ask(("echo", 1), 20)


def test_it_ends_by_itself_when_nobody_asks(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Child("support.standins.child", "1")
    pid = idle.ask(("pid", None), 20)[0]
    wait_gone(pid)
    assert idle.ask(("pid", None), 20)[0] != pid
    idle.close()


def test_a_request_that_finds_it_ending_goes_to_the_next(child: Child) -> None:
    with Child("support.standins.child", "0") as impatient:
        assert [impatient.ask(("echo", number), 20) for number in range(5)] == [*range(5)]


def test_it_ends_with_its_parent_in_the_midst_of_work(child: Child) -> None:
    """Kill the parent with -9, so that it can end nothing itself."""
    program = (
        "import threading, time; from adt.host.child import Child; child = Child('support.standins.child')\n"
        "print(child.ask(('start', None), 20), child.pid, flush=True)\n"
        "threading.Thread(target=child.ask, args=(('sleep', 1000), 2000), daemon=True).start()\n"
        "time.sleep(0.2); print('ready', flush=True); time.sleep(1000)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        started, pid = map(int, parent.stdout.readline().split())
        assert parent.stdout.readline() == "ready\n"
        parent.kill()
    wait_gone(pid)
    wait_gone(started)


def passed(message: Any) -> Any:
    """Return *message* as it comes out on the other side."""
    data = encode(message)
    return decode(data[16:], struct.unpack_from("<QQ", data)[1])


def test_messages_have_bytes_and_arrays_beside_their_text() -> None:
    arrays = [np.arange(6, dtype=np.int8).reshape(2, 3).T, np.array(1.5), np.zeros((0, 3), np.float16)]
    received = passed({"a": arrays, "b": (b"\0\xff", b""), "c": ["text", 1, 2.5, None, True]})
    assert [array.dtype for array in received["a"]] == [array.dtype for array in arrays]
    assert all(np.array_equal(a, b) for a, b in zip(received["a"], arrays, strict=True))
    assert (received["b"], received["c"]) == ([b"\0\xff", b""], ["text", 1, 2.5, None, True])
    for kind in (object(), {1, 2}, np.array([object()])):
        with pytest.raises((TypeError, ValueError)):
            encode([kind])


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b'["\xff"]',
        b"[" * 100_000,
        b'{"%s": [0, 9]}' % BYTES.replace("\0", "\\u0000").encode(),
        b'{"%s": "no"}' % BYTES.replace("\0", "\\u0000").encode(),
        b'{"%s": [0, 4]}' % ARRAY.replace("\0", "\\u0000").encode(),
    ],
)
def test_what_is_no_message_is_refused(text: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(text + b"part", len(text))


class Trap:
    """Makes a file where somebody unpickles it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self._path),)


@pytest.mark.parametrize("kind", ["pickle", "pickled array", "endless", "of another kind", "unknown field"])
def test_an_answer_is_data_of_the_kind_that_was_agreed_upon(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = pickle.dumps(Trap(tmp_path / "trap"))
    npy = (
        b"\x93NUMPY\x01\x00"
        + struct.pack("<H", 54)
        + b"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}"
        + trap
    )
    text = b'{"\\u0000array": [0, %d]}' % len(npy)
    answers = {
        "pickle": struct.pack("<Q", len(trap)) + trap,
        "pickled array": struct.pack("<QQ", len(text) + len(npy), len(text)) + text + npy,
        "endless": struct.pack("<QQ", 1 << 60, 4) + b"null",
        "of another kind": encode({"_type": "Timed", "seconds": [1.0], "outputs": [10**12]}),
        "unknown field": encode({"_type": "Done", "more": 1}),
    }
    (tmp_path / "answer").write_bytes(answers[kind] + bytes(1 << 12))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    speech = measure_child.SPEECH if kind in ("of another kind", "unknown field") else Speech()
    with (
        Child("support.standins.untrusted_child", str(tmp_path / "answer"), speech=speech) as child,
        pytest.raises(ChildDied, match="gave an answer that is none"),
    ):
        child.ask(measure_child.Disconnect() if speech.answer is not Any else None, 60)
    assert not (tmp_path / "trap").exists()


def test_speech_has_types(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    from adt.host.child import plain, typed

    argument = Argument((1, 2), "float32", "global.texture")
    for message, kind in (
        (
            measure_child.Measure("a.so", b"\0library", (argument,), Timing(timeout=3), 1),
            measure_child.Request,
        ),
        (measure_child.Timed((1.0,), (b"1", b"")), measure_child.Answer),
        (measure_child.Refused("no"), measure_child.Answer),
    ):
        assert typed(passed(plain(message, kind)), kind) == message


LEAVES = """
import sys, threading
from adt.host.child import Child, ChildFailed
from adt.host.process import run

run(["true"])  # starts the reaper
with Child("support.standins.child") as child:
    child.ask(("echo", ""), timeout=100)
    child.kill()
    child.ask(("echo", ""), timeout=100)
child = Child("support.standins.child")
child.ask(("echo", ""), timeout=100)
threading.Timer(0.2, child.close).start()
try:
    while True:
        child.ask(("echo", ""), timeout=100)
except ChildFailed:
    del child
"""


def test_files_of_children_are_closed() -> None:
    program = (sys.executable, "-X", "dev", "-W", "always::ResourceWarning", "-c", LEAVES)
    done = run_program(*program, PYTHONPATH=os.pathsep.join(sys.path))
    assert "ResourceWarning" not in done.stderr, done.stderr
