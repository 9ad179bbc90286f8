"""A server that answers what no server answers: adt and the process that uses it go on, with an error that says so."""

import os
import sys
from pathlib import Path

import pytest

from support.devices.programs import try_program
from support.standins.artefacts import entry, make_typed_package, tensor
from support.standins.hostile_rpc import FAULTS

CLIENT = """
import sys

import numpy as np
import tvm

import adt
from adt.errors import AdtError
from adt.rpc import relay, session
from support.standins.hostile_rpc import FAULTS, Hostile, mutated

package, number = sys.argv[1], int(sys.argv[2])
session.CONNECT_SECONDS = relay.OVERTIME = session.NOTICE_SECONDS = 1
SLOW = ("half a packet", "an exception of half a text", "a text longer than its packet")


def use(hostile):
    with adt.rpc_session(key="phone", address=hostile.address, timeout=1) as remote:
        remote.get_function("adt.some")("argument")
        device = remote.device("opencl", 0)
        device.exist, device.device_name
        array = tvm.runtime.tensor(np.arange(6, dtype="float32"), device)
        array.numpy()
        module = remote.load_module("mod.so")
        module["main"](array)


def attempt(what, name, hostile):
    try:
        what(hostile)
    except AdtError as error:
        print("AdtError", name, hostile.answered, error.what, flush=True)
    except Exception as error:  # of TVM, or of the program of the user
        print("other", name, hostile.answered, type(error).__name__, flush=True)
    else:
        print("fine", name, hostile.answered, flush=True)


def verb(function):
    return lambda hostile: function(package, via="rpc", key="phone", tracker=hostile.tracker)


for place, (name, fault) in enumerate(FAULTS.items()):
    with Hostile(fault, number) as hostile:
        attempt(use, name, hostile)
        if name not in SLOW:
            attempt(verb(adt.profile if place % 4 == 0 else adt.run), name, hostile)
for seed in range(6 * number, 6 * number + 6):
    with Hostile(mutated(seed), 2 + seed % 5) as hostile:
        attempt(use, str(seed), hostile)
print("end")
"""


@pytest.mark.parametrize(
    "number", [3, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 2, 4, 5, 6, 8))]
)
def test_a_hostile_server_crashes_nobody(tmp_path: Path, number: int) -> None:
    """Try all faults at the server's NUMBERth answer in one process, which a crash would end."""
    spec = tensor("x", (1, 4))
    package = make_typed_package(
        tmp_path / "package", "net", [entry([spec], [spec])], platform="linux-aarch64"
    )
    own = {"PYTHONPATH": os.pathsep.join(sys.path), "XDG_STATE_HOME": str(tmp_path)}
    done = try_program(sys.executable, "-c", CLIENT, package.path, number, **own)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[-1] == "end", (done.returncode, lines[-3:], done.stderr[-2000:])
    if number > 1:  # until then there is no session that could break
        broken = [line for line in lines if "breaks the protocol" in line]
        assert len(broken) > len(FAULTS), lines
