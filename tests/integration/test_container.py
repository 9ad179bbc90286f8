"""The Dockerfile's steps on a Debian of this moment; docker itself is not here, so it is the clean one of the tests."""

import json
import subprocess

import pytest

import adt
from adt.device.transport.adb import server_port
from support.devices.fixtures import Rack
from support.dockerfile import ROOT, instructions


@pytest.mark.nightly
def test_the_steps_run_on_a_fresh_debian_and_the_hosts_adb_server_is_used(rack: Rack) -> None:
    device = rack.start("phone")
    arguments = dict(instructions())
    steps = [text for name, text in instructions() if name == "RUN"]
    script = "\n".join(
        [
            "set -e",
            *steps,
            f"export {arguments['ENV']}",
            f"ADB_SERVER_SOCKET=tcp:{server_port()} adt devices --json >&3",
        ]
    )
    suite = arguments["FROM"].split(":")[1]
    done = subprocess.run(
        ["scripts/clean_debian.sh", "--as", "root", suite, "bash", "-c", f"{{ {script}\n}} 3>&1 >&2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr
    serials = [row["serial"] for row in json.loads(done.stdout)["devices"]]
    assert serials == [device.serial]
    assert adt.devices()[0].serial == device.serial, "the server is still there"
