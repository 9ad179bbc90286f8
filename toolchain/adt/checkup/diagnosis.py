"""Ask every question of the areas that were named, mend what can be mended, and ask again.

Steps of ``--fix`` are safe, and each is reported.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from adt.bundle.bundle import load_bundle
from adt.checkup import device, host, ndk, package, rpc
from adt.checkup.check import Action, Area, Check, Fix, Question, Scope, Status, answers
from adt.device import selection
from adt.device.selection import DeviceInfo
from adt.device.transport import adb
from adt.errors import AdtError, PackageError
from adt.host import cache, process
from adt.host.contained import contained_name
from adt.host.document import FLAT, in_document
from adt.virtual import emulator

SETTLE_SECONDS = 5.0
"""Seconds that reconnected devices may take to come back."""
INSTALL_SECONDS = 900.0
MENDING_ROUNDS = 3
"""One repair may uncover another: a server that was started may know of an offline device."""


@dataclass(frozen=True)
class Repair:
    fix: Fix = field(metadata=FLAT)
    done: bool
    said: str
    """Report of the step, or the reason why it was not taken and what to do instead."""


@dataclass(frozen=True)
class Diagnosis:
    checks: tuple[Check, ...]
    """As things are now: after the repairs, if there were any."""
    repairs: tuple[Repair, ...] = ()

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.status is Status.FAILED)

    @property
    @in_document()
    def passed(self) -> bool:
        return not self.failed

    @property
    @in_document()
    def counts(self) -> dict[str, int]:
        return {status.value: sum(check.status is status for check in self.checks) for status in Status}


AREAS: dict[Area, Callable[[Scope], Iterator[Question]]] = {
    Area.HOST: host.questions,
    Area.NDK: ndk.questions,
    Area.DEVICE: device.questions,
    Area.RPC: lambda _: rpc.questions(),
    Area.PACKAGE: package.questions,
}
"""In the order in which they are shown."""


def examine(scope: Scope) -> Iterator[Check]:
    """Yield each check of the areas that were named as it comes; never raises for what it meets."""
    for area in AREAS:
        if not scope.areas or area in scope.areas:
            yield from answers(area, Question(area.value, partial(_examine_area, area, scope)))


def _examine_area(area: Area, scope: Scope) -> Iterator[Check]:
    for question in AREAS[area](scope):
        yield from answers(area, question)


def diagnose(
    scope: Scope,
    *,
    fix: bool = False,
    on_check: Callable[[Check], None] = lambda _: None,
    on_repair: Callable[[Repair], None] = lambda _: None,
) -> Diagnosis:
    """Look; with *fix* mend what can be mended and, as long as something new was tried, look again."""
    repairs = dict[Fix, Repair]()
    last = MENDING_ROUNDS if fix else 0
    for mended in range(last + 1):
        checks = []
        for check in examine(scope):
            on_check(check)
            checks.append(check)
        fixes = [step for step in planned_repairs(checks) if step not in repairs]
        if not fixes or mended == last:
            break
        for step in fixes:
            repairs[step] = mend(step)
            on_repair(repairs[step])
    return Diagnosis(tuple(checks), tuple(repairs.values()))


def planned_repairs(checks: Iterable[Check]) -> list[Fix]:
    """Collect the fixes that *checks* offer, each once; packages are installed in one go."""
    fixes = list(dict.fromkeys(check.fix for check in checks if check.fix))
    packages = [fix for fix in fixes if fix.action is Action.INSTALL]
    if len(packages) < 2:
        return fixes
    names = dict.fromkeys(name for fix in packages for name in fix.arguments)
    return [*(fix for fix in fixes if fix not in packages), Fix(Action.INSTALL, tuple(names))]


def mend(fix: Fix) -> Repair:
    """Try one fix; never raises for what it meets."""
    try:
        return Repair(fix, *_STEPS[fix.action](fix.arguments))
    except AdtError as error:
        return Repair(fix, False, f"{error.what}; {error.remedy}")
    except Exception as bug:
        return Repair(fix, False, f"{type(bug).__name__}: {bug}")


def _start_server(_: tuple[str, ...]) -> tuple[bool, str]:
    started = adb.start_server()
    return True, f"started the adb server on port {adb.server_port()} with {started.label}"


def _reconnect(_: tuple[str, ...]) -> tuple[bool, str]:
    away = {device.serial for device in selection.listing() if device.state == "offline"}
    adb.query("host:reconnect-offline", doing="reconnecting offline devices")

    def back(devices: Sequence[DeviceInfo]) -> bool:
        away.difference_update(device.serial for device in devices if device.ready)
        return not away

    selection.listed_when(back, SETTLE_SECONDS)
    if away:
        return False, f"adb reconnect offline did not bring back {', '.join(sorted(away))}"
    return True, "reconnected the offline devices (adb reconnect offline)"


def _connect(serials: tuple[str, ...]) -> tuple[bool, str]:
    for serial in serials:
        selection.connect(serial)
    return True, f"connected adb to {', '.join(serials)}"


def _remove_records(names: tuple[str, ...]) -> tuple[bool, str]:
    emulator.listing()  # removes, under each device's lock, the records of those that do not run
    return True, f"removed the records of {', '.join(names)}; /data and the log stay"


def _below_cache(name: str) -> Path:
    """Return the absolute path of *name* in the cache; refuse one that leads out of it."""
    return cache.cache_dir() / contained_name(name)


def _drop_entry(names: tuple[str, ...]) -> tuple[bool, str]:
    sentences = []
    for name in names:
        path = _below_cache(name)
        with cache.lock(path, timeout=10):
            if cache.lookup(name):
                sentences.append(f"{name} has the right bytes and stays")
            else:
                shutil.rmtree(path)
                sentences.append(f"removed {name}, which was damaged")
    return True, "; ".join(sentences)


def _drop_bundle(names: tuple[str, ...]) -> tuple[bool, str]:
    sentences = []
    for name in names:
        path = _below_cache(f"bundles/{name}")
        with cache.lock(_below_cache(f"build/{name}"), timeout=10):  # what a build of it holds
            try:
                load_bundle(path)
                sentences.append(f"{name} is whole and stays")
            except PackageError:
                shutil.rmtree(path)
                sentences.append(f"removed {name}, which was damaged")
    return True, "; ".join(sentences)


def _drop_leftover(names: tuple[str, ...]) -> tuple[bool, str]:
    for path in map(_below_cache, names):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return True, f"removed {', '.join(names)}"


def _install(packages: tuple[str, ...]) -> tuple[bool, str]:
    command = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    line = " ".join(command)
    if os.geteuid() != 0:
        return False, f"needs root: sudo {line}"
    if shutil.which("apt-get") is None:
        return False, f"no apt-get on this machine: install {', '.join(packages)} its own way"
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    if process.run(command, env=env, timeout=INSTALL_SECONDS, check=False).returncode != 0:
        process.run(["apt-get", "update"], env=env, timeout=INSTALL_SECONDS, what="apt-get update failed")
        process.run(command, env=env, timeout=INSTALL_SECONDS, what=f"`{line}` failed")
    return True, f"installed {', '.join(packages)} ({line})"


_STEPS: dict[Action, Callable[[tuple[str, ...]], tuple[bool, str]]] = {
    Action.START_SERVER: _start_server,
    Action.RECONNECT_OFFLINE: _reconnect,
    Action.CONNECT: _connect,
    Action.REMOVE_RECORDS: _remove_records,
    Action.DROP_ENTRY: _drop_entry,
    Action.DROP_BUNDLE: _drop_bundle,
    Action.DROP_LEFTOVER: _drop_leftover,
    Action.INSTALL: _install,
}
