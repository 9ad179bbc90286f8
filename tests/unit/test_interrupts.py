"""Ctrl-C and TERM end adt whatever native code it is in."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from adt.host import interrupts
from support.devices.programs import ADT

SECONDS = 60
NEVER_ENDS = """
import ctypes, sys
sys.stderr.write("in native code\\n")
sys.stderr.flush()
lock = ctypes.create_string_buffer(256)
for _ in "12":
    ctypes.CDLL(None).pthread_mutex_lock(lock)
"""
"""A TVM whose import waits for a lock that it has itself; no signal ends that."""


@pytest.mark.parametrize("number", interrupts.NUMBERS)
def test_native_code_that_never_ends_is_left(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "tvm.py").write_text(NEVER_ENDS)
    (tmp_path / "scratch").mkdir()
    (tmp_path / "m.onnx").write_bytes(b"\x08\x08\x12\x00")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [ADT, "compile", tmp_path / "m.onnx", "--explain"],
        env=os.environ | {"PYTHONPATH": path, "TMPDIR": str(tmp_path / "scratch")},
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stderr is not None
            assert running.stderr.readline() == "in native code\n"
            running.send_signal(number)
            assert running.wait(SECONDS) == 128 + number
            assert running.stderr.read() == "interrupted: what was complete before is still there\n"
        finally:
            running.kill()


def test_an_interrupt_in_a_function_that_tvm_calls_stays_one() -> None:
    """Raise the interrupt again, although TVM makes a RuntimeError of it, which looks like a fault of the model."""
    program = (
        "import signal, tvm_ffi\n"
        "from adt.host import interrupts\n"
        "interrupts.handle(interrupts.interrupt)\n"
        "tvm_ffi.convert(lambda: signal.raise_signal(signal.SIGTERM))()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("KeyboardInterrupt"), done.stderr


SWALLOWED = """
import signal, sys
from adt.cli.main import main
from adt.compiler.assemble import tvm_errors
from adt.device import probe

def list_devices(**_):
    try:
        with tvm_errors("the model"):
            try:
                signal.raise_signal(number)
            except KeyboardInterrupt:
                raise RuntimeError from None
    except BaseException as error:
        print(type(error).__name__)
        raise OSError from None

number, probe.overview = int(sys.argv.pop()), list_devices
main()
"""
"""A verb whose pass of TVM is interrupted, with an error of another class instead, there and in the verb."""


@pytest.mark.parametrize("number", interrupts.NUMBERS)
def test_an_error_that_an_interrupt_became_ends_as_one(number: signal.Signals) -> None:
    words = [sys.executable, "-c", SWALLOWED, "devices", str(int(number))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stdout) == (128 + number, "KeyboardInterrupt\n"), done.stderr
    assert done.stderr == "interrupted: what was complete before is still there\n"


def test_what_is_ignored_stays_so() -> None:
    program = (
        "import signal\n"
        "from adt.host import interrupts\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "interrupts.handle(interrupts.interrupt)\n"
        "signal.raise_signal(signal.SIGINT)\n"
        "with interrupts.handled(print):\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "signal.raise_signal(signal.SIGINT)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


WATCHED = """
import os, signal, time
from adt.host import interrupts
interrupts.PATIENCE = 0.5
interrupts.handle(interrupts.interrupt)
interrupts.watch(lambda: os._exit(3))
"""


def test_an_interrupt_that_was_caught_on_the_way_comes_again() -> None:
    """Raise the interrupt again after TVM's C++, which catches exceptions of functions that it calls, has gone on."""
    program = WATCHED + (
        "try:\n    signal.raise_signal(signal.SIGINT)\nexcept BaseException:\n    pass\ntime.sleep(1000)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS)
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt" and done.returncode != 3, done.stderr


def test_cleaning_up_is_not_interrupted_again() -> None:
    program = WATCHED + (
        "try:\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "finally:\n"
        "    try:\n"
        "        {}['']\n"
        "    except KeyError:\n"
        "        time.sleep(2 * interrupts.PATIENCE)\n"
        "    print('cleaned up')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS)
    assert done.stdout == "cleaned up\n" and "KeyboardInterrupt" in done.stderr
