"""Nobody is contacted, and nothing is written below the home directory, that the user did not ask for; and
nothing of the working directory is run."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import adt
from adt.host.sources import GIT_URL
from support.devices.programs import ADT
from support.models.small import small_model
from support.traps import lay_traps

OFFLINE = (
    "doctor",
    "devices",
    "config",
    "source",
    "compile small.onnx --for host --target cpu --precision float16 --accuracy -o pkg",
    "quantize small.onnx --calibrate random:4 -o quantized.onnx",
    "inspect pkg",
    "elf pkg/mod.so",
    "adb -- kill-server",
)
"""Verbs that start programs, or use libraries that have much to tell."""
RUNNING = (
    "run pkg",
    "verify pkg",
    "verify pkg --layers",
    "bench pkg --runs 2",
    "profile pkg",
    "generate cpp pkg --package com.a.b -o project",
)
"""Verbs that run a package on this machine."""
OURS = re.compile(r"\.cache/adt/|\.local/(share|state)/adt/|\.android/adb|\.cache/pocl/")
"""Files of adt below the home directory, adb's key, and kernels of an OpenCL driver."""


@pytest.mark.parametrize(
    "verbs", [OFFLINE, pytest.param((*OFFLINE[:5], *RUNNING, OFFLINE[-1]), marks=pytest.mark.nightly)]
)
def test_verbs_keep_to_themselves(verbs: tuple[str, ...], tmp_path: Path) -> None:
    """Watch with strace each connection and each name that is looked up, by native code, too."""
    project, home, note, trace = (tmp_path / name for name in ("project", "home", "ran", "trace"))
    temporary = tmp_path / "tmp"
    for directory in (home, temporary):
        directory.mkdir()
    lay_traps(project, note, upstream=GIT_URL)
    small_model(project / "small.onnx", op="Relu")
    lines = "\n".join(f"'{ADT}' {verb} || echo 'exit code '$?' of {verb}'" for verb in verbs)
    apart = ("XDG_STATE_HOME", *adt.SILENT)
    environ = {name: value for name, value in os.environ.items() if name not in apart}
    strace = shutil.which("strace")
    assert strace, "apt-get install strace"
    done = subprocess.run(
        [strace, "-f", "--seccomp-bpf", "-e", "trace=network", "-o", trace, "sh", "-c", lines],
        cwd=project,
        env=environ | {"HOME": str(home), "TMPDIR": str(temporary), "ADT_DATA_DIR": str(home / "data/adt")},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    output = done.stdout + done.stderr
    assert "exit code" not in output, output
    assert not note.exists(), note.read_text()
    calls = re.findall(r"(?:connect|sendto|sendmsg)\(.*sa_family=AF_INET6?,.*", trace.read_text())
    assert calls  # adb's server, at least
    elsewhere = [call for call in calls if '"127.0.0.1"' not in call and '"::1"' not in call]
    assert not elsewhere
    assert not [call for call in calls if "htons(53)" in call]  # a resolver of this machine
    written = [str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()]
    assert not [name for name in written if not OURS.match(name) and not name.startswith("data/adt/")]
    assert not [path for path in temporary.iterdir() if not path.name.startswith("adb.")]
