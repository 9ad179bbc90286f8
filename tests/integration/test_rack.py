"""Ten virtual devices at once: deployed to, served by ten servers, ten sessions held together, nothing left."""

import json
import sys
from pathlib import Path

import pytest

import adt
from adt.virtual.abis import ARM64, Abi
from support.devices.fixtures import NATIVE
from support.devices.programs import run_program

BENCH = Path(__file__).parents[2] / "bench/rack.py"
COUNT = 10


@pytest.mark.parametrize(
    "abi", [NATIVE, pytest.param(ARM64, marks=pytest.mark.nightly)], ids=lambda abi: abi.name
)
def test_ten_devices_at_once(abi: Abi, capsys: pytest.CaptureFixture[str]) -> None:
    adt.build_target(platform=abi.linux_platform)
    words = (sys.executable, BENCH, "--devices", COUNT, "--abi", abi.name, "--json")
    done = run_program(*words)
    report = json.loads(done.stdout)
    with capsys.disabled():
        sys.stdout.write(f"\n{COUNT} devices: {report['memory_bytes'] >> 20} MiB, {report['seconds']}\n")
    assert {report[name] for name in ("devices", "deployed", "registered", "served")} == {COUNT}, done.stderr
    assert report["processes_left"] == 0
