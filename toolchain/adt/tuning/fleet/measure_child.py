"""The process that measures for one worker, and its messages; it may hang or crash with its server.

Kernels compute with the same made-up numbers on every device.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from adt.compiler.passes.records.arguments import Argument, download, sample_data, unwritten_data, upload
from adt.errors import last_line
from adt.host.child import Speech, serve
from adt.rpc import relay
from adt.rpc.session import CONNECT_SECONDS, close, lost
from adt.rpc.wire import Target
from adt.tuning.candidates import Timing


@dataclass(frozen=True)
class Connect:
    """Open a session; one that is open is closed first. Answer: :class:`Connected` or :class:`Refused`."""

    server: Target
    seconds: int
    """After which the server ends the session, whatever runs in it."""
    device: str


@dataclass(frozen=True)
class Disconnect:
    """Close the session. Answer: :class:`Done`."""


@dataclass(frozen=True)
class Prepare:
    """Have *arguments* on the device. Answer: :class:`Done`, :class:`Refused` or :class:`Broken`."""

    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Measure:
    """Time a library's function ``main``, and call it once where its *outputs* are asked for.

    Answer: :class:`Timed`, :class:`Refused` or :class:`Broken`.
    """

    name: str
    """File name on the server; no other may have had it, for dlopen knows a library by its name."""
    library: bytes
    arguments: tuple[Argument, ...]
    timing: Timing
    outputs: int
    """Number of the last arguments whose contents are asked for."""


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
    """The library ran."""

    seconds: tuple[float, ...]
    """Duration of one call in each repeat."""
    outputs: tuple[bytes, ...] = ()
    """Contents as they lie in memory, computed from the same inputs everywhere."""


@dataclass(frozen=True)
class Refused:
    """It failed, and the session is as good as before."""

    message: str


@dataclass(frozen=True)
class Broken:
    """The session is over: the server, or the way to it, is gone."""

    message: str


Request = Connect | Disconnect | Prepare | Measure
Answer = Connected | Done | Timed | Refused | Broken
SPEECH = Speech(Request, Answer)


CACHED_BYTES = 256 << 20
"""Limit of arguments that the device keeps while they are not in use."""

Slot = tuple[Argument, int]
"""An argument, and how many equal ones come before it in the call."""


class Session:
    """One session with a server, and what lies on its device."""

    def __init__(self, request: Connect) -> None:
        server, limit = request.server, request.seconds
        self._remote, self._relay = relay.connect(
            server.host, server.port, server.match_key, limit=limit, seconds=CONNECT_SECONDS
        )
        self._device = self._remote.device(request.device, 0)
        self._tensors: OrderedDict[Slot, Any] = OrderedDict()

    def describe(self) -> tuple[str, str]:
        """Return name and driver of the device."""
        if not self._device.exist:
            raise LookupError("the server has no such device")
        return self._attribute("device_name"), self._attribute("driver_version")

    def _attribute(self, name: str) -> str:
        try:
            return str(getattr(self._device, name) or "").strip()
        except Exception:  # a CPU has none, and some runtimes do not answer
            return ""

    def prepare(self, arguments: tuple[Argument, ...]) -> list[Any]:
        """Upload the arguments to the device; those that were used before are there already."""
        count: Counter[Argument] = Counter()
        tensors: list[Any] = []
        for argument in arguments:
            slot = (argument, count[argument])
            count[argument] += 1
            if slot not in self._tensors:
                self._tensors[slot] = upload(argument, self._device, sample_data(argument, len(tensors)))
            self._tensors.move_to_end(slot)
            tensors.append(self._tensors[slot])
        kept = sum(argument.size for argument, _ in self._tensors)
        while len(self._tensors) > len(tensors) and kept > CACHED_BYTES:
            (argument, _), _ = self._tensors.popitem(last=False)
            kept -= argument.size
        return tensors

    def measure(self, request: Measure) -> Timed:
        """Measure the seconds of one call, for each repeat, and compute the outputs that are asked for."""
        tensors = self.prepare(request.arguments)
        timing = request.timing
        with self._loaded(request.name, request.library) as module:
            once = module.time_evaluator("main", self._device, number=1, repeat=1)
            evaluator = module.time_evaluator(
                "main",
                self._device,
                number=timing.number,
                repeat=timing.repeats_of(float(once(*tensors).results[0])),
                min_repeat_ms=timing.min_repeat_ms,
            )
            seconds = tuple(map(float, evaluator(*tensors).results))
            self._device.sync()
            if not seconds or not all(math.isfinite(value) and value > 0 for value in seconds):
                raise ValueError(f"the server gave no times: {seconds}")
            return Timed(seconds, self._compute(module, request) if request.outputs else ())

    def _compute(self, module: Any, request: Measure) -> tuple[bytes, ...]:
        """Compute the outputs of one call with tensors that nothing has used before."""
        split = len(request.arguments) - request.outputs
        outputs = request.arguments[split:]
        tensors = []
        for place, argument in enumerate(request.arguments):  # one at a time in this machine's memory
            data = sample_data(argument, place) if place < split else unwritten_data(argument)
            tensors.append(upload(argument, self._device, data))
        module["main"](*tensors)
        self._device.sync()
        return tuple(map(download, outputs, tensors[split:]))

    @contextlib.contextmanager
    def _loaded(self, name: str, library: bytes) -> Iterator[Any]:
        """Load *library* on the server as a module; its file goes with the block."""
        try:
            self._remote.upload(bytearray(library), target=name)
            yield self._remote.load_module(name)
        finally:
            with contextlib.suppress(Exception):  # the server may be gone, with all that was on it
                self._remote.remove(name)

    def alive(self) -> bool:
        """Return True if the server answers."""
        try:
            self._remote.get_function("runtime.RPCTimeEvaluator")
            return True
        except Exception:  # TVM's errors have many classes
            return False

    def close(self) -> None:
        """End the session now; references into it would keep it."""
        self._tensors.clear()
        close(self._remote)
        self._relay.close()


class Handler:
    """Answers the worker."""

    def __init__(self) -> None:
        self._session: Session | None = None

    def __call__(self, request: Request) -> Answer:
        try:
            return self._answer(request)
        except Exception as error:  # TVM's errors have many classes
            message = last_line(error)
            connects = isinstance(request, Connect)
            if not connects and self._session and not lost(error) and self._session.alive():
                return Refused(message)
            self._close()
            return Refused(message) if connects else Broken(message)

    def _answer(self, request: Request) -> Answer:
        if isinstance(request, Connect | Disconnect):
            self._close()
        if isinstance(request, Disconnect):
            return Done()
        if isinstance(request, Connect):
            self._session = Session(request)
            return Connected(*self._session.describe())
        if self._session is None:
            raise ConnectionError("there is no session")
        if isinstance(request, Measure):
            return self._session.measure(request)
        self._session.prepare(request.arguments)
        return Done()

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


if __name__ == "__main__":
    os.environ["TVM_USE_RUNTIME_LIB"] = "1"  # no compiler: half the memory, and half the time to start
    serve(Handler(), speech=SPEECH)
