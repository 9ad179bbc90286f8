"""Messages between a worker and its measuring process (:mod:`adt.tuning.fleet.measure_child`)."""

from __future__ import annotations

from dataclasses import dataclass

from adt.compiler.passes.records.arguments import Argument
from adt.host.child import Speech
from adt.tuning.candidates import Timing


@dataclass(frozen=True)
class Connect:
    """Open a session; one that is open is closed first. Answer: :class:`Connected` or :class:`Refused`."""

    host: str
    port: int
    match_key: str
    """Match key that the server expects of its client."""
    seconds: int
    """After which the server ends the session, whatever runs in it."""
    device: str
    """``cpu``, ``opencl`` or ``cuda``."""


@dataclass(frozen=True)
class Disconnect:
    """Close the session. Answer: :class:`Done`."""


@dataclass(frozen=True)
class Prepare:
    """Have *arguments* on the device. Answer: :class:`Done`, :class:`Refused` or :class:`Broken`."""

    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Measure:
    """Time a library's function ``main``. Answer: :class:`Timed`, :class:`Refused` or :class:`Broken`."""

    name: str
    """File name on the server; no other may have had it, for dlopen knows a library by its name."""
    library: bytes
    arguments: tuple[Argument, ...]
    timing: Timing


@dataclass(frozen=True)
class Compute:
    """Call a library's ``main`` once. Answer: :class:`Computed`, :class:`Refused` or :class:`Broken`."""

    name: str
    """See :class:`Measure`."""
    library: bytes
    arguments: tuple[Argument, ...]
    outputs: int
    """Number of the last arguments that are outputs."""


@dataclass(frozen=True)
class Connected:
    """There is a session, and the device exists."""

    device: str
    """Its name and driver, as the runtime there tells them; empty where it does not."""
    driver: str


@dataclass(frozen=True)
class Done:
    """It is."""


@dataclass(frozen=True)
class Timed:
    """Duration of one call in seconds, for each repeat."""

    seconds: tuple[float, ...]


@dataclass(frozen=True)
class Computed:
    """Contents of the outputs as they lie in memory, computed from the same inputs everywhere."""

    outputs: tuple[bytes, ...]


@dataclass(frozen=True)
class Refused:
    """It failed, and the session is as good as before."""

    message: str


@dataclass(frozen=True)
class Broken:
    """The session is over: the server, or the way to it, is gone."""

    message: str


Request = Connect | Disconnect | Prepare | Measure | Compute
Answer = Connected | Done | Timed | Computed | Refused | Broken
SPEECH = Speech(Request, Answer)
