"""One device: its facts, commands and files."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Unpack

from adt.device import survey
from adt.device.scripts import script
from adt.device.survey import DeviceFacts, Survey
from adt.device.transport import adb, shell, sync
from adt.device.transport.deadline import SHORT, STALL, Deadline, transfer_seconds
from adt.device.transport.shell import Completed, RemoteCommand, ShellOptions
from adt.device.transport.sync import Progress, SyncSession
from adt.errors import AdtError, DeviceFull
from adt.host.disk import size_text


def no_room(serial: str, what: str, *, free: int | None) -> DeviceFull:
    """Make the error for *what* ("mod.so does not fit") on a device with *free* bytes, if known."""
    left = "" if free is None else f" ({size_text(free)} free)"
    return DeviceFull(
        f"device {serial} is full{left}: {what}",
        remedy=f"Make room, then run the same command again: `adt clean --serial {quote(serial)}` removes "
        "old deployments (with `--keep 0` all that are not in use; they are sent again when needed). What "
        "was deployed before is untouched so far.",
    )


@dataclass(frozen=True)
class Device:
    """The device *serial*, reached through the adb server.

    Every method raises NoDevice, DeviceNotReady or DeviceError when the connection breaks.
    """

    serial: str
    timeout: float | None = field(default=None, compare=False)
    """Seconds that each step on it may take, where the user said; None: what is usual for each."""

    def allow(self, seconds: float) -> float:
        """Return the seconds that a step may take which usually may take *seconds*."""
        return self.timeout or seconds

    @cached_property
    def features(self) -> frozenset[str]:
        """Features of the device's daemon, as adb lists them."""
        service, doing = adb.host_service(self.serial, "features"), f"asking {self.serial} for its features"
        text = adb.query(service, serial=self.serial, doing=doing)
        return frozenset(text.strip().split(","))

    @cached_property
    def facts(self) -> DeviceFacts:
        """Facts that the device tells about itself, asked once."""
        return self.survey().facts

    def survey(self, *parts: str, libraries: Sequence[str] = (), **options: Unpack[ShellOptions]) -> Survey:
        """Ask for *parts* of ``survey.sh`` (with files *libraries* to look for), and for unknown facts."""
        known = "facts" in vars(self)
        questions = parts if known else (*survey.FACTS, *parts)
        done = self.script(script("survey"), *survey.arguments(questions, libraries), **options)
        answer = survey.parse(done.out)
        if not known:
            vars(self)["facts"] = answer.facts
        return answer

    @property
    def platform(self) -> str:
        """The platform to build for: ``android-<abi>``, or what a virtual device says it is."""
        return self.facts.platforms[0]

    def shell(self, argv: Sequence[str], **options: Unpack[ShellOptions]) -> Completed:
        """Run *argv* on the device; see :func:`adt.device.transport.shell.run`."""
        limit: ShellOptions = {"timeout": self.allow(SHORT)}
        return shell.run(self.serial, argv, v2="shell_v2" in self.features, **(limit | options))

    def script(self, text: str, *arguments: str, **options: Unpack[ShellOptions]) -> Completed:
        """Run a shell script of ours; *arguments* are its ``$1``, ``$2``, …, never pasted into its text."""
        defaults: ShellOptions = {
            "doing": f"running a shell script on {self.serial}",
            "what": f"a shell script failed on {self.serial}",
            **options,
        }
        return self.shell(("sh", "-c", text, "sh", *arguments), **defaults)

    def start(
        self,
        argv: Sequence[str],
        *,
        timeout: float | None = None,
        keep_stdin: bool = False,
        inline: bool = False,
    ) -> RemoteCommand:
        """Start *argv*, *inline* as for :class:`RemoteCommand`, and return it running: a context manager."""
        deadline = Deadline(timeout, f"running `{argv[0]}` on {self.serial}")
        v2 = "shell_v2" in self.features
        return RemoteCommand(
            self.serial, argv, v2=v2, deadline=deadline, keep_stdin=keep_stdin, inline=inline
        )

    @contextlib.contextmanager
    def sync(self, *, size: int = 0, timeout: float | None = None, doing: str) -> Iterator[SyncSession]:
        """Connect for files, *size* bytes if known; what the device refuses becomes an error with a remedy.

        Without a *timeout*, here or of the device, it may take as long as bytes travel no slower than any
        usable connection brings them.
        """
        limit, stall = timeout or self.timeout, math.inf
        if limit is None:
            limit, stall = transfer_seconds(size) if size else None, STALL
        try:
            deadline = Deadline(limit, doing, stall=stall)
            with SyncSession(self.serial, deadline=deadline) as session:
                yield session
        except sync.Refused as error:
            if error.full:
                raise no_room(self.serial, f"{error.path} does not fit", free=self.free_space()) from error
            raise sync.explain(error, self.serial) from error

    def push(
        self, local: Path | bytes, remote: str, *, mode: int | None = None, progress: Progress | None = None
    ) -> int:
        """Write one file on the device, in place; returns the bytes sent.

        An older *remote* is lost even when this fails (the daemon removes what it did not get whole):
        send to a temporary name to keep it.
        """
        size = len(local) if isinstance(local, bytes) else local.stat().st_size if local.is_file() else 0
        with self.sync(size=size, doing=f"pushing {remote} to {self.serial}") as session:
            return session.push(local, remote, mode=mode, progress=progress)

    def pull(self, remote: str, local: Path, *, timeout: float | None = None) -> int:
        """Fetch one file; *local* appears complete or not at all. Returns the bytes received."""
        with self.sync(timeout=timeout, doing=f"pulling {remote} from {self.serial}") as session:
            return session.pull(remote, local)

    def free_space(self) -> int | None:
        """Return the bytes left in :data:`~adt.device.survey.TEMP`; None when the device does not tell."""
        with contextlib.suppress(AdtError):
            text = self.script(script("survey"), *survey.arguments(["space"]), check=False).out
            return survey.parse(text).free_space
        return None
