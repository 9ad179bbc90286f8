"""Listing of devices, the choice of one or several, and work on several at once.

One device that fails does not stop the others. Each device has a thread. Ctrl-C sets an event that ends every
operation under way on any of them (see :func:`adt.device.transport.deadline.cancel_on`); each thread then
cleans up as it would alone, and all of them are waited for.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from shlex import quote
from typing import Any, Generic, TypeVar

from adt.device.device import Device
from adt.device.transport import adb
from adt.device.transport.deadline import Cancelled, cancel_on
from adt.errors import AdtError, AmbiguousDevice, ConfigError, DeviceError, NoDevice
from adt.host.document import FLAT, aligned, form
from adt.host.transfers import silence

log = logging.getLogger("adt.device")

SETTLE_SECONDS = 5.0
"""Seconds that we wait for a device that is just connecting."""

RECONNECT_SECONDS = 5.0
"""Budget for connecting a virtual device again."""
HANDSHAKE_SECONDS = 3.0
"""Seconds for which a device that was just connected may be offline."""
FORGET_SECONDS = 2.0
"""Limit for the adb server to drop a disconnected device from its listing, which takes milliseconds."""
RECONNECT_PAUSES = (0.0, 0.3, 1.0)
"""Seconds before each attempt to connect a local device again."""

ADVICE = (
    "Plug a phone in and turn on USB debugging (Settings, Developer options), `adt adb -- connect HOST:PORT` "
    "for one on the network, or `adt emulator start` for a virtual one."
)
"""Remedy where no device is connected."""
_HOST_PORT = re.compile(r"(?P<host>[\w.-]+|\[[0-9A-Fa-f:.]+(%[\w.-]+)?\]):(?P<port>[0-9]{1,5})")
_LINES = tuple(
    re.compile(rf"(?P<serial>.{{22,}}?|\S+)\s+(?P<state>{state})(?P<rest>\s.*)?$")
    for state in ("|".join(adb.STATES), r"\S+")
)
"""Lines of ``host:devices-l`` in a known state, and in another: adb pads a serial, which may have blanks, to
22 columns, and one blank follows."""
_KEYS = re.compile(r"\s(usb|product|model|device|features|transport_id):(\S+)")


@dataclass(frozen=True)
class DeviceInfo:
    """One line of the adb server's list."""

    serial: str
    state: str
    """``device`` when it is usable, else ``offline``, ``unauthorized``, …"""
    model: str
    product: str
    transport: str
    """``usb``, ``tcp`` or ``emulator``."""

    @property
    def ready(self) -> bool:
        return self.state == adb.READY


def is_address(serial: str) -> bool:
    """Return True if *serial* is a HOST:PORT that adb reaches over the network."""
    return _HOST_PORT.fullmatch(serial) is not None


def parse_listing(text: str) -> tuple[DeviceInfo, ...]:
    """Read the answer to ``host:devices-l``: serial, state (both may have blanks), then key:value pairs."""
    devices = []
    for line in text.splitlines():
        match = _LINES[0].match(line) or _LINES[1].match(line)
        if match is None:
            continue
        serial, state = match["serial"].rstrip(), match["state"]
        keys = dict(_KEYS.findall(match["rest"] or ""))
        model, product = keys.get("model", ""), keys.get("product", "")
        transport = "tcp" if is_address(serial) or "._adb" in serial else "usb"
        transport = "emulator" if serial.startswith("emulator-") else transport
        devices.append(DeviceInfo(serial, state, model, product, transport))
    return tuple(devices)


def listing() -> tuple[DeviceInfo, ...]:
    """List every device that the adb server knows, usable or not; start the server when needed."""
    return parse_listing(adb.query("host:devices-l", doing="listing devices"))


def reachable() -> tuple[DeviceInfo, ...]:
    """List the devices; connect the virtual ones that run here again when the server knows none of them.

    That is so after a restart of the server, which finds phones by itself and these not.
    """
    from adt.virtual import state

    devices = listing()
    records = [record for home in state.homes() if (record := state.read(home))]
    serials = [f"127.0.0.1:{record.port}" for record in records]
    if not serials or any(device.serial in serials for device in devices):
        return devices
    return _connect_again(serials)


def table(devices: Sequence[DeviceInfo]) -> str:
    rows = [(d.serial, d.state, d.model or "-", d.transport) for d in devices]
    return "\n".join(aligned([("SERIAL", "STATE", "MODEL", "TRANSPORT"), *rows]))


def choose(devices: Sequence[DeviceInfo], serial: str, *, origin: str) -> DeviceInfo:
    """Return the device with *serial*, which *origin* gave, or the only usable one if that is empty.

    NoDevice if there is none, AmbiguousDevice if several are usable and none was named.
    """
    if serial:
        for device in devices:
            if device.serial == serial:
                if not device.ready:
                    raise adb.not_ready(device.serial, device.state)
                return device
        near = difflib.get_close_matches(serial, [d.serial for d in devices], n=1, cutoff=0.6)
        hint = f"Did you mean {near[0]}? " if near else ""
        reach = f"`adt adb -- connect {serial}`, or " if is_address(serial) else ""
        listed = "`adt devices` lists those that are connected; " if devices else "Connect it; "
        raise NoDevice(
            f"no device has the serial {serial} ({origin})",
            remedy=f"{hint}{reach}{listed}`adt emulator start` makes a virtual one.",
            details=table(devices) if devices else "No device is connected.",
        )
    usable = [device for device in devices if device.ready]
    if len(usable) == 1:
        for other in devices:
            if not other.ready:
                log.warning("passing over %s: %s", other.serial, other.state)
        return usable[0]
    if usable:
        raise AmbiguousDevice(
            f"{len(usable)} devices are connected and none was chosen",
            remedy=f"Name one: --serial {quote(usable[0].serial)}, or set ANDROID_SERIAL.",
            details=table(devices),
        )
    if devices:
        first = adb.not_ready(devices[0].serial, devices[0].state)
        if len(devices) > 1:
            first.details = table(devices)
        raise first
    raise NoDevice("no device is connected", remedy=ADVICE)


def select(serial: str | None = None) -> Device:
    """Select the device to work with: *serial* > ANDROID_SERIAL > the only usable one.

    A virtual device (HOST:PORT on this machine) that was named but is offline, or that the server does not
    know since it or the device started anew, is connected again first.
    """
    origin = "--serial" if serial else "ANDROID_SERIAL"
    named = serial or os.environ.get("ANDROID_SERIAL") or ""
    devices = listing() if named else reachable()
    for pause in RECONNECT_PAUSES:
        offline = {d.serial for d in devices if d.state == "offline" and named in ("", d.serial)}
        # once more only for what vanished: the server was still forgetting the old connection
        stale = (set() if pause else offline) | ({named} - {"", *(d.serial for d in devices)})
        local = [at for at in stale if is_address(at) and at.rpartition(":")[0] in adb.LOOPBACK]
        addresses = [] if not named and any(d.ready for d in devices) else local
        if not addresses:
            break
        time.sleep(pause)
        for address in addresses:
            disconnect(address)  # the server takes an offline device for connected
        devices = _connect_again(addresses)

    def settled(devices: Sequence[DeviceInfo]) -> bool:
        return not any(d.state in adb.SETTLING and named in ("", d.serial) for d in devices)

    if not settled(devices):
        devices = listed_when(settled, SETTLE_SECONDS)
    return Device(choose(devices, named, origin=origin).serial)


def listed_when(holds: Callable[[Sequence[DeviceInfo]], bool], seconds: float) -> tuple[DeviceInfo, ...]:
    """List the devices again and again until *holds* is true of them, for *seconds* at most."""
    end = time.monotonic() + seconds
    while not holds(devices := listing()) and time.monotonic() < end:
        time.sleep(0.05)
    return devices


def _connect_again(addresses: Sequence[str]) -> tuple[DeviceInfo, ...]:
    """Connect *addresses* and return the listing once they have shaken hands; until then they are offline."""
    for address in addresses:
        try:
            connect(address, seconds=RECONNECT_SECONDS)
        except (NoDevice, DeviceError) as error:
            log.debug("%s", error)

    def connected(devices: Sequence[DeviceInfo]) -> bool:
        return not any(d.serial in addresses and d.state == "offline" for d in devices)

    return listed_when(connected, HANDSHAKE_SECONDS)


def connect(serial: str, *, seconds: float | None = None) -> str:
    """Connect the adb server to the device at HOST:PORT and return its serial.

    NoDevice if nothing answers there: adb reports that only in the text of a successful answer.
    """
    if not is_address(serial):
        raise NoDevice(f"{serial} is not HOST:PORT", remedy="Give an address such as 192.168.1.20:5555.")
    answer = adb.query(f"host:connect:{serial}", doing=f"connecting to {serial}", seconds=seconds).strip()
    if not re.match(r"(already )?connected to ", answer):
        raise NoDevice(
            f"cannot connect to {serial}: {answer or 'no answer'}",
            remedy="Check the address, that the device is in this network and that wireless debugging is "
            "on (`adt adb -- tcpip 5555` over USB, or `adt adb -- pair`); `adt emulator list` shows "
            "virtual devices.",
        )
    return serial


def disconnect(serial: str) -> None:
    """Make the adb server, if one runs, forget the device at HOST:PORT; no error when it did not know it."""
    if not adb.server_listens():
        return
    try:
        adb.query(f"host:disconnect:{serial}", doing=f"disconnecting {serial}")
        listed_when(lambda devices: serial not in {d.serial for d in devices}, FORGET_SECONDS)
    except (NoDevice, DeviceError) as error:
        log.debug("disconnect %s: %s", serial, error)


WORKERS = 8
"""Devices that are worked on at once; the others wait for their turn."""
POLL = 0.2
"""Seconds between two looks for ctrl-C."""

T = TypeVar("T")
Say = Callable[[str], None]
"""Told by the work what it is doing now, in a few words."""


@dataclass(frozen=True)
class Event:
    serial: str
    text: str
    """Description of its work, in a few words; of its end when *done*."""
    done: bool = False
    failed: bool = False
    silent: float = 0.0
    """Seconds for which it has been silent, when *text* says so."""


def _error_fields(error: AdtError | None) -> dict[str, Any]:
    if error is None:
        return {"error": None}
    name = type(error).__name__
    return {"error": name, "exit_code": error.exit_code, "what": error.what, "remedy": error.remedy}


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """Outcome of the work on one device: a value or an error."""

    serial: str
    seconds: float
    value: T | None = field(default=None, metadata=FLAT)
    error: AdtError | None = field(default=None, metadata=form(convert=_error_fields, flat=True))


@dataclass(frozen=True)
class Outcomes(Generic[T]):
    """Outcomes of the work on all devices, in the order in which they were named."""

    all: tuple[Outcome[T], ...]

    @property
    def failed(self) -> tuple[Outcome[T], ...]:
        return tuple(outcome for outcome in self.all if outcome.error is not None)

    @property
    def exit_code(self) -> int:
        """0, or the code of the first one that failed."""
        return next((outcome.error.exit_code for outcome in self.all if outcome.error is not None), 0)


def _split(serials: str) -> tuple[str, ...]:
    """Split a list with commas, in which the serial of a connected device may have commas itself."""
    devices = listing() if "," in serials and adb.server_listens() else ()
    known = sorted((device.serial for device in devices if "," in device.serial), key=len, reverse=True)
    choices = "|".join([*map(re.escape, known), "[^,]+"])
    parts = re.findall(rf"(?:^|(?<=,))\s*({choices})\s*(?=,|$)", serials)
    return tuple(part.strip() for part in parts if part.strip())


def named_serials(serials: str | None, *, everyone: bool) -> tuple[str, ...]:
    """Return the serials that ``--serial a,b`` or ``--all`` mean; empty for the usual device."""
    named = _split(serials or "")
    if everyone and named:
        raise ConfigError("--serial and --all contradict each other", remedy="Give one of them.")
    if len(set(named)) < len(named):
        raise ConfigError(f"--serial {serials} names a device twice", remedy="Name each device once.")
    if not everyone:
        return named
    devices = reachable()
    if not devices:
        choose(devices, "", origin="--all")  # raises: there is none
    return tuple(device.serial for device in devices)


def for_each(
    serials: Sequence[str],
    work: Callable[[Device, Say], T],
    *,
    opened: Callable[[str], Device],
    on_event: Callable[[Event], None],
) -> Outcomes[T]:
    """Do *work* on every device of *serials*, at most WORKERS at a time.

    *work* gets the device and a function to report its progress; *on_event* is called in the caller's thread.
    KeyboardInterrupt, and a bug in *work*, are raised once all threads have ended.
    """
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    cancel = threading.Event()
    # A thread whose start is interrupted is not waited for: so none does anything before all are started.
    started = threading.Event()

    def work_on(serial: str) -> Outcome[T]:
        began = time.monotonic()
        value: T | None = None
        error: AdtError | None = None

        def say(text: str) -> None:
            if cancel.is_set():
                raise Cancelled(f"work on {serial} was cancelled", remedy="Run the same command again.")
            events.put(Event(serial, text))

        def quiet(text: str, seconds: float) -> None:
            events.put(Event(serial, text, silent=seconds))

        started.wait()
        silence.set(quiet)
        try:
            with cancel_on(cancel):
                say("connecting")
                value = work(opened(serial), say)
        except AdtError as failure:
            error = failure
        except BaseException as bug:
            events.put(Event(serial, f"{type(bug).__name__}: {bug}", done=True, failed=True))
            raise
        events.put(Event(serial, error.what if error else "done", done=True, failed=error is not None))
        return Outcome(serial, time.monotonic() - began, value, error)

    pool = ThreadPoolExecutor(max_workers=max(1, min(WORKERS, len(serials))), thread_name_prefix="adt-device")
    try:
        futures = [pool.submit(work_on, serial) for serial in serials]
        started.set()
        left = len(futures)
        while left:
            with contextlib.suppress(queue.Empty):
                event = events.get(timeout=POLL)
                left -= event.done
                on_event(event)
    finally:
        cancel.set()  # of no effect when all are done
        started.set()
        pool.shutdown(wait=True, cancel_futures=True)
    return Outcomes(tuple(future.result() for future in futures))
