"""Find and run programs on this machine: argv lists only, echoed with ``-v``, never left behind.

Every external command goes through :func:`run` (wait for it) or :func:`start` (in its own process group).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import adt
from adt.errors import TRACE, AdtError, ProcessFailed, ToolNotFound
from adt.host.extras import install_command
from adt.host.interrupts import handled
from adt.host.reaper import reap_group, release_group

log = logging.getLogger("adt.process")

NEUTRAL = Path("/")
"""Working directory of programs: git, pip, Python, CMake and others obey files of the one that they start in,
and the user's may hold a stranger's. Root alone puts files here, and it can be neither removed nor filled."""
NOT_PASSED = {
    # hooks of git set these: git would use another repository than that of its command
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE",
    # a compiler that is a script would run it, or change its directory, before its own lines
    "BASH_ENV", "ENV", "CDPATH",
    # the preset and adt's definitions decide what CMake builds: a bundle's name stands for them
    "CMAKE_GENERATOR", "CMAKE_GENERATOR_PLATFORM", "CMAKE_GENERATOR_TOOLSET", "CMAKE_TOOLCHAIN_FILE",
    "NINJA_STATUS",  # adt reads its lines
    "PYTHONINSPECT", "PYTHONSTARTUP",  # Python would take its input for code when it should end
    "PYTEST_CURRENT_TEST",  # it changes with every test: a child would count as one of another environment
}  # fmt: skip
"""Variables that programs do not inherit. All others are the user's way of setting them up (PATH, proxies,
compilers' flags, drivers): a stranger's directory sets none."""
PATH_LISTS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
"""Variables whose relative parts name directories from here on; an empty part, which means the working
directory, is left out."""
PATHS = ("ADT_CACHE_DIR", "ADT_DATA_DIR", "PIP_CONFIG_FILE", "TMPDIR")
"""Variables that name one file or directory."""


def command_line(words: Sequence[str]) -> str:
    """Quote *words* as a command; of a script only its number of lines is shown, with -vv all."""
    elided = [
        shlex.quote(word) if "\n" not in word else f"<{len(word.splitlines())} lines>" for word in words
    ]
    return shlex.join(words) if log.isEnabledFor(TRACE) else " ".join(elided)


def log_command(words: Sequence[str], began: float) -> None:
    """Log the command *words*, which ends now, for -v."""
    log.debug("$ %s  # %.1f s", command_line(words), time.monotonic() - began)


@dataclass(frozen=True)
class Finished:
    """A program that ended: its argv, exit code and what it printed."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str

    def tail(self, lines: int = 30) -> str:
        return last_lines(self.stdout, self.stderr, lines)


def last_lines(stdout: str, stderr: str, lines: int) -> str:
    """Return the last lines of both streams, stdout first."""
    return "\n".join(f"{stdout.rstrip()}\n{stderr.rstrip()}".strip().splitlines()[-lines:])


def failure(
    done: Finished, *, error: type[AdtError] = ProcessFailed, what: str = "", remedy: str = ""
) -> AdtError:
    """Describe a failed program: the command, its exit code, the end of its output."""
    return error(
        f"{what or f'`{Path(done.argv[0]).name}` failed'} (exit code {done.returncode})",
        remedy=remedy or "Read the program's own message above; run again with -v to see every command.",
        details=f"$ {command_line(done.argv)}\n{done.tail()}",
    )


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Give what a program inherits: our environment without NOT_PASSED, its paths absolute, and *extra*."""
    variables = {name: value for name, value in os.environ.items() if name not in NOT_PASSED}
    for name in PATH_LISTS:
        if value := variables.get(name):
            parts = [str(Path(part).absolute()) for part in value.split(os.pathsep) if part]
            variables[name] = os.pathsep.join(parts)
    for name in PATHS:
        if value := variables.get(name):
            variables[name] = str(Path(value).expanduser().absolute())
    return variables | dict(extra or {})


def which(name: str) -> str | None:
    """Find *name* on PATH as children have it: an empty part is not our working directory."""
    return shutil.which(name, path=environment().get("PATH"))


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    check: bool = True,
    error: type[AdtError] = ProcessFailed,
    what: str = "",
    remedy: str = "",
    log_file: Path | None = None,
    on_line: Callable[[str], None] | None = None,
) -> Finished:
    """Run *argv* to its end and return what it printed; ToolNotFound if the program does not exist.

    Args:
        argv: the program and its arguments, never a shell line; a Path is made absolute.
        cwd: working directory; None: NEUTRAL.
        env: variables on top of :func:`environment`.
        timeout: seconds after which the program's whole group is killed; its exit code is then 124.
        check: raise *error*, with *what* and *remedy*, when the exit code is not 0.
        log_file: also keep the whole output here.
        on_line: called with each line as it comes (stderr is then merged into stdout).
    """
    words = _words(argv)
    began = time.monotonic()
    stderr = subprocess.PIPE if on_line is None else subprocess.STDOUT
    with start(words, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=stderr, reaped=True) as child:
        try:
            if on_line is None:
                out, err = child.communicate(timeout=timeout)
            else:
                out, err = _follow(child, on_line), b""
            code = child.returncode
            release_group(child.pid)
        except subprocess.TimeoutExpired:
            kill_group(child)
            out, err = child.communicate()
            code, err = 124, err + f"\nkilled after {timeout:g} s".encode()
        except BaseException:  # ctrl-C included: never leave the program behind
            kill_group(child)
            raise
        finally:
            log_command(words, began)
    done = Finished(words, code, out.decode(errors="replace"), err.decode(errors="replace"))
    if log_file is not None:
        log_file.write_text(f"$ {shlex.join(words)}\n{done.stdout}{done.stderr}")
    if check and done.returncode != 0:
        raise failure(done, error=error, what=what, remedy=remedy)
    return done


def _words(argv: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Make each Path of *argv* absolute; a program's bare name stays, to be looked up on PATH."""
    program, *rest = argv
    paths = [os.fspath(word.absolute() if isinstance(word, Path) else word) for word in rest]
    name = os.fspath(program)
    return str(Path(name).absolute()) if "/" in name else name, *paths


def _follow(child: subprocess.Popen[bytes], on_line: Callable[[str], None]) -> bytes:
    assert child.stdout is not None
    lines = []
    for line in child.stdout:
        lines.append(line)
        on_line(line.decode(errors="replace").rstrip())
    child.wait()
    return b"".join(lines)


def start(
    argv: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    stderr: int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
    reaped: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a child that leads a process group; ToolNotFound if there is no such program.

    If *reaped*, it ends with this process, however that ends, until it is released or :func:`kill_group`.
    """
    words = _words(argv)
    child = None
    try:
        with _interrupts_put_off():
            child = subprocess.Popen(
                words,
                cwd=cwd or NEUTRAL,
                env=environment(env),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=tuple(pass_fds),
                start_new_session=True,
            )
            if reaped:
                reap_group(child.pid)
    except OSError as failure:  # absent, not executable, or a program for another machine
        raise ToolNotFound(
            f"cannot start `{words[0]}`: {failure.strerror}",
            remedy=f"Install {Path(words[0]).name} or put it on PATH; `adt doctor` lists what is needed.",
        ) from failure
    except BaseException:  # what was put off
        if child is not None:
            kill_group(child)
        raise
    return child


@contextlib.contextmanager
def _interrupts_put_off() -> Iterator[None]:
    """Let ctrl-C and TERM come when the block ends: in the midst of a start nobody knows the child yet."""
    came: list[int] = []
    try:
        with handled(lambda number, _frame: came.append(number)):
            yield
    finally:
        for number in came:
            signal.raise_signal(number)


def kill_group(child: subprocess.Popen[bytes], grace: float = 2.0) -> None:
    """End a child started by :func:`start` and all it started: TERM, then KILL after *grace* s."""
    for sig, wait in ((signal.SIGTERM, grace), (signal.SIGKILL, grace)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, sig)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=wait)
            release_group(child.pid)  # not before: one more ctrl-C may end this function
            return


def python_path() -> dict[str, str]:
    """Give a PYTHONPATH with which another Python finds this very adt."""
    ours = str(Path(adt.__file__).absolute().parents[1])
    rest = environment().get("PYTHONPATH")
    return {"PYTHONPATH": f"{ours}{os.pathsep}{rest}" if rest else ours}


def boot_id() -> str:
    """Return what tells this boot of the machine from every other."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid: int) -> int | None:
    """Return the start of process *pid*, in clock ticks after boot; None when there is none or it has ended.

    It has ended when all its threads have: until then it holds its ports and files, though its first thread,
    which alone the state tells of, may be gone already.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
        threads = len([*Path(f"/proc/{pid}/task").iterdir()])
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name in parentheses may hold anything
    return None if fields[0] in "ZX" and threads <= 1 else int(fields[19])


def end(pid: int, started: int | None, grace: float, *, insist: bool = True) -> bool:
    """End process *pid*: SIGTERM, after *grace* seconds SIGKILL if we *insist*; True once it is gone.

    A pidfd holds it before its identity is looked at: no other process can get the signal.
    """
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        if started is None or start_time(pid) != started:
            return True
        for number, wait in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0))[: 1 + insist]:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, number)
            if select.select([fd], [], [], wait)[0]:
                return True
        return False
    finally:
        os.close(fd)


Version = tuple[int, ...]


@dataclass(frozen=True)
class Tool:
    name: str
    path: Path
    origin: str
    """Source of the path: ``PATH``, ``adt's own environment``, …"""


def find_tool(name: str, *, remedy: str = "", own_first: bool = False) -> Tool:
    """Find program *name*; *own_first*: beside our Python before PATH, as cmake and ninja of adt's wheel.

    *remedy* says how to get it; empty: with the Python package of its name.
    """
    own = Path(sys.executable).parent / name
    path = which(name)
    if own.is_file() and (own_first or not path):
        return Tool(name, own, "adt's own environment")
    if path:
        return Tool(name, Path(path).absolute(), "PATH")
    raise ToolNotFound(f"`{name}` is not on PATH", remedy=remedy or install_command(name))


def compiler_identity(compiler: Path) -> str:
    """Identify the GCC or clang *compiler* by version, and a digest of what ``-v`` prints but paths."""
    done = run([compiler, "-v"], env={"LC_ALL": "C"}, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    lines = [" ".join(word for word in line.split() if "/" not in word) for line in lines]
    version = next((line for line in lines if " version " in line), compiler.name)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return f"{version}, {digest[:12]}"


def cmake() -> Tool:
    """Find CMake, the one installed with adt first: presets need a version of 3.26 or newer."""
    return find_tool("cmake", own_first=True)


def ninja() -> Tool:
    return find_tool("ninja", own_first=True)


def parse_version(text: str, *, after: str = "") -> Version:
    """Return the first dotted number in *text*, or of a line that begins with *after*; empty: none."""
    start = rf"^{re.escape(after)} " if after else ""
    match = re.search(rf"{start}(\d+(?:\.\d+)+)", text, re.MULTILINE)
    return tuple(map(int, match[1].split("."))) if match else ()
