"""Which service answers which destination of an OPEN."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from adt.virtual import forwarding, properties, shell, sync
from adt.virtual.injection import Injector
from adt.virtual.stream import Stream
from adt.virtual.transport import Service, Transport

SHELL = "/system/bin/sh"

NOT_OFFERED = ("remount", "reboot", "tcpip", "usb", "disable-verity", "enable-verity")
"""Requests that get an answer in words, because a refusal would tell nobody why."""


def environment(hostname: str) -> dict[str, str]:
    """The environment of every command, close to Android's."""
    return {
        "PATH": f"{properties.TOOLS}:/system/bin:/vendor/bin",
        "HOME": "/data",
        "TMPDIR": "/data/local/tmp",
        "USER": "root",
        "LOGNAME": "root",
        "SHELL": SHELL,
        "HOSTNAME": hostname,
        "ANDROID_ROOT": "/system",
        "ANDROID_DATA": "/data",
        "EXTERNAL_STORAGE": "/sdcard",
    }


@dataclass(frozen=True)
class Services:
    """The services of one device."""

    environment: Mapping[str, str]
    injector: Injector

    def find(self, transport: Transport, destination: str) -> Service | None:
        """The service for *destination*, or None to refuse it."""
        name, _, rest = destination.partition(":")
        kind = name.partition(",")[0]
        if kind == "shell" or name == "exec":
            request = shell.parse(destination)
            return lambda stream: shell.serve(stream, request, SHELL, self.environment)
        if name == "sync":
            return lambda stream: sync.Session(stream, self.injector).run()
        if name in forwarding.KINDS and rest:
            return lambda stream: forwarding.forward(stream, destination)
        if name == "reverse":
            return lambda stream: forwarding.Reverse(transport).serve(stream, rest)
        if name == "root":
            return say("adbd is already running as root\n")
        if name == "unroot":
            return say("the virtual device has no other user than root\n")
        if name in NOT_OFFERED:
            return say(f"{name} is not offered by the virtual device: it is not Android\n")
        return None


def say(answer: str) -> Callable[[Stream], Awaitable[None]]:
    """A service that answers one text."""

    async def service(stream: Stream) -> None:
        stream.accept()
        await stream.write(answer.encode())

    return service
