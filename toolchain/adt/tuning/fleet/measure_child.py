"""What kernels are given to compute with: the same numbers on every device, as bytes of whatever type."""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Any

from adt.host.child import serve
from adt.rpc.session import lost
from adt.tuning.candidates import Argument
from adt.tuning.fleet.measure_protocol import (
    SPEECH,
    Answer,
    Broken,
    Compute,
    Computed,
    Connect,
    Connected,
    Disconnect,
    Done,
    Measure,
    Prepare,
    Refused,
    Request,
    Timed,
)

UNWRITTEN = 0xFF
"""Each byte of an output before a kernel computes it: NaN, for floats."""


def size(argument: Argument) -> int:
    """Bytes of *argument*."""
    import tvm_ffi

    kind = tvm_ffi.dtype(argument.dtype)
    return (math.prod(argument.shape) * int(kind.bits) * int(kind.lanes) + 7) // 8


def made_up(argument: Argument, seed: int) -> bytes:
    """Numbers for *argument*: floats of [0, 1) and small integers, for which every kernel is defined.

    Wider integers are zero, for they may be indices, and so are types that numpy does not have.
    """
    import numpy as np

    random = np.random.default_rng(seed)
    data: np.ndarray[Any, Any]
    if argument.dtype in ("float16", "float32", "float64"):
        data = random.random(argument.shape, np.float32).astype(argument.dtype)
    elif argument.dtype == "bfloat16":  # the upper half of a float32
        data = (random.random(argument.shape, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    elif argument.dtype in ("int8", "uint8"):
        data = random.integers(1, 4, argument.shape, np.uint8)
    elif argument.dtype == "bool":
        data = random.integers(0, 2, argument.shape, np.uint8)
    else:
        return bytes(size(argument))
    return data.tobytes()


def unwritten(argument: Argument) -> bytes:
    """What an output holds before it is computed."""
    return bytes([UNWRITTEN]) * size(argument)


def on_device(argument: Argument, device: Any, data: bytes) -> Any:
    """*argument* as a tensor of *device* that holds *data*."""
    import tvm

    scope = None if argument.scope == "global" else argument.scope
    tensor = tvm.runtime.empty(argument.shape, argument.dtype, device, mem_scope=scope)
    kept = bytearray(data)
    tvm.get_global_func("runtime.TVMTensorCopyFromBytes")(tensor, _pointer(kept), len(kept))
    return tensor


def from_device(argument: Argument, tensor: Any) -> bytes:
    """What *tensor* holds."""
    import tvm

    kept = bytearray(size(argument))
    tvm.get_global_func("runtime.TVMTensorCopyToBytes")(tensor, _pointer(kept), len(kept))
    return bytes(kept)


def _pointer(kept: bytearray) -> Any:
    import ctypes

    return ctypes.cast((ctypes.c_char * len(kept)).from_buffer(kept), ctypes.c_void_p)


KEPT_BYTES = 256 << 20
"""Of arguments that are not used just now, on the device."""

Slot = tuple[Argument, int]
"""An argument, and the how manieth of its kind it is in the call."""


class Session:
    """One session with a server, and what lies on its device."""

    def __init__(self, asked: Connect) -> None:
        from tvm import rpc

        self._remote = rpc.connect(asked.host, asked.port, asked.match_key, session_timeout=asked.seconds)
        self._device = self._remote.device(asked.device, 0)
        self._kept: OrderedDict[Slot, Any] = OrderedDict()

    def describe(self) -> tuple[str, str]:
        """Name and driver of the device.

        Raises:
            LookupError: there is no such device.
        """
        if not self._device.exist:
            raise LookupError("the server has no such device")
        return self._attribute("device_name"), self._attribute("driver_version")

    def _attribute(self, name: str) -> str:
        try:
            return str(getattr(self._device, name) or "").strip()
        except Exception:  # a CPU has none, and some runtimes do not answer
            return ""

    def prepare(self, arguments: tuple[Argument, ...]) -> list[Any]:
        """The arguments as tensors of the device; those that were used before are there already."""
        count: Counter[Argument] = Counter()
        tensors: list[Any] = []
        for argument in arguments:
            slot = (argument, count[argument])
            count[argument] += 1
            if slot not in self._kept:
                self._kept[slot] = on_device(argument, self._device, made_up(argument, len(tensors)))
            self._kept.move_to_end(slot)
            tensors.append(self._kept[slot])
        while len(self._kept) > len(tensors) and sum(size(kept) for kept, _ in self._kept) > KEPT_BYTES:
            self._kept.popitem(last=False)
        return tensors

    def measure(self, asked: Measure) -> tuple[float, ...]:
        """Seconds of one call, for each repeat."""
        tensors = self.prepare(asked.arguments)
        timing = asked.timing
        with self._loaded(asked.name, asked.library) as module:
            evaluator = module.time_evaluator(
                "main",
                self._device,
                number=timing.number,
                repeat=timing.repeat,
                min_repeat_ms=timing.min_repeat_ms,
            )
            seconds = tuple(map(float, evaluator(*tensors).results))
            self._device.sync()
        if not seconds or not all(math.isfinite(one) and one > 0 for one in seconds):
            raise ValueError(f"the server gave no times: {seconds}")
        return seconds

    def compute(self, asked: Compute) -> tuple[bytes, ...]:
        """The outputs of one call with tensors that nothing has used before."""
        split = len(asked.arguments) - asked.outputs
        inputs, outputs = asked.arguments[:split], asked.arguments[split:]
        tensors = [on_device(one, self._device, made_up(one, seed)) for seed, one in enumerate(inputs)]
        tensors += [on_device(one, self._device, unwritten(one)) for one in outputs]
        with self._loaded(asked.name, asked.library) as module:
            module["main"](*tensors)
            self._device.sync()
        return tuple(map(from_device, outputs, tensors[split:]))

    @contextlib.contextmanager
    def _loaded(self, name: str, library: bytes) -> Iterator[Any]:
        """*library* on the server, as a module; its file goes with the block."""
        try:
            self._remote.upload(bytearray(library), target=name)
            yield self._remote.load_module(name)
        finally:
            with contextlib.suppress(Exception):  # the server may be gone, with all that was on it
                self._remote.remove(name)

    def alive(self) -> bool:
        """Whether the server still answers."""
        try:
            self._remote.get_function("runtime.RPCTimeEvaluator")
            return True
        except Exception:  # TVM's errors have many classes
            return False

    def close(self) -> None:
        """End the session now; references into it would keep it."""
        self._kept.clear()
        with contextlib.suppress(Exception):
            self._remote.get_function("CloseRPCConnection")()


class Handler:
    """Answers the worker."""

    def __init__(self) -> None:
        self._session: Session | None = None

    def __call__(self, asked: Request) -> Answer:
        try:
            return self._answer(asked)
        except Exception as why:  # TVM's errors have many classes
            said = _last_line(why)
            if isinstance(asked, Connect):
                self._close()
                return Refused(said)
            if lost(why) or self._session is None or not self._session.alive():
                self._close()
                return Broken(said)
            return Refused(said)

    def _answer(self, asked: Request) -> Answer:
        if isinstance(asked, Connect):
            self._close()
            self._session = Session(asked)
            return Connected(*self._session.describe())
        if isinstance(asked, Disconnect):
            self._close()
            return Done()
        if self._session is None:
            raise ConnectionError("there is no session")
        if isinstance(asked, Prepare):
            self._session.prepare(asked.arguments)
            return Done()
        if isinstance(asked, Compute):
            return Computed(self._session.compute(asked))
        return Timed(self._session.measure(asked))

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def _last_line(why: BaseException) -> str:
    lines = [line.strip() for line in str(why).splitlines() if line.strip()]
    return lines[-1] if lines else type(why).__name__


def main() -> None:
    """Measure until the worker goes."""
    os.environ["TVM_USE_RUNTIME_LIB"] = "1"  # no compiler: half the memory, and half the time to start
    serve(Handler(), speech=SPEECH)


if __name__ == "__main__":
    main()
