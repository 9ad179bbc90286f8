"""Needs of a virtual device on this machine: look, try, and say what to do when one is not met."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from adt.errors import EmulatorError, PackageError
from adt.host import process
from adt.host.elf import read_elf
from adt.virtual.abis import ARM64, Abi

QEMU_NAMES = ("qemu-aarch64-static", "qemu-aarch64")
INSTALL_QEMU = "sudo apt-get install qemu-user-static   (on Debian 13 and Ubuntu 25.04 or newer: qemu-user)"
WITHOUT_APT = "Use a Debian or Ubuntu machine, or give a file system of your own with --rootfs."
HOST_RULE = (
    "sudo apt-get install qemu-user-static binfmt-support   (registers qemu-aarch64 with the kernel, flag F)"
)


@dataclass(frozen=True)
class Prerequisite:
    """One thing that was looked at."""

    name: str
    ok: bool
    found: str
    """Description of what is there, or why it does not work."""
    remedy: str = ""
    """Command to run when it is not ok; empty otherwise."""


@dataclass(frozen=True)
class HostSupport:
    """Ways in which this machine can run a virtual device, or checks that stand in the way."""

    checks: tuple[Prerequisite, ...]
    mode: str
    """``userns``, ``userns+host-binfmt``, ``userns+native``, ``root+host-binfmt`` or
    ``root+native``; empty when it cannot."""
    qemu: Path | None
    """A static qemu-aarch64."""

    @property
    def emulator(self) -> Path | None:
        """The qemu that runs the device's programs; None when the processor does."""
        return None if self.mode.endswith("+native") else self.qemu

    @property
    def user_namespace(self) -> bool:
        """Return True if the device gets a user namespace."""
        return self.mode.startswith("userns")

    @property
    def interpreter(self) -> Path | None:
        """Return what to register in the device's own binfmt_misc; None when it has none."""
        return self.qemu if self.mode == "userns" else None


def find_qemu() -> tuple[Path | None, str]:
    """Find a static qemu-aarch64, which needs no loader, on PATH; say what was found on the way."""
    reason = ""
    for name in QEMU_NAMES:
        if program := process.which(name):
            path = Path(program).resolve()
            with contextlib.suppress(PackageError):
                if not read_elf(path).interpreter:
                    return path, str(path)
            reason = f"{path} is not statically linked; it cannot run inside the device's file system"
    return None, reason or f"neither {' nor '.join(QEMU_NAMES)} is on PATH"


def setting(path: str) -> str:
    """Read the text of a /proc/sys file, empty when there is none."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def namespace_remedy() -> str:
    """Return what lets user namespaces work here, as a command where one is known."""
    if setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
        return "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0   (Ubuntu 23.10 and newer)"
    if setting("/proc/sys/kernel/unprivileged_userns_clone") == "0":
        return "sudo sysctl -w kernel.unprivileged_userns_clone=1"
    if setting("/proc/sys/user/max_user_namespaces") == "0":
        return "sudo sysctl -w user.max_user_namespaces=15000"
    return (
        "Run adt as root, or allow user namespaces; in a container that takes "
        "`--security-opt seccomp=unconfined --security-opt systempaths=unconfined` (docker) or --privileged."
    )


def run_trial(mode: str, qemu: Path | None, machine: str) -> dict[str, str | None]:
    """Try namespaces, mounts and a program of *machine* in a process; return each step's failure."""
    done = process.run(
        [sys.executable, "-P", "-m", "adt.virtual.trial", mode, qemu or "-", machine],
        env=process.python_path(),
        timeout=60,
        error=EmulatorError,
        what="the trial of namespaces failed",
    )
    answer: dict[str, str | None] = json.loads(done.stdout)
    return answer


def survey(abi: Abi = ARM64) -> HostSupport:
    """Look at this machine and try whether it can run a device of *abi*."""
    if platform.system() != "Linux":
        found = platform.system() or "unknown"
        remedy = "Use a Linux machine (or a Linux virtual machine) for the virtual device."
        return HostSupport((Prerequisite("Linux", False, found, remedy),), "", None)
    native = abi.native
    if not native and abi is not ARM64:
        found = f"this machine is {platform.machine()}, and {abi.title} is not emulated"
        remedy = f"Use --abi {ARM64.name}, or an {abi.title} machine."
        return HostSupport((Prerequisite(f"{abi.title} programs", False, found, remedy),), "", None)
    qemu, qemu_found = (None, f"not needed: an {abi.title} machine") if native else find_qemu()
    checks = [Prerequisite("Linux", True, platform.release())]
    mode, namespaces, programs = choose_mode(native, qemu, abi)
    checks.append(namespaces)
    if abi is ARM64 or not native:  # else qemu is of no interest
        own_rule = not native and mode not in ("", "userns")
        ok = native or own_rule or qemu is not None
        found = f"{qemu_found}; the machine's own rule is used" if own_rule else qemu_found
        checks.append(Prerequisite("static qemu-aarch64", ok, found, "" if ok else INSTALL_QEMU))
    checks.append(programs)
    for program in ("apt-get", "dpkg-deb"):
        path = process.which(program)
        found = path or "not on PATH; only needed to make the default userland"
        checks.append(Prerequisite(program, path is not None, found, "" if path else WITHOUT_APT))
    return HostSupport(tuple(checks), mode, qemu)


def choose_mode(native: bool, qemu: Path | None, abi: Abi = ARM64) -> tuple[str, Prerequisite, Prerequisite]:
    """Choose the first way that works; return it with the states of namespaces and the ABI's programs."""
    names = ("user namespaces", f"{abi.title} programs")
    trial = run_trial("userns", qemu, abi.machine)
    isolation, found = "userns", "allowed"
    if problem := trial.get("namespaces") or trial.get("mounts"):
        isolation, found = "root", f"not allowed ({problem}); root's own namespaces are used"
        if os.geteuid() == 0:
            trial = run_trial("root", None, abi.machine)
        if problem := trial.get("namespaces") or trial.get("mounts"):
            unknown = Prerequisite(names[1], False, "not tried without namespaces")
            return "", Prerequisite(names[0], False, problem, namespace_remedy()), unknown
    user_namespaces = Prerequisite(names[0], True, found)
    if trial.get("program", "not tried") is not None:
        reason = trial.get("private_binfmt") or trial.get("program") or "not tried"
        remedy = HOST_RULE if qemu is not None or isolation == "root" else INSTALL_QEMU
        return "", user_namespaces, Prerequisite(names[1], False, reason, remedy)
    if native:
        mode, found = f"{isolation}+native", "this machine's own processor"
    elif isolation == "userns" and qemu is not None and trial.get("private_binfmt", "-") is None:
        mode, found = "userns", "qemu, registered for each device alone"
    else:
        mode, found = f"{isolation}+host-binfmt", "qemu, by the machine's binfmt rule"
    return mode, user_namespaces, Prerequisite(names[1], True, found)


def require(abi: Abi = ARM64) -> HostSupport:
    """Require that this machine can run a virtual device of *abi*; userlands need apt and dpkg, too."""
    support = survey(abi)
    failed = [check for check in support.checks if not check.ok]
    blocking = [check for check in failed if check.name not in ("apt-get", "dpkg-deb")]
    if support.mode and not blocking:
        return support
    failed = blocking or failed
    raise EmulatorError(
        "this machine cannot run the virtual device: "
        + "; ".join(f"{check.name}: {check.found}" for check in failed),
        remedy=" / ".join(dict.fromkeys(check.remedy for check in failed if check.remedy)),
    )
