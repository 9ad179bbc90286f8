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

    def __init_subclass__(cls, exit_code: int | None = None) -> None:
        cls.exit_code = cls.exit_code if exit_code is None else exit_code

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


class ConfigError(AdtError, exit_code=3):
    """A setting is unknown, of the wrong type or contradicts another one."""


def exclusive(ones: str, others: str, why: str = "") -> ConfigError:
    """Return the error for options that exclude each other, each side as "--a" or "--a and --b"."""
    return ConfigError(
        f"{ones} cannot be given together with {others}" + f": {why}" * bool(why),
        remedy=f"Leave {ones} away, or {others}.",
    )


def dependent(ones: str, others: str) -> ConfigError:
    """Return the error for options that need others, each side as "--a" or "--a or --b"."""
    return ConfigError(f"{ones} can be given only with {others}", remedy=f"Add {others}, or drop {ones}.")


class ToolNotFound(AdtError, exit_code=4):
    """A program or library that this step needs is not on this machine."""


class NdkError(AdtError, exit_code=5):
    """The Android NDK is missing, incomplete or of a version that does not work."""


class SourceError(AdtError, exit_code=6):
    """The TVM source tree cannot be obtained or is not what it should be."""


class BuildError(AdtError, exit_code=7):
    """CMake or Ninja failed, or what they built would not load on the device."""


class ModelError(AdtError, exit_code=8):
    """The model file is missing, damaged, of an unknown format, or its shapes do not fit."""


class UnsupportedOp(AdtError, exit_code=9):
    """The model uses an operator that cannot be converted or compiled."""


class CompileError(AdtError, exit_code=10):
    """TVM could not compile or link the model for the target."""


class PackageError(AdtError, exit_code=11):
    """A ModelPackage, TargetBundle or tuning database is damaged or is not one."""


class MismatchError(AdtError, exit_code=12):
    """A package, a bundle and a device do not fit each other."""


class NoDevice(AdtError, exit_code=13):
    """No device is connected, or none has the given serial."""


class AmbiguousDevice(AdtError, exit_code=14):
    """Several devices are connected and none was chosen."""


class DeviceNotReady(AdtError, exit_code=15):
    """The device is offline, unauthorized or otherwise not usable."""


class DeviceError(AdtError, exit_code=16):
    """The connection to the device broke or a command on it failed."""


class DeviceFull(AdtError, exit_code=17):
    """The device has no room for what was sent."""


class RunError(AdtError, exit_code=18):
    """The runner on the device ended with an error."""


class InputError(AdtError, exit_code=19):
    """Input or output data (npz, npy, file) does not fit the model's inputs."""


class VerifyFailed(AdtError, exit_code=20):
    """The device's outputs differ from the reference by more than the tolerance."""


class EmulatorError(AdtError, exit_code=21):
    """The virtual device cannot be started or is not running."""


class DownloadError(AdtError, exit_code=22):
    """A package could not be fetched from its registry, or its sha256 differs."""


class Busy(AdtError, exit_code=23):
    """Another adt process holds the lock for longer than we may wait."""


class ProcessFailed(AdtError, exit_code=24):
    """A program that adt started failed in a way no other code describes."""


class DiskError(AdtError, exit_code=25):
    """This machine's disk is full, read-only or refuses access."""


class DoctorFailed(AdtError, exit_code=26):
    """A check of `adt doctor` failed."""


class SdkError(AdtError, exit_code=27):
    """The CLML, OpenCL or Android SDK to build with is missing or incomplete."""


class TrackerError(AdtError, exit_code=28):
    """The RPC tracker cannot be started or reached, or has no device for the key."""


class RpcError(AdtError, exit_code=29):
    """An RPC server cannot be started or reached, or its session ended too early."""


class RegressionFound(AdtError, exit_code=30):
    """`adt report --fail-on-regression` found that a newest result is worse than an earlier one."""


class WouldOverwrite(AdtError, exit_code=31):
    """`adt generate` would overwrite generated files that were edited, or files that adt did not write."""


class OutOfMemory(AdtError, exit_code=32):
    """This machine, or the device, has less memory than the work needs."""


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
