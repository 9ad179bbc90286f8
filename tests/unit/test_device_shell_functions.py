"""The shell functions that our scripts for a device share, in this machine's own shell."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from adt.device.scripts import script
from support.devices.programs import try_program, write_program

LIVES_ON_STDIN = (
    script("ending")
    + """
cleanup() { kill -TERM $$; kill -INT $$; echo cleaned >"$1"; }
trap 'cleanup "$1"' EXIT
hear
echo ready
read -r line
deaf
exit 0
"""
)
"""Two more signals come in the midst of its cleaning up."""


def shell(script: str, *arguments: str, path: str = os.defpath) -> subprocess.CompletedProcess[str]:
    return try_program("/bin/sh", "-c", script, "sh", *arguments, PATH=path)


@pytest.mark.parametrize("sig", [None, signal.SIGTERM, signal.SIGINT], ids=["end of stdin", "TERM", "INT"])
@pytest.mark.parametrize("before", [None, signal.SIGHUP, signal.SIGPIPE], ids=["", "HUP", "PIPE"])
def test_whatever_ends_a_script_it_cleans_up(
    tmp_path: Path, sig: signal.Signals | None, before: signal.Signals | None
) -> None:
    done = tmp_path / "done"
    argv = ["sh", "-c", LIVES_ON_STDIN, "sh", str(done)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stdin is not None
        assert running.stdout.readline() == b"ready\n"
        if before is not None:
            running.send_signal(before)
        if sig is None:
            running.stdin.close()
        else:
            running.send_signal(sig)
        assert running.wait(120) == (0 if sig is None else 1)
    assert done.read_text() == "cleaned\n"


def test_settle_waits_until_nothing_changes_even_when_nothing_is_there_yet(tmp_path: Path) -> None:
    late = tmp_path / "late"
    # in place of time that passes: the first two times something is written
    write_program(
        tmp_path / "sleep",
        f'cd "{tmp_path}"; echo "$*" >>slept\n'
        "case $(wc -l <slept) in 1) mkdir late;; 2) echo x >late/file;; esac",
    )
    done = shell(
        script("ending") + 'settle "$@"\n',
        str(late),
        str(tmp_path / "never"),
        path=f"{tmp_path}:{os.defpath}",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "slept").read_text().split() == ["1"] * 3
    assert (late / "file").exists()


def test_pick_takes_the_first_that_computes_sha256(tmp_path: Path) -> None:
    asking = script("hasher") + 'pick || exit 4\necho "$hasher"\npick && printf abc | $hasher'
    write_program(tmp_path / "sha256sum", "echo 'not supported' >&2\nexit 1")
    write_program(tmp_path / "busybox", "echo 0123456789abcdef")
    assert shell(asking, path=str(tmp_path)).returncode == 4
    write_program(tmp_path / "toybox", '[ "$1" = sha256sum ] && exec /usr/bin/sha256sum')
    done = shell(asking, path=str(tmp_path))
    assert done.stdout.splitlines() == [
        "toybox sha256sum",
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  -",
    ]


def test_uses_are_numbered_whatever_the_clock_says(tmp_path: Path) -> None:
    first, second = (tmp_path / "deployments" / name for name in ("first", "second"))
    for deployment, turn in ((first, "1"), (second, "2"), (first, "3")):
        deployment.mkdir(parents=True, exist_ok=True)
        assert shell(f'{script("used")}used "$1"', str(deployment)).stderr == ""
        assert (deployment / ".used").read_text() == (tmp_path / "used").read_text() == f"{turn}\n"
    (tmp_path / "used").write_text("a[$(touch /tmp/code)]\n")
    assert shell(f'{script("used")}used "$1"', str(second)).stderr == ""
    assert (second / ".used").read_text() == "1\n", "what is no number is not calculated with"
    assert {file.name for file in tmp_path.rglob("*used*")} == {"used", ".used"}


def test_settle_ends_although_what_is_listed_changes_with_the_clock(tmp_path: Path) -> None:
    write_program(tmp_path / "sleep", "exit 0")
    write_program(tmp_path / "ls", f'echo x >>"{tmp_path}/log"; cat "{tmp_path}/log"')
    done = shell(f'{script("ending")}settle "$1"', str(tmp_path), path=f"{tmp_path}:{os.defpath}")
    assert done.returncode == 0 and (tmp_path / "log").stat().st_size < 100
