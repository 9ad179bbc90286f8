"""Destination that files are judged for: a machine, a system, an API level."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from adt.bundle.platforms import PLATFORMS, Platform
from adt.host.elf import ElfFacts
from adt.host.ndk import Ndk

ANDROID, GLIBC, KERNEL = "android", "glibc", "kernel"
"""Systems by their dynamic linker; ``kernel``: none loads it, the file is a static program."""
STAND_IN = "STAND-IN"
"""An NDK whose description says this builds for glibc; see tests/support/standins/ndk.py."""


@dataclass(frozen=True)
class Destination:
    """Machine and system that are to load a file. What is empty or None is taken from each file."""

    machine: str = ""
    system: str = ""
    api_level: int | None = None
    default_api_level: int = 28
    """For a file that does not say which level it was built for."""
    ndk: Ndk | None = None
    """Has stubs of the public libraries, and libc++_shared.so; None: the system's symbols stay unchecked."""
    directories: tuple[Path, ...] = ()
    """Directories of the system's own libraries, when the destination is this machine."""

    @property
    def stand_in(self) -> bool:
        """Return True if the system's libraries are glibc's because the NDK is a stand-in for one."""
        return self.ndk is not None and STAND_IN in self.ndk.description

    def level_for(self, facts: ElfFacts) -> int:
        """The API level that *facts* are judged at."""
        if self.api_level is not None:
            return self.api_level
        return facts.android.api_level if facts.android else self.default_api_level


def destination(platform: Platform, *, api_level: int | None = None, ndk: Ndk | None = None) -> Destination:
    """The destination that *platform* is."""
    system = ANDROID if platform.android else GLIBC
    return Destination(
        platform.machine,
        system,
        api_level if platform.android else None,
        ndk=ndk,
        directories=own_directories() if platform.name == "host" else (),
    )


def own_directories() -> tuple[Path, ...]:
    """Return the directories in which this machine's dynamic linker looks for libraries."""
    triple = PLATFORMS["host"].triple
    places = (f"/lib/{triple}", f"/usr/lib/{triple}", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
    return tuple(map(Path, ("/usr/local/lib", *places)))


def system_of(facts: ElfFacts) -> str:
    """The system that a file was built for, by what it asks for; empty when nothing tells."""
    if facts.program and not facts.interpreter:
        return KERNEL
    if facts.android or facts.interpreter.startswith("/system/bin/linker"):
        return ANDROID
    if "ld-linux" in facts.interpreter or {"libc.so.6", "libstdc++.so.6", "libm.so.6"} & set(facts.needed):
        return GLIBC
    if "libc.so" in facts.needed or any(name.startswith("LIBC") for name in versions_asked(facts)):
        return ANDROID
    return ""


def versions_asked(facts: ElfFacts) -> Iterable[str]:
    """The symbol versions that a file asks others for."""
    return {symbol.version for symbol in facts.imports if symbol.version}
