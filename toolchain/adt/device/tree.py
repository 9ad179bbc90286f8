"""Directories to and from the device: complete, or as before.

Going there, files are sent into a directory of their own beside the
destination (inside it when it exists) and then moved to their names, each in
one step: whatever ends the transfer early leaves no half a file under its
name. A shell on the device waits meanwhile; it moves the files when told to,
and removes what was sent when it is not.

Coming back, everything is received into a temporary directory and then moved.

What is carried: directories (empty ones, too), the contents of files, their
permission bits and modification times (seconds). Symbolic links: see
:func:`plan_push` and :func:`pull_tree`. Sockets, pipes and devices are left out.
"""

from __future__ import annotations

import os
import posixpath
import secrets
import shlex
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from adt.device.deadline import Deadline
from adt.device.room import no_room
from adt.device.shell import STDERR, STDOUT, Completed, RemoteCommand, failure
from adt.device.shell_functions import ENDING
from adt.device.sync import MAX_PATH, Progress, PushItem, Stat, SyncSession
from adt.errors import DeviceError, DiskError
from adt.host.cache import disk_errors

if TYPE_CHECKING:
    import threading

    from adt.device.device import Device

STAGE = ".adt-push-"
"""Start of the name of a directory that files are sent into."""
WORDS = 32 * 1024
"""Bytes of names that we give one command on the device."""
DEPTH = 128
"""Levels of directories that we follow on a device: it may name its directories without end."""

ARMED = b"armed\n"
"""What the shell on the device says when it is ready to clean up."""

_RECEIVE = (
    ENDING
    + """
dest=$1
if [ -d "$dest" ]; then stage=$dest/$2; else stage=${dest%/*}/$2; fi
state=receiving
cleanup() {
  deaf
  [ $state = moved ] && return
  [ $state = receiving ] && settle "$stage" "$stage.sh"
  rm -rf "$stage" "$stage.sh"
}
trap cleanup EXIT
hear
echo armed
# What is left of others that died with the device: no process has their name among its arguments.
for old in "${stage%/*}"/.adt-push-*; do
  case $old in "$stage"*) continue;; esac
  [ -e "$old" ] || continue
  name=${old##*/}
  case $(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ') in
    *"${name%.sh}"*) ;;
    *) rm -rf "$old";;
  esac
done
case $KSH_VERSION in
  *'MIRBSD KSH'*) move() { rename "$1" "$2" 2>/dev/null || mv -f "$1" "$2"; };; # built in
  *) move() { mv -f "$1" "$2"; };;
esac
merge() {
  for f in "$1"/* "$1"/.[!.]* "$1"/..?*; do
    n=$2/${f##*/}
    if [ -f "$f" ] && ! [ -d "$n" ]; then # most are
      move "$f" "$n" || return 1
    elif ! [ -e "$f" ] && ! [ -L "$f" ]; then
      continue # a pattern that matched nothing
    elif ! [ -d "$n" ]; then
      [ -e "$n" ] && [ -d "$f" ] && ! [ -L "$f" ] && { echo "$n is there and no directory" >&2; return 1; }
      move "$f" "$n" || return 1
    elif [ -d "$f" ] && ! [ -L "$f" ]; then
      merge "$f" "$n" || return 1
    elif [ -L "$n" ] && [ -L "$f" ]; then
      rm -f "$n" && move "$f" "$n" || return 1
    else
      echo "$n is a directory there" >&2
      return 1
    fi
  done
}
read -r word || { deaf; exit 1; }
case $word in move|prepare) ;; *) exit 1;; esac
state=complete
[ -d "$stage" ] || mkdir -p "$stage" || exit 1
if [ $word = prepare ]; then
  cd "$stage" && . "$stage.sh" && cd / && rm "$stage.sh" || exit 1
fi
if [ "${stage%/*}" != "$dest" ]; then
  move "$stage" "$dest" || exit 1
else
  merge "$stage" "$dest" && rm -rf "$stage" || exit 1
fi
state=moved
"""
)


@dataclass(frozen=True)
class TreeReport:
    """What a transfer of a directory did."""

    files: int
    """Files and symbolic links that were written."""
    directories: int
    """Directories below the named one."""
    bytes: int
    """Contents of files that went over the wire."""
    skipped: tuple[str, ...]
    """What was left out: path from the directory, and why."""


@dataclass
class Tree:
    """What is to be transferred; paths start at the named directory."""

    directories: dict[str, int] = field(default_factory=dict)
    """Path to permission bits, parents first; the named directory itself is ``.``."""
    files: dict[str, Stat] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    """Path to target."""
    skipped: list[str] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files.values())


def plan_push(local: Path) -> Tree:
    """Look what there is in the directory *local*.

    A symbolic link stays one when its target is relative and inside the
    directory; else it is followed: a file is sent, anything else left out.

    Raises:
        DiskError: it is not a directory, or cannot be read.
    """
    if not local.is_dir():
        raise DiskError(f"{local} is no directory", remedy="Name the directory to be sent.")
    tree = Tree()
    for path, facts in _walk(local, "."):
        if stat.S_ISDIR(facts.st_mode):
            tree.directories[path] = stat.S_IMODE(facts.st_mode)
        elif stat.S_ISREG(facts.st_mode):
            tree.files[path] = Stat(facts.st_mode, facts.st_size, int(facts.st_mtime))
        elif stat.S_ISLNK(facts.st_mode):
            _plan_link(local, path, tree)
        else:
            tree.skipped.append(f"{path}: neither a file, a directory nor a link")
    return tree


def _walk(top: Path, path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every path below *top*, parents first, links not followed."""
    with disk_errors(f"reading {top / path}"):
        yield path, os.lstat(top / path) if path != "." else top.stat()
        with os.scandir(top / path) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            below = posixpath.normpath(f"{path}/{entry.name}") if path != "." else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(top, below)
            else:
                yield below, entry.stat(follow_symlinks=False)


def _plan_link(top: Path, path: str, tree: Tree) -> None:
    target = os.readlink(top / path)  # noqa: PTH115  (as it is, not as a Path would write it)
    leads = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if not posixpath.isabs(target) and leads.split("/")[0] != "..":
        tree.links[path] = target
        return
    try:
        facts = (top / path).stat()
    except OSError as why:
        tree.skipped.append(f"{path}: leads to {target}: {why.strerror}")
        return
    if stat.S_ISREG(facts.st_mode):
        tree.files[path] = Stat(facts.st_mode, facts.st_size, int(facts.st_mtime))
    else:
        tree.skipped.append(f"{path}: leads to {target}, outside and no file")


def prepare_script(tree: Tree, *, exact_modes: bool) -> bytes:
    """A shell script for empty directories, links and modes of *tree*, to be run inside of what was sent.

    Links are made by the shell because SELinux lets it and, on many phones, not the daemon.
    Empty when there is nothing to do. The daemon gives group and others the rights that the owner has.
    Without *exact_modes* that stays so, but for what is the owner's alone here: so it is there.
    """
    parents = {posixpath.dirname(path) for path in (*tree.directories, *tree.files)}
    empty = [path for path in tree.directories if path not in parents and path != "."]
    # we have to move what is in a directory, whatever its mode is
    modes = {path: mode | stat.S_IRWXU for path, mode in tree.directories.items()}
    modes |= {path: stat.S_IMODE(file.mode) for path, file in tree.files.items()}
    wanted: dict[int, list[str]] = {}
    for path, mode in modes.items():
        if exact_modes or not mode & 0o077:
            wanted.setdefault(mode & 0o777, []).append(path)
    lines = [f"mkdir -p {words} || return 1" for words in _in_parts(empty)]
    for path, target in tree.links.items():
        lines.append(f"ln -s -- {shlex.quote(target)} {shlex.quote(f'./{path}')} || return 1")
    for mode, paths in sorted(wanted.items()):
        lines += [f"chmod {mode:o} {words} || return 1" for words in _in_parts(paths)]
    return os.fsencode("\n".join([*lines, ":", ""])) if lines else b""


def _in_parts(paths: list[str]) -> Iterator[str]:
    """The paths as quoted words, as many at a time as one command takes."""
    words: list[str] = []
    size = 0
    for path in paths:
        word = shlex.quote(f"./{path}")
        if words and size + len(word) > WORDS:
            yield " ".join(words)
            words, size = [], 0
        words.append(word)
        size += len(os.fsencode(word)) + 1
    if words:
        yield " ".join(words)


def push_tree(
    device: Device,
    local: Path,
    remote: str,
    *,
    exact_modes: bool = False,
    timeout: float | None = None,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
) -> TreeReport:
    """Make the contents of the directory *local* those of *remote*, beside what else is in there.

    Args:
        remote: absolute path of the directory itself; its parents are made. A symbolic link to
            a directory is followed.
        exact_modes: give group and others the rights that they have here. Else they get those of the
            owner (as with ``adb push``), or none where they have none here.
        timeout: seconds in total.
        progress: called with the remote path of a file, and bytes of the whole done and to do.
        cancel: an event that ends the transfer; :class:`~adt.device.deadline.Cancelled` is raised.

    Raises:
        DeviceFull, DeviceError: *remote* is what it was before (when the connection broke while the
            files were moved to their names: each of them is the old or the new one).
        DiskError: a local file cannot be read.
    """
    remote = _absolute(remote)
    doing = f"pushing {remote}"
    name = STAGE + secrets.token_hex(8)
    argv = ("sh", "-c", _RECEIVE, "sh", remote, name)
    # The shell there gets ready while we look at the files. It is left after the session is closed, so
    # that it removes all of what was sent.
    with device.start(argv, timeout=timeout, keep_stdin=True, inline=True) as shell:
        shell.set_deadline(Deadline(timeout, doing, cancel=cancel))
        receiver = _Receiver(shell)
        tree = plan_push(local)
        longest = max((len(os.fsencode(path)) for path in (*tree.files, *tree.links)), default=0)
        _check_length(device.serial, remote, longest)
        with device.sync(timeout=timeout, doing=doing, cancel=cancel) as session:
            there = session.stat(f"{remote}/.").exists  # with the dot, a link to a directory counts
            stage = f"{remote if there else posixpath.dirname(remote)}/{name}"
            report = None if progress is None else _Whole(progress, tree.size, stage, remote)
            script = prepare_script(tree, exact_modes=exact_modes)
            items = _items(local, tree, stage, script)
            count = session.push_many(items, progress=report, before=receiver.wait_armed)
        done = receiver.finish(b"prepare\n" if script else b"move\n")
    if done.exit_code != 0:
        if "No space left" in done.err + done.out:
            raise no_room(device.serial, f"{remote} does not fit", free=device.free_space())
        raise failure(
            done,
            what=f"the files were sent, but not all could be moved to {remote} on {device.serial}",
            remedy="Look at what is at that path (`adt adb -- shell ls -ld`), or choose another directory.",
        )
    return TreeReport(
        len(tree.files) + len(tree.links), len(tree.directories) - 1, count, tuple(tree.skipped)
    )


class _Receiver:
    """The shell on the device that runs _RECEIVE."""

    def __init__(self, command: RemoteCommand) -> None:
        self._command = command
        self._events = command.output()
        self._said = {STDOUT: b"", STDERR: b""}

    def wait_armed(self) -> None:
        """Wait until it would remove what is sent.

        Raises:
            DeviceError: it ended instead.
        """
        while not self._said[STDOUT].startswith(ARMED):
            event = next(self._events, None)
            if event is None:
                raise failure(self._completed(), what=f"no shell waits on {self._command.serial}")
            self._said[event[0]] += event[1]

    def finish(self, word: bytes) -> Completed:
        """Tell it what to do, and wait until it is done."""
        self._command.write(word)
        for kind, data in self._events:
            self._said[kind] += data
        return self._completed()

    def _completed(self) -> Completed:
        out, err = self._said[STDOUT].removeprefix(ARMED), self._said[STDERR]
        code = self._command.exit_code
        return Completed(self._command.serial, self._command.argv, 255 if code is None else code, out, err)


def _absolute(remote: str) -> str:
    path = posixpath.normpath(remote)
    if not path.startswith("/") or "\0" in path:
        raise DeviceError(
            f"{remote!r} is no absolute path on a device", remedy="Give one such as /data/local/tmp/NAME."
        )
    return "/" + path.lstrip("/")


def _check_length(serial: str, remote: str, longest: int) -> None:
    if len(os.fsencode(remote)) + len(STAGE) + 32 + longest > MAX_PATH:
        raise DeviceError(
            f"a path below {remote} would be longer than device {serial} takes ({MAX_PATH} bytes)",
            remedy="Choose a shorter destination, or shorter names.",
        )


def _items(local: Path, tree: Tree, stage: str, script: bytes) -> Iterator[PushItem]:
    """What is to be sent, in order."""
    if script:
        yield PushItem(script, f"{stage}.sh")
    for path, facts in tree.files.items():
        yield PushItem(local / path, f"{stage}/{path}", stat.S_IMODE(facts.mode))


class _Whole:
    """Turns the progress of one file after the other into that of the whole."""

    def __init__(self, progress: Progress, total: int, prefix: str, shown: str) -> None:
        """Paths start with *prefix*, which is *shown* in place of it; others do not count."""
        self._progress, self._total, self._prefix, self._shown = progress, total, f"{prefix}/", shown
        self._current, self._before, self._last = "", 0, 0

    def __call__(self, path: str, done: int, _: int) -> None:
        if not path.startswith(self._prefix):
            return
        if path != self._current:
            self._before, self._current = self._before + self._last, path
        self._last = done
        shown = f"{self._shown}/{path.removeprefix(self._prefix)}"
        self._progress(shown, self._before + done, self._total)


def pull_tree(
    device: Device,
    remote: str,
    local: Path,
    *,
    timeout: float | None = None,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
) -> TreeReport:
    """Make the contents of the device's directory *remote* those of *local*, beside what else is in there.

    A symbolic link to a file becomes the file; one to anything else is left
    out, and no link is ever made here: what a device says cannot lead a later
    write astray.

    Raises:
        DeviceError: *remote* is no directory or a file in it cannot be read; nothing was written to *local*.
        DiskError: there is no room here, or no access.
    """
    remote, local = _absolute(remote), local.absolute()
    temporary = local.with_name(f".{local.name}.{secrets.token_hex(6)}.tmp")
    with device.sync(timeout=timeout, doing=f"pulling {remote}", cancel=cancel) as session:
        if not session.stat(f"{remote}/.").exists:
            raise DeviceError(
                f"{remote} is no directory on {device.serial}",
                remedy="Look at it (`adt adb -- shell ls -ld`); a single file is pulled with Device.pull.",
            )
        tree = plan_pull(session, remote)
        try:
            with disk_errors(f"writing {local}"):
                count = _receive(session, tree, remote, temporary, progress)
                _move(temporary, local)
        except OSError as why:  # a name that this file system does not take, for example
            raise DiskError(f"cannot write {local}: {why}", remedy="Choose another directory.") from why
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return TreeReport(len(tree.files), len(tree.directories) - 1, count, tuple(tree.skipped))


def plan_pull(session: SyncSession, remote: str) -> Tree:
    """Look what there is in *remote*, one level of directories at a time.

    Raises:
        DeviceError: the device names what no file can be called, or goes deeper than DEPTH.
    """
    tree = Tree({".": stat.S_IMODE(session.stat(f"{remote}/.").mode)})
    level = ["."]
    for _ in range(DEPTH):
        below = []
        listings = session.list_many([posixpath.normpath(f"{remote}/{path}") + "/" for path in level])
        for path, entries in zip(level, listings, strict=True):
            for name, facts in sorted(entries.items()):
                inner = name if path == "." else f"{path}/{name}"
                if stat.S_ISDIR(facts.mode):
                    tree.directories[inner] = stat.S_IMODE(facts.mode)
                    below.append(inner)
                elif stat.S_ISREG(facts.mode):
                    tree.files[inner] = facts
                elif stat.S_ISLNK(facts.mode):
                    leads = session.stat_followed(f"{remote}/{inner}")
                    if leads is not None and stat.S_ISREG(leads.mode):
                        tree.files[inner] = leads
                    else:
                        tree.skipped.append(f"{inner}: a link, and not to a file")
                else:
                    tree.skipped.append(f"{inner}: neither a file, a directory nor a link")
        if not below:
            return tree
        level = below
    raise DeviceError(f"{remote} is deeper than {DEPTH} directories", remedy="Pull a directory further down.")


def _receive(session: SyncSession, tree: Tree, remote: str, here: Path, progress: Progress | None) -> int:
    for path in tree.directories:
        (here / path).mkdir()
    ours = here.stat().st_mode & 0o777  # what the user's umask leaves of 0777
    report = None if progress is None else _Whole(progress, tree.size, remote, remote)
    items = [(f"{remote}/{path}", here / path, facts.size) for path, facts in tree.files.items()]
    count = session.pull_many(items, progress=report)
    for path, facts in tree.files.items():
        os.utime(here / path, (facts.mtime, facts.mtime))
        (here / path).chmod(facts.mode & ours | stat.S_IRUSR)
    for path, mode in tree.directories.items():
        (here / path).chmod(mode & ours | stat.S_IRWXU)
    return count


def _move(source: Path, target: Path) -> None:
    """Move the contents of *source* into *target*, each file in one step.

    Raises:
        DiskError: a file is where a directory is to be, or the other way round.
    """
    if not target.is_dir():
        source.replace(target)
        return
    for entry in source.iterdir():
        there = target / entry.name
        if entry.is_dir() and there.is_dir():
            _move(entry, there)
        elif entry.is_dir() != there.is_dir() and there.exists():
            raise DiskError(
                f"{there} is {'a' if there.is_dir() else 'no'} directory here, but not so on the device",
                remedy="Remove it, or choose another directory.",
            )
        else:
            entry.replace(there)
