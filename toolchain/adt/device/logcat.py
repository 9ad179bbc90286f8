"""Android's log, line by line as it comes.

A thread reads what the device sends, so that a slow reader never stalls the
device; what it does not take in time is dropped, the oldest first, and counted.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from adt.device.deadline import Cancelled, Deadline
from adt.device.shell import STDERR, STDOUT, Completed, failure
from adt.errors import AdtError, ConfigError, DeviceError

if TYPE_CHECKING:
    from adt.device.device import Device

PRIORITIES = "VDIWEFS"
"""Verbose, debug, info, warning, error, fatal, silent."""
WAITING = 10_000
"""Lines that may wait for a reader before the oldest are dropped."""
KEPT = 4000
"""Characters of what is not a line of the log that an error may show."""
NOT_EXECUTABLE, NOT_FOUND = 126, 127

_LINE = re.compile(
    r"(?P<time>(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d\.\d+)\s+(?:\w+\s+)??(?P<pid>\d+)\s+(?P<tid>\d+)\s"
    r"(?P<priority>[VDIWEFSA])\s(?P<tag>.*?)\s*: ?(?P<message>.*)"
)
_FILTER = re.compile(r"(?P<tag>[^:\s]+)(?::(?P<priority>[VDIWEFS]))?")
_SINCE = re.compile(r"(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,6})?|\d+")


@dataclass(frozen=True)
class LogLine:
    """One line of the log."""

    time: str
    """On the device's clock: ``MM-DD hh:mm:ss.mmm``."""
    pid: int
    tid: int
    priority: str
    """One letter of PRIORITIES."""
    tag: str
    message: str

    def __str__(self) -> str:
        return f"{self.time} {self.pid:5} {self.tid:5} {self.priority} {self.tag}: {self.message}"


def parse_line(text: str) -> LogLine | None:
    """Read a line of the format ``threadtime``; None for another, such as ``--------- beginning of main``."""
    found = _LINE.fullmatch(text.rstrip("\r\n"))
    if found is None:
        return None
    return LogLine(
        found["time"], int(found["pid"]), int(found["tid"]), found["priority"], found["tag"], found["message"]
    )


def parse_filters(filters: Sequence[str]) -> dict[str, str]:
    """The least priority of each tag; ``*`` stands for every other tag.

    Raises:
        ConfigError: one is not ``TAG`` or ``TAG:PRIORITY``.
    """
    least = {}
    for one in filters:
        found = _FILTER.fullmatch(one)
        if found is None or one.startswith("-"):
            raise ConfigError(
                f"{one!r} is no filter of the log",
                remedy="Write TAG:PRIORITY, the priority one of V, D, I, W, E, F, S; *:PRIORITY is for all.",
            )
        least[found["tag"]] = found["priority"] or "V"
    return least


def passes(line: LogLine, least: Mapping[str, str], pid: int | None) -> bool:
    """Whether *line* is wanted."""
    wanted = least.get(line.tag, least.get("*", "V"))
    known = line.priority if line.priority in PRIORITIES else "F"
    return (pid is None or line.pid == pid) and PRIORITIES.index(known) >= PRIORITIES.index(wanted)


class Logcat:
    """The log of a device. Use it as a context manager, and iterate over it for its lines.

    The iteration ends when the device's ``logcat`` does, or after :meth:`stop`
    (from any thread). It raises what went wrong otherwise.
    """

    def __init__(
        self,
        device: Device,
        filters: Sequence[str] = (),
        *,
        since: str | None = None,
        pid: int | None = None,
        dump: bool = False,
    ) -> None:
        """Start reading.

        Args:
            filters: ``TAG:PRIORITY``, as logcat takes them; none for all lines.
            since: a time on the device's clock (``MM-DD hh:mm:ss.mmm``), or a number of last lines.
            pid: only lines of this process.
            dump: end after what is there already.

        Raises:
            ConfigError: a filter or *since* cannot be read.
            NoDevice, DeviceNotReady, DeviceError: the device is absent, not usable, or went away.
        """
        self.dropped = 0
        """Lines that came faster than they were taken."""
        self._least, self._pid = parse_filters(filters), pid
        if since is not None and not _SINCE.fullmatch(since):
            raise ConfigError(
                f"{since!r} is no time that logcat takes",
                remedy="Write it as the log shows it, 'MM-DD hh:mm:ss.mmm', or give a number of last lines.",
            )
        argv = ["logcat", "-v", "threadtime"]
        argv += ["-d"] if dump else []
        argv += ["-T" if not dump else "-t", since] if since is not None else []
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._lines: deque[LogLine] = deque()
        self._ended = False
        self._error: AdtError | None = None
        self._other = {STDOUT: "", STDERR: ""}  # what is not a line of the log
        self._any = False
        self._serial = device.serial
        self._command = device.start([*argv, *filters])
        self._command.set_deadline(Deadline(None, f"reading the log of {device.serial}", cancel=self._stop))
        self._reader = threading.Thread(target=self._read, name=f"logcat {device.serial}", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._reader.join()
        self._command.close()

    def stop(self) -> None:
        """End the iteration, here or in another thread."""
        self._stop.set()

    def __iter__(self) -> Iterator[LogLine]:
        while True:
            with self._changed:
                while not self._lines and not self._ended:
                    self._changed.wait()
                if self._stop.is_set() or not self._lines:
                    break
                line = self._lines.popleft()
            yield line
        if self._error is not None:
            raise self._error

    def _read(self) -> None:
        rest = b""
        try:
            for kind, data in self._command.output():
                if kind == STDERR:
                    self._keep(STDERR, data.decode(errors="replace"))
                    continue
                *lines, rest = (rest + data).split(b"\n")
                self._take(lines)
            self._take([rest])
            self._error = self._judge()
        except Cancelled:
            pass
        except AdtError as why:
            self._error = why
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _take(self, lines: Sequence[bytes]) -> None:
        for raw in lines:
            text = raw.decode(errors="replace")
            line = parse_line(text)
            if line is None:
                self._keep(STDOUT, text + "\n")
                continue
            self._any = True
            if not passes(line, self._least, self._pid):
                continue  # not every logcat filters
            with self._changed:
                if len(self._lines) >= WAITING:
                    self._lines.popleft()
                    self.dropped += 1
                self._lines.append(line)
                self._changed.notify()

    def _keep(self, kind: int, text: str) -> None:
        self._other[kind] = (self._other[kind] + text)[-KEPT:]

    def _judge(self) -> AdtError | None:
        """What a logcat that has ended by itself means."""
        code = self._command.exit_code or 0
        if code in (NOT_EXECUTABLE, NOT_FOUND) and not self._any:
            return DeviceError(
                f"device {self._serial} has no logcat",
                remedy="Only Android has one; a Linux board has dmesg or journalctl: "
                f"`adb -s {self._serial} shell dmesg`.",
            )
        if code == 0:
            return None
        said = (self._other[STDOUT].encode(), self._other[STDERR].encode())
        return failure(Completed(self._serial, self._command.argv, code, *said))
