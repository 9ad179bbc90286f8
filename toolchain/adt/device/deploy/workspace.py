"""A directory on the device that lives exactly as long as the connection that made it.

Each one has a holder: a shell on the device that waits on its standard input and removes the directory when
that ends, be it because we are done or because adt was killed. Directories whose holder is gone too (the
device restarted) are removed by whoever makes the next one. Two users of one device never share one.

While it lives the directory is also a mark that others see. One below ``clean/`` says that things are being
removed: every other holder waits, once its own mark is set, until that is over. One whose name ends in a
deployment's digest says that this deployment is in use. As each side sets its own mark before it looks for
the other's, at least one of two sees the other.
"""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from adt.device.device import Device, no_room
from adt.device.scripts import script
from adt.device.survey import TEMP
from adt.device.transport.deadline import SHORT, Deadline
from adt.device.transport.shell import STDERR, STDOUT, RemoteCommand
from adt.errors import AdtError, DeviceError, DeviceFull

CLEANING = "clean"
"""Name of the directory, beside those of other workspaces, for the workspaces of what removes things."""

LINKER = re.compile(rb"^WARNING: linker: .*\n", re.MULTILINE)
"""Messages of Android's dynamic linker at each start of a program, such as that it has no configuration."""


@dataclass(frozen=True)
class Answer:
    """Answer of the device to one request."""

    code: int
    """Code that the request's function returned; 0 is success."""
    text: str
    """All that it printed, on either stream."""


class Agent:
    """A workspace whose holder also answers requests; see :func:`open_agent`."""

    def __init__(
        self, device: Device, path: str, tag: str, holder: RemoteCommand, events: Iterator[tuple[int, bytes]]
    ) -> None:
        self.device = device
        self.path = path
        """The workspace's directory on the device."""
        self._tag = tag
        self._holder = holder
        self._events = events

    def ask(
        self, *words: str, lines: Sequence[str] = (), timeout: float | None = None, doing: str = ""
    ) -> Answer:
        """Have the script's function ``serve`` called with *words* (no spaces), and return its answer.

        It reads *lines* from descriptor 3, one line each; their number is its last word.
        """
        request = " ".join((*words, str(len(lines))))
        seconds = timeout or self.device.allow(SHORT)
        self._holder.set_deadline(Deadline(seconds, doing or f"asking {self.device.serial}"))
        data = "".join(f"{line}\n" for line in (request, *lines)).encode(errors="surrogateescape")
        for at in range(0, len(data), 1 << 15):
            self._holder.write(data[at : at + (1 << 15)])
        end = f"{self._tag} ".encode()
        output = bytearray()
        while True:
            head, mark, tail = bytes(output).rpartition(end)
            if mark and tail.endswith(b"\n") and tail.strip().isdigit():
                text = LINKER.sub(b"", head).decode(errors="surrogateescape")
                return Answer(int(tail), text)
            event = next(self._events, None)
            if event is None:
                raise DeviceError(
                    f"the shell on {self.device.serial} ended while {doing or 'it was asked'}",
                    remedy="Run the same command again; what was complete on the device is still there.",
                    details=output.decode(errors="replace")[-2000:],
                )
            output += event[1]


@contextlib.contextmanager
def workspace(device: Device, parent: str, *, uses: str = "") -> Iterator[str]:
    """Make a directory below *parent* on the device for as long as the block runs; yield its absolute path.

    The deployment with the digest *uses* is not removed meanwhile, if it is there when this returns.
    """
    with open_agent(device, parent, script("hold"), uses=uses) as agent:
        yield agent.path


@contextlib.contextmanager
def open_agent(device: Device, parent: str, program: str, *, uses: str = "") -> Iterator[Agent]:
    """Make a workspace whose holder answers requests: one connection for all that a task needs.

    *program* includes ``workspace.sh`` and ``serve.sh``, and between them defines the shell function
    ``serve``, which finds the workspace in ``$dir`` and changes the working directory in a subshell only.
    """
    tag = f"adt{secrets.token_hex(8)}{'.' * bool(uses)}{uses}"
    argv = ("sh", "-c", program, "sh", parent, tag)
    with device.start(argv, timeout=device.allow(SHORT), keep_stdin=True, inline=True) as holder:
        events = holder.output()
        farewell = b""
        try:
            path = _first_line(device, parent, events)
            yield Agent(device, path, tag, holder, events)
            farewell = b"bye\n"
        finally:
            # the device is gone: so is the directory, at the latest next time
            with contextlib.suppress(AdtError):
                doing = f"removing a directory below {parent} on {device.serial}"
                holder.set_deadline(Deadline(SHORT, doing))
                if farewell:
                    holder.write(farewell)
                elif not holder.close_stdin():
                    holder.kill()
                for _ in events:
                    pass


def _first_line(device: Device, parent: str, events: Iterator[tuple[int, bytes]]) -> str:
    output = {STDOUT: b"", STDERR: b""}
    while b"\n" not in output[STDOUT]:
        event = next(events, None)
        if event is None:
            raise _not_made(device, parent, output[STDERR].decode(errors="replace").strip())
        output[event[0]] += event[1]
    return output[STDOUT].decode().rstrip("\n")


def _not_made(device: Device, parent: str, output: str) -> DeviceError | DeviceFull:
    if "No space left" in output:
        return no_room(device.serial, "there is no room for a directory", free=device.free_space())
    return DeviceError(
        f"device {device.serial} does not let us make a directory in {parent}",
        remedy="Look at the permissions of /data/local/tmp/adt on the device (`adt adb -- shell ls -ld`).",
        details=output,
    )


AWAKE = f"{TEMP}/adt/.awake"
"""Directory where everybody who holds the device has a mark, whoever they are, and the former value lies."""


@contextlib.contextmanager
def awake(device: Device) -> Iterator[None]:
    """Hold *device* awake for as long as the block runs."""
    with open_agent(device, AWAKE, script("awake")):
        yield
