"""One device: its facts, commands and files."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Unpack

from adt.device import adb, shell, sync
from adt.device.deadline import SHORT as SHORT
from adt.device.deadline import STALL, Deadline, transfer_seconds
from adt.device.room import no_room, parse_free
from adt.device.shell import Completed, RemoteCommand, ShellOptions
from adt.device.sync import Progress, SyncSession
from adt.errors import AdtError

log = logging.getLogger("adt.device")

TEMP = "/data/local/tmp"
"""Where the shell user may write and execute."""

FACTS = """
getprop 2>/dev/null
echo "==uname=="; uname -m
echo "==page=="; getconf PAGESIZE 2>/dev/null || getconf PAGE_SIZE 2>/dev/null
echo "==cpu=="; grep ^Features /proc/cpuinfo 2>/dev/null
:
"""
"""A shell script that prints what :func:`parse_facts` reads."""


@dataclass(frozen=True)
class DeviceFacts:
    """What a device says about itself."""

    properties: Mapping[str, str]
    """Everything ``getprop`` prints."""
    machine: str
    """``uname -m``."""
    page_size: int | None
    """Bytes; None when the device does not say."""
    cpu_features: frozenset[str] = frozenset()
    """What every CPU offers, as Arm's kernels name it (``asimddp``); empty when the device does not say."""

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
    def emulated(self) -> bool:
        """Whether a program emulates the processor: a virtual device, or an Android emulator."""
        qemu = (self.properties.get(key) for key in ("ro.kernel.qemu", "ro.boot.qemu"))
        hardware = self.properties.get("ro.hardware", "")
        return self.virtual or "1" in qemu or hardware in ("goldfish", "ranchu")

    @property
    def label(self) -> str:
        """What this is, for people and reports."""
        model = self.properties.get("ro.product.model", "unknown model")
        if self.virtual:
            return f"{model} (virtual device: {self.platforms[0]} behind ADB, no speed)"
        level = f", API {self.api_level}" if self.api_level is not None else ""
        return f"{model} ({', '.join(self.platforms)}{level})"


def parse_facts(text: str) -> DeviceFacts:
    """Read what the device printed: ``[key]: [value]`` lines, the machine, the page size, CPU features."""
    properties_text, _, rest = text.partition("==uname==")
    machine, _, rest = rest.partition("==page==")
    page, _, cpus = rest.partition("==cpu==")
    # a value may have line breaks in it; it ends at a "]" that ends a line
    found = re.findall(r"^\[([^\]\n]+)\]: \[(.*?)\]\r?$", properties_text, re.MULTILINE | re.DOTALL)
    size = page.strip()
    offers = [frozenset(words.split()) for words in re.findall(r"^Features\s*:(.*)$", cpus, re.MULTILINE)]
    return DeviceFacts(
        dict(found),
        machine.strip(),
        int(size) if size.isdigit() else None,
        frozenset.intersection(*offers) if offers else frozenset(),
    )


@dataclass(frozen=True)
class Device:
    """The device *serial*, reached through the adb server.

    Every method raises NoDevice, DeviceNotReady or DeviceError when the device
    is gone, not usable, or the connection breaks.
    """

    serial: str
    timeout: float | None = field(default=None, compare=False)
    """Seconds that each step on it may take, where the user said; None: what is usual for each."""

    def allow(self, seconds: float) -> float:
        """Seconds that a step may take which usually may take *seconds*."""
        return self.timeout or seconds

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
        return parse_facts(self.script(FACTS).out)

    @property
    def platform(self) -> str:
        """The platform to build for: ``android-<abi>``, or what a virtual device says it is."""
        return self.facts.platforms[0]

    def shell(self, argv: Sequence[str], **options: Unpack[ShellOptions]) -> Completed:
        """Run *argv* on the device; see :func:`adt.device.shell.run`."""
        limit: ShellOptions = {"timeout": self.allow(SHORT)}
        return shell.run(self.serial, argv, v2="shell_v2" in self.features, **(limit | options))

    def script(self, text: str, *arguments: str, **options: Unpack[ShellOptions]) -> Completed:
        """Run a shell script of ours; *arguments* are its ``$1``, ``$2``, …, never pasted into its text."""
        named: ShellOptions = {
            "doing": f"running a shell script on {self.serial}",
            "what": f"a shell script failed on {self.serial}",
            **options,
        }
        return self.shell(("sh", "-c", text, "sh", *arguments), **named)

    def start(
        self,
        argv: Sequence[str],
        *,
        timeout: float | None = None,
        keep_stdin: bool = False,
        inline: bool = False,
    ) -> RemoteCommand:
        """Start *argv* and return it running; use the result as a context manager.

        Args:
            inline: see :class:`~adt.device.shell.RemoteCommand`.
        """
        return RemoteCommand(
            self.serial,
            argv,
            v2="shell_v2" in self.features,
            deadline=Deadline(timeout, f"running `{argv[0]}` on {self.serial}"),
            keep_stdin=keep_stdin,
            inline=inline,
        )

    @contextlib.contextmanager
    def sync(
        self, *, size: int = 0, timeout: float | None, doing: str, cancel: threading.Event | None = None
    ) -> Iterator[SyncSession]:
        """A connection for files; what the device refuses becomes an error with a remedy.

        Args:
            size: bytes that will travel, as far as they are known.
            timeout: seconds in total; None: those of the device where the user said, else as long as bytes
                travel, and not slower than any usable connection does.

        Raises:
            DeviceFull: there is no room (with what is left).
        """
        limit = timeout or self.timeout
        try:
            if limit is None:
                total = transfer_seconds(size) if size else None
                deadline = Deadline(total, doing, stall=STALL, cancel=cancel)
            else:
                deadline = Deadline(limit, doing, cancel=cancel)
            with SyncSession(self.serial, deadline=deadline) as session:
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
        cancel: threading.Event | None = None,
    ) -> int:
        """Write one file on the device, in place; returns the bytes sent.

        An older *remote* is lost even when this fails (the daemon removes what it did not get whole):
        send to a temporary name to keep it.
        """
        size = len(local) if isinstance(local, bytes) else local.stat().st_size if local.is_file() else 0
        doing = f"pushing {remote} to {self.serial}"
        with self.sync(size=size, timeout=timeout, doing=doing, cancel=cancel) as session:
            if isinstance(local, bytes):
                return session.push_bytes(local, remote, mode=0o644 if mode is None else mode)
            return session.push(local, remote, mode=mode, progress=progress)

    def pull(
        self,
        remote: str,
        local: Path,
        *,
        timeout: float | None = None,
        progress: Progress | None = None,
        cancel: threading.Event | None = None,
    ) -> int:
        """Fetch one file; *local* appears complete or not at all. Returns the bytes received."""
        doing = f"pulling {remote} from {self.serial}"
        with self.sync(timeout=timeout, doing=doing, cancel=cancel) as session:
            return session.pull(remote, local, progress=progress)

    def free_space(self, path: str = TEMP) -> int | None:
        """Bytes left on the device's file system at *path*; None when it cannot be asked or does not say."""
        with contextlib.suppress(AdtError):
            return parse_free(self.script('df -k "$1"', path, check=False).out)
        return None
