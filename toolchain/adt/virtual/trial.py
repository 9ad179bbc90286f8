"""Try, in a throw-away process, whether this machine can run a device's programs in namespaces.

Run as ``python -m adt.virtual.trial MODE QEMU MACHINE``; MODE is ``userns`` or
``root``, QEMU a static interpreter or ``-``, MACHINE the programs' processor.
(Without a user namespace a binfmt rule would be the whole machine's, so ``root``
never registers one.) Prints one JSON object; a value is null for "works" or the
reason. Trying tells more than any list of versions and settings: kernels, security
modules and containers all have a say.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import tempfile
from pathlib import Path

from adt.virtual import namespaces

EXIT_CODE = 42
PROGRAMS = {
    # mov x0, #42; mov x8, #93 (exit); svc #0
    "aarch64": (183, struct.pack("<III", 0xD2800540, 0xD2800BA8, 0xD4000001)),
    # mov edi, 42; mov eax, 60 (exit); syscall
    "x86_64": (62, b"\xbf\x2a\x00\x00\x00\xb8\x3c\x00\x00\x00\x0f\x05"),
}
"""ELF machine and code of a program that ends with EXIT_CODE."""
BASE = 0x400000


def program(machine: str) -> bytes:
    """A complete Linux executable whose only act is to exit with 42."""
    number, code = PROGRAMS[machine]
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        b"\x7fELF\x02\x01\x01",  # 64 bit, little endian
        2,  # executable
        number,
        1,
        BASE + 120,  # entry: behind this header (64) and the program header (56)
        64,
        0,
        0,
        64,
        56,
        1,
        0,
        0,
        0,
    )
    size = 120 + len(code)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, BASE, BASE, size, size, 0x1000)
    return header + segment + code


def note(result: dict[str, str | None], key: str, error: OSError | None) -> bool:
    """Note how *key* went; True when it worked."""
    result[key] = str(error) if error else None
    return error is None


def inside(mount_point: Path, qemu: str, machine: str) -> dict[str, str | None]:
    """What PID 1 of the new namespaces finds: mounts, own binfmt_misc, a program in the new root."""
    result: dict[str, str | None] = {}
    try:
        namespaces.enter_new_root(mount_point, "mode=0755")
        mount_point = Path()
        for directory in ("proc", "dev/pts"):
            (mount_point / directory).mkdir(parents=True)
        namespaces.mount("proc", mount_point / "proc", "proc")
        options = "newinstance,ptmxmode=0666,mode=0620"
        namespaces.mount("devpts", mount_point / "dev/pts", "devpts", 0, options)
    except OSError as error:
        note(result, "mounts", error)
        return result
    note(result, "mounts", None)
    if qemu != "-":
        try:
            namespaces.register_interpreter(mount_point / "proc/sys/fs/binfmt_misc", Path(qemu))
            note(result, "private_binfmt", None)
        except OSError as error:
            note(result, "private_binfmt", error)
    try:
        executable = mount_point / "trial"
        executable.write_bytes(program(machine))
        executable.chmod(0o755)
        namespaces.become_root_directory()
        pid = os.fork()
        if pid == 0:
            try:
                os.execv("/trial", ["/trial"])
            except OSError as error:
                os._exit(error.errno or 1)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code != EXIT_CODE:
            reason = os.strerror(code) if code > 0 else f"signal {-code}"
            raise OSError(code, f"a program for {machine} does not start: {reason}")
        note(result, "program", None)
    except OSError as error:
        note(result, "program", error)
    return result


def main(mode: str, qemu: str, machine: str) -> dict[str, str | None]:
    """Run the trial and give its result."""
    result: dict[str, str | None] = {}
    if mode != "userns":
        qemu = "-"
    try:
        with tempfile.TemporaryDirectory(prefix="adt-trial-") as directory:
            read, write = os.pipe()
            launcher = os.fork()  # so that this process stays outside and can remove the directory
            if launcher == 0:
                _launch(mode, qemu, machine, Path(directory), write)
            os.close(write)
            with os.fdopen(read) as answers:
                for line in answers:
                    result |= json.loads(line)
            os.waitpid(launcher, 0)
    except OSError as error:
        note(result, "namespaces", error)
    return result


def _launch(mode: str, qemu: str, machine: str, directory: Path, write: int) -> None:
    result: dict[str, str | None] = {}
    try:
        namespaces.enter(user=mode == "userns", host_id=namespaces.spare_id())
        note(result, "namespaces", None)
        os.write(write, json.dumps(result).encode() + b"\n")
        pid = os.fork()
        if pid == 0:
            os.write(write, json.dumps(inside(directory, qemu, machine)).encode() + b"\n")
        else:
            os.waitpid(pid, 0)
    except OSError as error:
        note(result, "namespaces", error)
        os.write(write, json.dumps(result).encode() + b"\n")
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:4])) + "\n")
