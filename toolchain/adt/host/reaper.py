"""Remove what this process leaves when it is killed.

A shell waits for the end of a pipe that only this process holds, which comes however the process ends:
SIGKILL, a crash in a library, LLVM's own exit. Until then it is told of each temporary name and program that
would have to go; then it ends the programs and removes the names. It is started with the first of them.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger("adt.process")

# One entry a line, + to add it and - to take it back: pPATH is removed, gNUMBER is a process group to end.
# A line = says that no end of what libraries printed (in $1, to be copied to $2) explains what happened.
_SCRIPT = r"""
nl='
'
entries=$nl
while IFS= read -r line; do
  entry=${line#?}
  case $line in
    +*) entries=$entries$entry$nl ;;
    -*) entries=${entries%%"$nl$entry$nl"*}$nl${entries#*"$nl$entry$nl"} ;;
    =) set -- ;;
  esac
done
[ -z "$1" ] || tail -n 20 "/proc/self/fd/$1" >&"$2"
IFS=$nl
set -f
end() {
  left=
  for entry in $entries; do
    case $entry in g*) kill -s "$1" -- "-${entry#g}" 2>/dev/null && left=yes ;; esac
  done
}
end TERM
for n in 1 2 3 4 5 6 7 8 9 10; do
  [ -n "$left" ] || break
  sleep 0.1
  end 0
done
[ -z "$left" ] || end KILL
for n in 1 2 3; do
  left=
  for entry in $entries; do
    case $entry in
      p*)
        rm -rf -- "${entry#p}" 2>/dev/null
        if [ -e "${entry#p}" ] || [ -L "${entry#p}" ]; then left=yes; fi
        ;;
    esac
  done
  [ -n "$left" ] || break
  sleep 0.3
done
"""


class _Reaper:
    """The shell, and what it was told."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shell: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._entries: set[str] = set()
        self._printed: tuple[int, ...] = ()

    def add(self, entry: str) -> None:
        """Have *entry* cleaned up when this process ends."""
        if "\n" in entry:
            return  # a directory of the user's is called so
        with self._lock:
            if self._owner != os.getpid():  # forked: what the parent made is the parent's
                self._shell, self._owner, self._entries = None, os.getpid(), set()
            self._entries.add(entry)
            if self._shell is None or not self._tell([f"+{entry}"]):
                self._start()

    def discard(self, entry: str) -> None:
        with self._lock:
            if self._owner == os.getpid() and entry in self._entries:
                self._entries.discard(entry)
                self._tell([f"-{entry}"])

    def explain_end(self, *printed: int) -> None:
        """Copy the end of the descriptor *printed* to the second one after a crash; none: of no use now."""
        self._printed = printed
        if not printed:
            self._tell(["="])

    def close(self) -> None:
        """Let the shell clean up and end."""
        self.explain_end()
        shell, self._shell = self._shell, None
        if shell is not None and self._owner == os.getpid():
            shell.communicate()

    def _start(self) -> None:
        try:
            self._shell = subprocess.Popen(
                ["sh", "-c", _SCRIPT, "adt-reaper", *map(str, self._printed)],
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=self._printed,
                start_new_session=True,
            )
        except OSError as error:
            log.debug("nothing is removed when adt is killed: %s", error)
            return
        self._tell([f"+{entry}" for entry in self._entries])

    def _tell(self, lines: list[str]) -> bool:
        if self._shell is None or self._shell.stdin is None:
            return False
        try:
            self._shell.stdin.write(b"".join(os.fsencode(line) + b"\n" for line in lines))
            self._shell.stdin.flush()
        except OSError:  # somebody ended it
            return False
        return True


_reaper = _Reaper()
atexit.register(_reaper.close)


explain_end = _reaper.explain_end


@contextlib.contextmanager
def reaped_path(path: Path) -> Iterator[None]:
    """Have the file or directory *path* removed if this process ends before it is gone."""
    entry = f"p{path.absolute()}"
    _reaper.add(entry)
    try:
        yield
    finally:
        if not os.path.lexists(path):  # ctrl-C may have come while it was removed
            _reaper.discard(entry)


def reap_group(group: int) -> None:
    """Have the process group *group* ended if this process ends before :func:`release_group`."""
    _reaper.add(f"g{group}")


def release_group(group: int) -> None:
    """Release the process group *group*, which ended, or is to outlive this process."""
    _reaper.discard(f"g{group}")
