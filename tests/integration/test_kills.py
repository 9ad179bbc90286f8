"""`adt deploy` is killed at random moments; what was complete before stays so, and nothing is left behind.

A few rounds always, 200 in the nightly run. The moments come from a seed, are spread
over the whole time that a deploy takes here, and a failure shows them with the round.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from device_fixtures import Rack, rack

from adt.device.deploy import deploy
from remains import soon_nothing, wrong_files
from standin_payload import make_bundle, make_package

__all__ = ["rack"]

SEED = 20261121


def killed(argv: list[str], after: float, sig: signal.Signals) -> int:
    """Run adt with *argv* and send it *sig* after so many seconds, if it still runs; returns its exit code."""
    running = subprocess.Popen(
        [sys.executable, "-c", "from adt.cli.main import main; main()", *argv],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        time.sleep(after)
        if running.poll() is None:
            running.send_signal(sig)
        return running.wait(300)
    finally:
        running.kill()
        running.wait()


@pytest.mark.parametrize(
    "rounds", [8, pytest.param(200, marks=[pytest.mark.nightly, pytest.mark.timeout(3600)])]
)
def test_killed_deploys_harm_nothing(rack: Rack, tmp_path: Path, rounds: int) -> None:
    device = rack.start("phone")
    device.shell(["rm", "-rf", "/data/local/tmp/adt"])
    moments = random.Random(SEED)
    bundle = make_bundle(tmp_path / "bundle", {"lib/steady.so": moments.randbytes(2 << 20)})
    complete = deploy(device, bundle, make_package(tmp_path / "good")).deployment

    def command(number: int) -> list[str]:
        """Deploy something that was never there: several files, one of them of a few MB."""
        changed = make_bundle(tmp_path / "bundle", {"lib/large.so": moments.randbytes(4 << 20)})
        package = make_package(tmp_path / "package", params=b"%d" % number)
        return ["deploy", str(package.path), "--bundle", str(changed.path), "--serial", device.serial]

    began = time.monotonic()
    assert killed(command(-1), 0, signal.SIGCONT) == 0
    whole_time = time.monotonic() - began
    codes = set()
    for number in range(rounds):
        sig = (signal.SIGINT, signal.SIGKILL)[number % 2]
        moment = (number // 2 + moments.random()) / (rounds // 2) * whole_time
        codes.add(killed(command(number), moment, sig))
        told = f"round {number}, {sig.name} after {moment:.3f} s"
        assert wrong_files(device, complete.directory, complete.manifest) == [], told
        soon_nothing(device, after=told)
    assert codes & {130, -signal.SIGINT} and -signal.SIGKILL in codes, "some of them were killed"
    assert killed(command(rounds), 0, signal.SIGCONT) == 0, "after all that a deploy still works"
    soon_nothing(device)
