"""Tests that a fork of adt (support/devices/fork_server.py) behaves as the program does."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from support.devices.programs import ADT, adt, forked_adt


@pytest.mark.parametrize(
    "words", [["--version"], ["compile", "absent.onnx"], ["devices", "--nope", "--json"], ["emulator", "list"]], ids=" ".join
)  # fmt: skip
def test_a_fork_ends_as_the_program(words: list[str], tmp_path: Path) -> None:
    ends = [adt(*words, cwd=tmp_path, program=program) for program in (None, ADT)]
    assert len({(end.returncode, end.stdout, end.stderr) for end in ends}) == 1, ends


def test_a_fork_has_the_directory_and_the_environment_of_its_caller(tmp_path: Path) -> None:
    (tmp_path / "adt.toml").write_text('[compile]\ntarget = "mali"\n')
    ends = [
        adt("config", "--json", cwd=tmp_path, env=os.environ | {"ADT_BUILD_JOBS": "7"}, program=program)
        for program in (None, ADT)
    ]
    assert ends[0].stdout == ends[1].stdout, ends
    assert '"mali"' in ends[0].stdout and "ADT_BUILD_JOBS" in ends[0].stdout


def test_signals_and_ends_by_signals_pass() -> None:
    assert adt("adb", "--", "start-server").returncode == 0  # else the one that is ended starts it
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        with subprocess.Popen(
            [forked_adt(str(ADT)), "adb", "--", "wait-for-device"], stderr=subprocess.PIPE, text=True
        ) as process:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(3)
            process.send_signal(number)
            assert process.wait(60) in (code, -number)


def test_where_a_start_matters_the_program_is_executed() -> None:
    """Execute what a fork of the loaded server would start with other state."""
    done = adt("--version", env=os.environ | {"PYTHONVERBOSE": "1"})
    assert done.returncode == 0 and "import 'adt.cli.main'" in done.stderr
