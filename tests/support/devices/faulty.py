"""Virtual devices that misbehave where a test wants it: start one, and change its faults while it runs.

To adt it is one of its virtual devices, with a record like theirs: `adt emulator list` shows it, `adt emulator
stop` ends it. The faults are in :mod:`support.devices.faults`.
"""

import json
import socket
from collections.abc import Sequence
from pathlib import Path

from adt.virtual import emulator, state, wire
from adt.virtual.emulator import EmulatorInfo
from support.devices.faults import parse
from support.devices.faulty_device import FAULTS

TIMEOUT = 10.0
"""Seconds in which a device must answer."""


def start(
    name: str,
    faults: Sequence[str] = (),
    *,
    port: int | None = None,
    data_size: str | None = None,
    abi: str | None = None,
    rootfs: Path | None = None,
) -> EmulatorInfo:
    """Start the virtual device *name* with *faults* armed; see :func:`adt.virtual.emulator.start`."""
    parse(faults)  # before anything runs
    program = Path(__file__).with_name("faulty_init.py")
    info = emulator.start(name, port=port, data_size=data_size, abi=abi, rootfs=rootfs, program=program)
    set_faults(name, faults)
    return info


def set_faults(name: str, faults: Sequence[str]) -> tuple[str, ...]:
    """Set the faults of the running device *name* in place of those before, and return them.

    Every count starts again. A device that stalled goes on when the fault is no longer named.
    """
    return _ask(name, {"faults": list(faults)})


def armed_faults(name: str) -> tuple[str, ...]:
    """Return the faults of the device *name* that may still strike; one marked ``@once`` goes with that."""
    return _ask(name, {})


def _ask(name: str, request: dict[str, list[str]]) -> tuple[str, ...]:
    record = state.read(state.home(name))
    assert record is not None, f"the virtual device {name} does not run"
    payload = json.dumps(request).encode()
    with socket.create_connection((emulator.LOOPBACK, record.port), timeout=TIMEOUT) as plug:
        plug.sendall(wire.header(FAULTS, 0, 0, payload, summed=True) + payload)
        with plug.makefile("rb") as answers:
            header = answers.read(wire.HEADER.size)
            assert header, f"the virtual device {name} was started as one that takes no faults"
            answer = json.loads(answers.read(wire.HEADER.unpack(header)[3]))
    if "error" in answer:
        raise ValueError(answer["error"])
    return tuple(answer["faults"])
