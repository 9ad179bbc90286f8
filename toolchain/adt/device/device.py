"""One device: its facts, commands, files and port forwards."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from adt.device import adb, shell, sync
from adt.device.deadline import Deadline
from adt.device.room import no_room, parse_free
from adt.device.shell import Completed, RemoteCommand, Sink
from adt.device.sync import Progress, SyncSession
from adt.errors import AdtError

log = logging.getLogger("adt.device")

SHORT = 30.0
"""Seconds: budget for a short command."""
TEMP = "/data/local/tmp"
"""Where the shell user may write and execute."""

_FACTS = """
getprop 2>/dev/null
echo "==uname=="; uname -m
echo "==page=="; getconf PAGESIZE 2>/dev/null || getconf PAGE_SIZE 2>/dev/null
exit 0
"""


@dataclass(frozen=True)
class DeviceFacts:
    """What a device says about itself."""

    properties: Mapping[str, str]
    """Everything ``getprop`` prints."""
    machine: str
    """``uname -m``."""
    page_size: int | None
    """Bytes; None when the device does not say."""

    @property
    def abis(self) -> tuple[str, ...]:
        """Android's ABI names, the preferred one first; empty on a device that is not Android."""
        listed = self.properties.get("ro.product.cpu.abilist") or self.properties.get(
            "ro.product.cpu.abi", ""
        )
        return tuple(abi for abi in listed.split(",") if abi)

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms whose bundles run here, the preferred one first.

        A virtual device names its own (``ro.adt.platform``); Android runs one
        for each of its ABIs; anything else is a Linux of its machine.
        """
        if own := self.properties.get("ro.adt.platform"):
            return (own,)
        return tuple(f"android-{abi}" for abi in self.abis) or (f"linux-{self.machine}",)

    @property
    def api_level(self) -> int | None:
        """Android's API level; None on a device that is not Android."""
        level = self.properties.get("ro.build.version.sdk", "")
        return int(level) if level.isdigit() and self.platforms[0].startswith("android-") else None

    @property
    def virtual(self) -> bool:
        """Whether this is adt's virtual device: its numbers count, its times do not."""
        return "ro.adt.platform" in self.properties

    @property
    def label(self) -> str:
        """What this is, for people and reports."""
        model = self.properties.get("ro.product.model", "unknown model")
        if self.virtual:
            return f"{model} (virtual device: {self.platforms[0]} behind ADB, no speed)"
        level = f", API {self.api_level}" if self.api_level is not None else ""
        return f"{model} ({', '.join(self.platforms)}{level})"


def parse_facts(text: str) -> DeviceFacts:
    """Read what the device printed: ``[key]: [value]`` lines, the machine, the page size."""
    properties_text, _, rest = text.partition("==uname==")
    machine, _, page = rest.partition("==page==")
    # a value may have line breaks in it; it ends at a "]" that ends a line
    found = re.findall(r"^\[([^\]\n]+)\]: \[(.*?)\]\r?$", properties_text, re.MULTILINE | re.DOTALL)
    size = page.strip()
    return DeviceFacts(dict(found), machine.strip(), int(size) if size.isdigit() else None)


@dataclass(frozen=True)
class Forward:
    """One TCP port that adb carries from one side to the other, both on 127.0.0.1."""

    local: int
    """Port on this machine."""
    remote: int
    """Port on the device."""


@dataclass(frozen=True)
class Device:
    """The device *serial*, reached through the adb server.

    Every method raises NoDevice, DeviceNotReady or DeviceError when the device
    is gone, not usable, or the connection breaks.
    """

    serial: str

    @cached_property
    def features(self) -> frozenset[str]:
        """What the device's daemon can do, as adb lists it."""
        text = adb.query(
            f"host-serial:{self.serial}:features",
            serial=self.serial,
            doing=f"asking {self.serial} for its features",
        )
        return frozenset(text.strip().split(","))

    @cached_property
    def facts(self) -> DeviceFacts:
        """What the device says about itself, asked once."""
        return parse_facts(self.script(_FACTS).out)

    @property
    def platform(self) -> str:
        """The platform to build for: ``android-<abi>``, or what a virtual device says it is."""
        return self.facts.platforms[0]

    def shell(
        self,
        argv: Sequence[str],
        *,
        timeout: float | None = SHORT,
        check: bool = True,
        doing: str = "",
        what: str = "",
        remedy: str = "",
        on_stdout: Sink | None = None,
        on_stderr: Sink | None = None,
    ) -> Completed:
        """Run *argv* on the device; see :func:`adt.device.shell.run`."""
        return shell.run(
            self.serial,
            argv,
            v2="shell_v2" in self.features,
            timeout=timeout,
            check=check,
            doing=doing,
            what=what,
            remedy=remedy,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
        )

    def script(
        self,
        text: str,
        *arguments: str,
        timeout: float | None = SHORT,
        check: bool = True,
        doing: str = "",
        what: str = "",
        remedy: str = "",
        on_stdout: Sink | None = None,
        on_stderr: Sink | None = None,
    ) -> Completed:
        """Run a shell script of ours; *arguments* are its ``$1``, ``$2``, …, never pasted into its text."""
        return self.shell(
            ("sh", "-c", text, "sh", *arguments),
            timeout=timeout,
            check=check,
            doing=doing or f"running a shell script on {self.serial}",
            what=what or f"a shell script failed on {self.serial}",
            remedy=remedy,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
        )

    def start(
        self, argv: Sequence[str], *, timeout: float | None = None, keep_stdin: bool = False
    ) -> RemoteCommand:
        """Start *argv* and return it running; use the result as a context manager."""
        return RemoteCommand(
            self.serial,
            argv,
            v2="shell_v2" in self.features,
            deadline=Deadline(timeout, f"running `{argv[0]}` on {self.serial}"),
            keep_stdin=keep_stdin,
        )

    @contextlib.contextmanager
    def sync(self, *, timeout: float | None, doing: str) -> Iterator[SyncSession]:
        """A connection for files; what the device refuses becomes an error with a remedy.

        Raises:
            DeviceFull: there is no room (with what is left).
        """
        try:
            with SyncSession(self.serial, deadline=Deadline(timeout, doing)) as session:
                yield session
        except sync.Refused as why:
            if why.full:
                raise no_room(self.serial, f"{why.path} does not fit", free=self.free_space()) from why
            raise sync.explain(why, self.serial) from why

    def push(
        self,
        local: Path | bytes,
        remote: str,
        *,
        mode: int | None = None,
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Write one file on the device, in place; returns the bytes sent.

        An older *remote* is lost even when this fails: send to a temporary name to be safe.
        """
        with self.sync(timeout=timeout, doing=f"pushing {remote}") as session:
            if isinstance(local, bytes):
                return session.push_bytes(local, remote, mode=0o644 if mode is None else mode)
            return session.push(local, remote, mode=mode, progress=progress)

    def pull(
        self, remote: str, local: Path, *, timeout: float | None = None, progress: Progress | None = None
    ) -> int:
        """Fetch one file; *local* appears complete or not at all. Returns the bytes received."""
        with self.sync(timeout=timeout, doing=f"pulling {remote}") as session:
            return session.pull(remote, local, progress=progress)

    def free_space(self, path: str = TEMP) -> int | None:
        """Bytes left on the device's file system at *path*; None when it cannot be asked or does not say."""
        with contextlib.suppress(AdtError):
            return parse_free(self.script('df -k "$1"', path, check=False).out)
        return None

    @contextlib.contextmanager
    def forward(self, remote: int) -> Iterator[Forward]:
        """While the block runs, a port of this machine (adb chooses) leads to the device's port *remote*."""
        doing = f"forwarding a port to {self.serial}"
        prefix = f"host-serial:{self.serial}"
        with adb.open_wire(deadline=Deadline(SHORT, doing), serial=self.serial) as wire:
            wire.request(f"{prefix}:forward:norebind:tcp:0;tcp:{remote}")
            wire.status()  # the first OKAY took the request, the second one is its result
            local = int(wire.read_text())
        try:
            yield Forward(local, remote)
        finally:
            with (
                self._already_gone("forward", local),
                adb.open_wire(deadline=Deadline(SHORT, doing), serial=self.serial) as wire,
            ):
                wire.request(f"{prefix}:killforward:tcp:{local}")
                wire.status()

    @contextlib.contextmanager
    def reverse(self, local: int, remote: int = 0) -> Iterator[Forward]:
        """While the block runs, the device's port *remote* leads to port *local* of this machine.

        Args:
            remote: 0 lets the device choose.

        Raises:
            DeviceError: the device's port is taken (it is never taken over).
        """
        doing = f"reversing a port of {self.serial}"
        with adb.open_device(self.serial, deadline=Deadline(SHORT, doing)) as wire:
            wire.request(f"reverse:forward:norebind:tcp:{remote};tcp:{local}")
            wire.status()
            chosen = int(wire.read_text()) if remote == 0 else remote
        try:
            yield Forward(local, chosen)
        finally:
            with (
                self._already_gone("reverse", chosen),
                adb.open_device(self.serial, deadline=Deadline(SHORT, doing)) as wire,
            ):
                wire.request(f"reverse:killforward:tcp:{chosen}")
                wire.status()

    @contextlib.contextmanager
    def _already_gone(self, kind: str, port: int) -> Iterator[None]:
        """Forwards vanish with the device or the server; then there is nothing to remove."""
        try:
            yield
        except AdtError as why:
            log.debug("%s of port %d was already gone: %s", kind, port, why)
