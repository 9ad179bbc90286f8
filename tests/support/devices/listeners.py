"""Listening processes of a test run: nothing but the loopback may be opened.

A thread reads the kernel's tables twice a second, and asks `ss` whose a socket is
that others can reach. A process is ours when it, or whoever started it, was given
the mark of this run in its environment; so servers that outlive their parent are
seen, too. What listens inside a virtual device's own network namespace cannot be
reached from anywhere and is not looked at.
"""

import os
import re
import secrets
import shutil
import subprocess
import threading
from pathlib import Path

MARK = "ADT_TEST_RUN"
"""Variable that every process of a run inherits."""
LOOPBACK = ("127.", "[::1]", "[::ffff:127.")
LOOPBACK_DIGITS = re.compile("(0{16}FFFF0000)?[0-9A-F]{6}7F|0{24}01000000")
"""The kernel's notation of 127.x.x.x, also within an IPv6 address, and of ::1."""
TABLES = [Path("/proc/net", name) for name in ("tcp", "tcp6", "udp", "udp6")]


def parse(text: str) -> set[tuple[str, int]]:
    """Return local address with port, and pid, of each row that ``ss -Hltunp`` printed."""
    listeners = set()
    for line in text.splitlines():
        columns = line.split()
        address = columns[4]
        listeners |= {(address, int(pid)) for pid in re.findall(r"pid=(\d+)", line)}
    return listeners


def reachable(table: str) -> set[str]:
    """Return local address and inode of the sockets without a peer, in a table of /proc/net, that others can reach."""
    rows = (line.split() for line in table.splitlines()[1:])
    return {
        f"{row[1]} {row[9]}"
        for row in rows
        if int(row[2].partition(":")[0], 16) == 0 and not LOOPBACK_DIGITS.fullmatch(row[1].partition(":")[0])
    }


class ListenerWatch:
    """Watches from ``start`` to ``stop``; then :attr:`seen` has every address that a process of ours listened on
    and others could reach, and what was there at each look."""

    def __init__(self) -> None:
        self.mark = secrets.token_hex(8)
        self.seen: dict[str, str] = {}
        """Address with port, and the command line of the process."""
        self.looks = 0
        self._ss = shutil.which("ss")
        assert self._ss, "the tests need ss: apt-get install iproute2"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="listener watch", daemon=True)

    @property
    def abroad(self) -> dict[str, str]:
        """Return the listeners of :attr:`seen` that are not on the loopback."""
        return {address: who for address, who in self.seen.items() if not address.startswith(LOOPBACK)}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        assert self._thread.is_alive(), "the watch ended early: nobody knows what listened"
        self._thread.join()
        self.look()

    def _watch(self) -> None:
        known: set[str] = set()
        while not self._ended.wait(0.5):
            sockets = {row for table in TABLES if table.exists() for row in reachable(table.read_text())}
            if sockets - known:
                self.look()
            known = sockets

    def look(self) -> None:
        done = subprocess.run([str(self._ss), "-Hltunp"], capture_output=True, text=True, check=True)
        self.looks += 1
        for address, pid in parse(done.stdout):
            if address not in self.seen and self._ours(pid):
                self.seen[address] = _read(pid, "cmdline").replace("\0", " ").strip()

    def _ours(self, pid: int) -> bool:
        return pid == os.getpid() or f"{MARK}={self.mark}" in _read(pid, "environ").split("\0")


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:  # it has ended
        return ""
