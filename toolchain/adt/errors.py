"""Every way `adt` can fail: one class per cause, each with its own exit code.

An error says *what happened* and *what to do about it*. The table in
``docs/exit-codes.md`` is generated from this module, so a class without a
docstring or with a code that is already taken fails the unit tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

INTERRUPTED = 130  # 128 + SIGINT, what shells report for ctrl-C
TERMINATED = 143  # 128 + SIGTERM
TRACE = 5  # level of the lines that -vv shows, below logging.DEBUG
INTERNAL = 1  # an exception that is not an AdtError: a bug in adt
USAGE = 2  # typer's own code for a wrong command line


CONTROL = {code: None for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
"""Characters that move a terminal's cursor or end a C program's text."""


def printable(text: str) -> str:
    """Remove control characters: a driver's build log may hold NULs, a program's output escapes."""
    return text.translate(CONTROL)


class AdtError(Exception):
    """Something adt can explain.

    It says what happened and to which thing, in a sentence or two, and what to do now, ideally a command.
    *details* are evidence in several lines; *options* is what the same command line needs to go on.
    """

    exit_code: ClassVar[int] = INTERNAL

    def __init__(self, what: str, *, remedy: str, details: str = "", options: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.what = printable(what)
        self.remedy = remedy
        self.details = printable(details)
        self.options = tuple(options)
        self.add_note(f"remedy: {remedy}")  # for a traceback; the command line prints it from the attribute

    def __reduce__(self) -> tuple[Any, ...]:
        """Restore the attributes after pickling: the class cannot be called with the message alone."""
        return type(self).__new__, (type(self), *self.args), self.__dict__


class ConfigError(AdtError):
    """A setting is unknown, of the wrong type or contradicts another one."""

    exit_code = 3


def exclusive(ones: str, others: str, why: str = "") -> ConfigError:
    """Return the error for options that exclude each other, each side as "--a" or "--a and --b"."""
    return ConfigError(
        f"{ones} cannot be given together with {others}" + f": {why}" * bool(why),
        remedy=f"Leave {ones} away, or {others}.",
    )


def dependent(ones: str, others: str) -> ConfigError:
    """Return the error for options that need others, each side as "--a" or "--a or --b"."""
    return ConfigError(f"{ones} can be given only with {others}", remedy=f"Add {others}, or drop {ones}.")


class ToolNotFound(AdtError):
    """A program or library that this step needs is not on this machine."""

    exit_code = 4


class NdkError(AdtError):
    """The Android NDK is missing, incomplete or of a version that does not work."""

    exit_code = 5


class SourceError(AdtError):
    """The TVM source tree cannot be obtained or is not what it should be."""

    exit_code = 6


class BuildError(AdtError):
    """CMake or Ninja failed, or what they built would not load on the device."""

    exit_code = 7


class ModelError(AdtError):
    """The model file is missing, damaged, of an unknown format, or its shapes do not fit."""

    exit_code = 8


class UnsupportedOp(AdtError):
    """The model uses an operator that cannot be converted or compiled."""

    exit_code = 9


class CompileError(AdtError):
    """TVM could not compile or link the model for the target."""

    exit_code = 10


class PackageError(AdtError):
    """A ModelPackage, TargetBundle or tuning database is damaged or is not one."""

    exit_code = 11


class MismatchError(AdtError):
    """A package, a bundle and a device do not fit each other."""

    exit_code = 12


class NoDevice(AdtError):
    """No device is connected, or none has the given serial."""

    exit_code = 13


class AmbiguousDevice(AdtError):
    """Several devices are connected and none was chosen."""

    exit_code = 14


class DeviceNotReady(AdtError):
    """The device is offline, unauthorized or otherwise not usable."""

    exit_code = 15


class DeviceError(AdtError):
    """The connection to the device broke or a command on it failed."""

    exit_code = 16


class DeviceFull(AdtError):
    """The device has no room for what was sent."""

    exit_code = 17


class RunError(AdtError):
    """The runner on the device ended with an error."""

    exit_code = 18


class InputError(AdtError):
    """Input or output data (npz, npy, file) does not fit the model's inputs."""

    exit_code = 19


class VerifyFailed(AdtError):
    """The device's outputs differ from the reference by more than the tolerance."""

    exit_code = 20


class EmulatorError(AdtError):
    """The virtual device cannot be started or is not running."""

    exit_code = 21


class DownloadError(AdtError):
    """A package could not be fetched from its registry, or its sha256 differs."""

    exit_code = 22


class Busy(AdtError):
    """Another adt process holds the lock for longer than we may wait."""

    exit_code = 23


class ProcessFailed(AdtError):
    """A program that adt started failed in a way no other code describes."""

    exit_code = 24


class DiskError(AdtError):
    """This machine's disk is full, read-only or refuses access."""

    exit_code = 25


class DoctorFailed(AdtError):
    """A check of `adt doctor` failed."""

    exit_code = 26


class SdkError(AdtError):
    """The CLML, OpenCL or Android SDK to build with is missing or incomplete."""

    exit_code = 27


class TrackerError(AdtError):
    """The RPC tracker cannot be started or reached, or has no device for the key."""

    exit_code = 28


class RpcError(AdtError):
    """An RPC server cannot be started or reached, or its session ended too early."""

    exit_code = 29


class RegressionFound(AdtError):
    """`adt report --fail-on-regression` found that a newest result is worse than an earlier one."""

    exit_code = 30


class WouldOverwrite(AdtError):
    """`adt generate` would overwrite generated files that were edited, or files that adt did not write."""

    exit_code = 31


class OutOfMemory(AdtError):
    """This machine, or the device, has less memory than the work needs."""

    exit_code = 32


def all_errors() -> Iterator[type[AdtError]]:
    """Yield every concrete error class, lowest exit code first."""
    yield from sorted(AdtError.__subclasses__(), key=lambda cls: cls.exit_code)


def lines_of(error: BaseException) -> list[str]:
    """Return the lines of an exception's message that say something; else the exception's type.

    Relax's operators are named in them, where TVM prints all their fields.
    """
    text = re.sub(r'ir\.Op\([^"\n]*name="([^"]+)".*?support_level=\d+\)', r"\1", str(error))
    return [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]


def last_line(error: BaseException) -> str:
    """Return the last line of the message: what TVM says, after a trace."""
    return lines_of(error)[-1]
