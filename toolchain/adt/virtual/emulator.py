"""Start, stop and list virtual devices.

Connecting an adb server to one (`adb connect SERIAL`) is the caller's.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from adt.errors import ConfigError, EmulatorError
from adt.host import cache, manifest, process
from adt.host.disk import disk_errors
from adt.host.messages import COMMIT, BadMessage, encode, receive, send
from adt.virtual import abis, init, prerequisites, state
from adt.virtual.init import Boot
from adt.virtual.rootfs import check_readable, check_rootfs
from adt.virtual.userland import ensure_userland, userland_name

log = logging.getLogger("adt.virtual")

SIZE = re.compile(r"[1-9][0-9]*[kmg]?", re.I)


@dataclass(frozen=True)
class EmulatorInfo:
    """One virtual device."""

    name: str
    serial: str
    """Serial in adb, ``127.0.0.1:PORT``."""
    port: int
    pid: int
    """PID 1 of the device, as this machine counts."""
    abi: str
    """``arm64-v8a`` or ``x86_64``, as in its properties; with the default userland it is not Android."""
    mode: str
    """Form of isolation, and of running arm64 programs: see `prerequisites.HostSupport.mode`."""
    log: Path
    root: Path
    """The userland it shows read-only at ``/``."""
    running: bool = True


def info(record: state.EmulatorRecord, home: state.Home) -> EmulatorInfo:
    """Return what callers see of the record of a device that runs."""
    return EmulatorInfo(
        name=record.name,
        serial=f"{LOOPBACK}:{record.port}",
        port=record.port,
        pid=record.pid,
        abi=record.abi,
        mode=record.mode,
        log=home.log,
        root=Path(record.userland),
    )


def start(
    name: str = "default",
    *,
    port: int | None = None,
    rootfs: Path | None = None,
    data_size: str | None = None,
    abi: str | None = None,
    opencl: bool = False,
    program: Path = Path(init.__file__),
) -> EmulatorInfo:
    """Start the virtual device *name*, or return it when it already runs.

    Args:
        port: TCP port on 127.0.0.1; None for a free one.
        rootfs: an own tree (with system/bin/sh, or itself the system tree) in place of the default userland.
        data_size: gives /data a tmpfs of this size (``64m``, ``1g``), gone at the stop;
            None for a directory that stays from start to start.
        abi: ``arm64-v8a``, or ``x86_64`` on such a machine, without emulation; None for that of *rootfs*, or
            arm64.
        program: the Python program that becomes PID 1: one that calls :func:`init.launch`.
    """
    home = state.home(name)
    if data_size is not None and not SIZE.fullmatch(data_size):
        remedy = "Write bytes with k, m or g behind the number, such as 64m."
        raise ConfigError(f"{data_size!r} is not a size", remedy=remedy)
    if port is not None and not 0 < port < 65536:
        raise ConfigError(f"{port} is not a TCP port", remedy="Use 1 to 65535, or none for a free one.")
    if opencl and rootfs is not None:
        raise ConfigError(
            "--opencl adds to the default userland, and --rootfs replaces it",
            remedy="Leave one of them away.",
        )
    requested_abi = None if abi is None else abis.named(abi)
    with cache.lock(home.directory):
        if record := state.read(home):
            requested = (port, data_size, abi, None if rootfs is None else str(rootfs.expanduser().resolve()))
            actual = (record.port, record.data_size, record.abi, record.userland)
            if any(value not in (None, has) for value, has in zip(requested, actual, strict=True)) or (
                opencl and userland_name(abis.named(record.abi), opencl=True) not in record.userland
            ):
                log.warning("it keeps its settings; `adt emulator stop %s` first to change them", name)
            return info(record, home)
        if rootfs is not None:
            tree, device_abi = check_rootfs(rootfs, requested_abi)
            support = prerequisites.require(device_abi)
        else:
            device_abi = requested_abi or abis.ARM64
            support = prerequisites.require(device_abi)
            tree = ensure_userland(support.emulator, device_abi, opencl=opencl)
        if support.user_namespace and os.geteuid() == 0:
            check_readable(tree)
        with disk_errors(f"preparing virtual device {name}", home.directory):
            home.data.mkdir(parents=True, exist_ok=True)
            home.directory.chmod(0o700)  # a program in data may carry the bit to run as its owner
        _check_executable(tree, "ADT_CACHE_DIR")
        if data_size is None:
            _check_executable(home.data, "XDG_STATE_HOME")
        with listen(port) as listening:
            boot = Boot(
                name=name,
                userland=str(tree),
                abi=device_abi.name,
                data=str(home.data),
                data_size=data_size or "",
                listening=listening.fileno(),
                log=str(home.log),
                user_namespace=support.user_namespace,
                interpreter=str(support.interpreter or ""),
                debug=log.isEnabledFor(logging.DEBUG),
            )
            record = boot_up(boot, program, listening, home, support.mode)
    return info(record, home)


def stop(name: str = "default") -> EmulatorInfo:
    """Stop the virtual device *name* and every process in it; its log and /data stay."""
    home = state.home(name)
    with cache.lock(home.directory):
        record = state.read(home)
        if record is None:
            raise EmulatorError(
                f"no virtual device {name!r} is running",
                remedy="See `adt emulator list`; start one with `adt emulator start`.",
            )
        if not process.end(record.pid, record.start_time, grace=5.0):  # killed, it takes everything along
            raise EmulatorError(
                f"virtual device {name} (pid {record.pid}) does not end",
                remedy=f"Look at {home.log}; as its user or root, `kill -9 {record.pid}` ends all of it.",
            )
        home.record.unlink(missing_ok=True)
    return dataclasses.replace(info(record, home), running=False)


def listing() -> tuple[EmulatorInfo, ...]:
    """List every virtual device that runs, by name; remove records of dead ones, with a notice."""
    emulators = []
    for home in state.homes():
        if home.record.is_file():
            with cache.lock(home.directory):
                if record := state.read(home):
                    emulators.append(info(record, home))
    return tuple(emulators)


def _check_executable(directory: Path, variable: str) -> None:
    if os.statvfs(directory).f_flag & os.ST_NOEXEC:
        raise EmulatorError(
            f"{directory} is on a file system mounted noexec: no program of a virtual device can run there",
            remedy=f"Set {variable} to a directory on another file system.",
        )


LOOPBACK = "127.0.0.1"


def listen(port: int | None) -> socket.socket:
    """Open a socket that listens on the loopback address only, before the device's own network exists."""
    try:
        return socket.create_server((LOOPBACK, port or 0), backlog=16)
    except OSError as error:
        raise EmulatorError(
            f"cannot listen on {LOOPBACK}:{port or 0}: {os.strerror(error.errno or 0)}",
            remedy="Choose another --port, or leave it away for a free one.",
        ) from error


def boot_up(
    boot: Boot, program: Path, listening: socket.socket, home: state.Home, mode: str
) -> state.EmulatorRecord:
    """Launch PID 1, wait until the device takes connections, and record it.

    Nothing stays behind without that: PID 1 ends when its standard input does before it was told ``commit``.
    """
    with home.log.open("a") as file:
        offset = file.tell()
        if offset > 4 << 20:  # then a new log begins
            offset = file.truncate(0)
        launcher = process.start(
            ["env", "-i", *_environment(), sys.executable, "-P", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file.fileno(),
            pass_fds=(boot.listening,),
        )
    pid, start_time, ready, committed = 0, None, False, False
    try:
        assert launcher.stdin and launcher.stdout
        send(launcher.stdin.fileno(), encode(dataclasses.asdict(boot)))
        deadline = time.monotonic() + 60.0
        while not (ready and pid):
            try:
                message = receive(launcher.stdout.fileno(), deadline)
            except (OSError, EOFError, BadMessage) as error:
                raise _failed("it ended, or did not answer in time", home, offset) from error
            if "error" in message:
                raise _failed(message["error"], home, offset)
            if "pid" in message:
                pid, start_time = message["pid"], process.start_time(message["pid"])
            ready |= "ready" in message
        if start_time is None:
            raise _failed("it ended at once", home, offset)
        record = state.EmulatorRecord(
            schema=state.SCHEMA,
            schema_version=1,
            name=boot.name,
            port=listening.getsockname()[1],
            pid=pid,
            start_time=start_time,
            boot=process.boot_id(),
            mode=mode,
            userland=boot.userland,
            data_size=boot.data_size,
            abi=boot.abi,
        )
        manifest.write(record, home.record)
        send(launcher.stdin.fileno(), encode(COMMIT))
        committed = True
        return record
    except BrokenPipeError as error:
        raise _failed("it ended", home, offset) from error
    finally:
        if not committed:
            home.record.unlink(missing_ok=True)
            process.kill_group(launcher)
            if pid:
                process.end(pid, start_time, grace=1.0)
        for pipe in filter(None, (launcher.stdin, launcher.stdout)):
            pipe.close()
        launcher.wait()


def _environment() -> list[str]:
    """Build the launcher's environment: programs on the device can read PID 1's, so it holds no secrets."""
    passed_on = {key: os.environ.get(key) for key in ("LD_LIBRARY_PATH", "PYTHONHOME")}
    return [f"{key}={value}" for key, value in {**process.python_path(), **passed_on}.items() if value]


def _failed(reason: str, home: state.Home, offset: int) -> EmulatorError:
    lines = home.log.read_bytes()[offset:].decode(errors="replace").splitlines()
    return EmulatorError(
        f"virtual device {home.name} did not come up: {reason}",
        remedy=f"Look at {home.log}; `adt doctor` shows what this machine lacks.",
        details="\n".join(lines[-20:]),
    )
