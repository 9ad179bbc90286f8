"""Try, in a throw-away process, whether this machine can run a device's programs in namespaces.

Run as ``python -m adt.virtual.trial MODE QEMU MACHINE``; MODE is ``userns`` or ``root``, QEMU a static
interpreter or ``-``, MACHINE the programs' processor. (Without a user namespace a binfmt rule would be the
whole machine's, so ``root`` never registers one.) Prints one JSON object; a value is null for "works" or the
reason. No list of versions tells as much: kernels, security modules and containers all have a say.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import sys
from collections.abc import Iterator
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
    """Return a complete Linux executable whose only act is to exit with 42."""
    number, code = PROGRAMS[machine]
    size = 64 + 56 + len(code)  # the header, one program header, the code
    kind = b"\x7fELF\x02\x01\x01"  # 64 bit, little endian
    header = (kind, 2, number, 1, BASE + 64 + 56, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = (1, 5, 0, BASE, BASE, size, size, 0x1000)
    return struct.pack("<16sHHIQQQIHHHHHH", *header) + struct.pack("<IIQQQQQQ", *segment) + code


@contextlib.contextmanager
def noted(result: dict[str, str | None], step: str) -> Iterator[None]:
    """Note how *step*, the block, went; an OSError is its reason and ends no more than the block."""
    try:
        yield
        result[step] = None
    except OSError as error:
        result[step] = str(error)


def inside(qemu: str, machine: str) -> dict[str, str | None]:
    """Try mounts, own binfmt_misc and a program in the new root, as PID 1 of the new namespaces."""
    result: dict[str, str | None] = {}
    with noted(result, "mounts"):
        # on a directory of adt that is not needed here: no temporary one, which would stay after a SIGKILL
        namespaces.enter_new_root(Path(__file__).with_name("scripts"), "mode=0755")
        for directory in ("proc", "dev/pts"):
            Path(directory).mkdir(parents=True)
        namespaces.mount("proc", Path("proc"), "proc")
        namespaces.mount("devpts", Path("dev/pts"), "devpts", 0, "newinstance,ptmxmode=0666,mode=0620")
    if result["mounts"]:
        return result
    if qemu != "-":
        with noted(result, "private_binfmt"):
            namespaces.register_interpreter(Path("proc/sys/fs/binfmt_misc"), Path(qemu))
    with noted(result, "program"):
        executable = Path("trial")
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
    return result


def main(mode: str, qemu: str, machine: str) -> dict[str, str | None]:
    """Run the trial in new namespaces, which this process stays in, and return its result."""
    result: dict[str, str | None] = {}
    answers, answer = os.pipe()
    with noted(result, "namespaces"):
        namespaces.enter(user=mode == "userns", host_id=namespaces.spare_id())
        pid = os.fork()  # only a child is in the new pid namespace
    if result["namespaces"]:
        return result
    if pid == 0:
        try:
            os.write(answer, json.dumps(inside(qemu if mode == "userns" else "-", machine)).encode())
        finally:
            os._exit(0)
    os.close(answer)
    os.waitpid(pid, 0)
    with os.fdopen(answers) as file:
        result.update(json.loads(file.read() or "{}"))
    return result


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:4])) + "\n")
