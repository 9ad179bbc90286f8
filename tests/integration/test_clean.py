"""Removing old deployments from a real virtual device, while others deploy and run."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest

from adt.device.deploy import store
from adt.device.deploy.store import Deployment, DeployReport, deploy, payload_of
from adt.device.deploy.workspace import clean, open_agent, workspace
from adt.device.device import Device
from adt.device.place import DevicePlace, RtvmOptions
from adt.device.scripts import script
from adt.device.transport import adb
from adt.device.transport.deadline import Deadline
from support.devices.fixtures import Rack, child, entries, processes
from support.devices.programs import invoke, invoke_json
from support.devices.remains import remains, soon_nothing, wrong_files
from support.standins.artefacts import native_bundle as make_bundle
from support.standins.artefacts import native_package as make_package
from support.waiting import wait_for

BASE = "/data/local/tmp/adt/tester"


@pytest.fixture
def phone(native_rack: Rack) -> Device:
    """Return the only virtual device, with nothing of ours on it."""
    device = native_rack.start("phone")
    device.shell(["rm", "-rf", "/data/local/tmp/adt"])
    return device


def put(
    device: Device, directory: Path, number: int, name: str = "toy", user: str = "tester"
) -> DeployReport:
    """Deploy version *number* of a package; the bundle is always the same."""
    bundle = make_bundle(directory / "bundle")
    return deploy(device, bundle, make_package(directory / "p", params=b"%d" % number, name=name), user=user)


def whole(device: Device, deployment: Deployment) -> bool:
    return not wrong_files(device, deployment.directory, deployment.manifest)


def test_old_deployments_go_and_what_is_left_is_whole(phone: Device, tmp_path: Path) -> None:
    first, second, third = (put(phone, tmp_path, n).deployment for n in (1, 2, 3))
    other = put(phone, tmp_path, 4, name="other").deployment
    assert len({first.digest, second.digest, third.digest}) == 3
    before = set(entries(phone, f"{BASE}/store"))

    planned = clean(phone, keep=1, user="tester", dry_run=True)
    assert set(entries(phone, f"{BASE}/store")) == before and not planned.applied

    report = clean(phone, keep=1, user="tester")
    assert set(report.removed) == set(planned.removed) == {f"toy.{d.digest}" for d in (first, second)}
    assert set(report.kept) == {f"toy.{third.digest}", f"other.{other.digest}"}
    removed = before - set(entries(phone, f"{BASE}/store"))
    assert len(removed) == report.files == 4, "two mod.params and two mod.json"
    assert whole(phone, third) and whole(phone, other)
    assert put(phone, tmp_path, 3).sent_bytes == 0
    assert clean(phone, keep=1, user="tester").removed == ()
    soon_nothing(phone)


def test_what_was_used_last_stays(phone: Device, tmp_path: Path) -> None:
    first = put(phone, tmp_path, 1).deployment
    second = put(phone, tmp_path, 2).deployment
    phone.shell(["touch", "-d", "2020-01-01T00:00:00", first.manifest])
    assert put(phone, tmp_path, 1).sent_bytes == 0, "a deploy that finds all there counts as a use"
    assert clean(phone, keep=1, user="tester").removed == (f"toy.{second.digest}",)


@pytest.mark.parametrize("count", [8, pytest.param(100, marks=pytest.mark.nightly)])
def test_each_of_many_deployments_costs_the_same(
    phone: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    connections: list[int] = []
    real = adb.open_device

    def counted(serial: str, service: str, *, deadline: Deadline) -> adb.Wire:
        connections[-1] += 1
        return real(serial, service, deadline=deadline)

    monkeypatch.setattr(adb, "open_device", counted)
    reports = []
    for number in range(count):
        connections.append(0)
        reports.append(put(phone, tmp_path, number))
    assert len({report.deployment.digest for report in reports}) == count
    assert len(set(connections[1:])) == 1 and connections[1] <= 3, connections
    assert {report.sent_files for report in reports[1:]} == {("model/mod.params", "model/mod.json")}

    connections.append(0)
    x = np.arange(4, dtype=np.float32).reshape(1, 4)
    answer = DevicePlace(phone, reports[3].deployment).run(RtvmOptions(), {"x": x}, timeout=60)
    assert np.array_equal(answer.outputs["x"], x)
    listed = clean(phone, keep=count, user="tester", dry_run=True).kept
    in_order = [f"toy.{report.deployment.digest}" for report in (*reports[:3], *reports[4:], reports[3])]
    assert list(listed) == in_order[::-1], "the one that ran was used last"
    connections.append(0)
    report = clean(phone, keep=0, user="tester")
    assert connections[-1] == 1 and len(report.removed) == count
    assert entries(phone, f"{BASE}/store") == entries(phone, f"{BASE}/deployments") == []
    soon_nothing(phone)


def test_other_users_are_left_alone(phone: Device, tmp_path: Path) -> None:
    put(phone, tmp_path, 1)
    theirs = put(phone, tmp_path, 1, user="other").deployment
    assert len(clean(phone, keep=0, user="tester").removed) == 1
    assert whole(phone, theirs)


@pytest.mark.parametrize("how", ["a run", "a server's directory", "a process"])
def test_what_is_in_use_is_never_removed(phone: Device, tmp_path: Path, how: str) -> None:
    used = put(phone, tmp_path, 1).deployment
    put(phone, tmp_path, 2)

    def check() -> None:
        report = clean(phone, keep=0, user="tester")
        assert report.in_use == (f"toy.{used.digest}",)
        assert len(report.removed) == 1 or report.removed == ()
        assert whole(phone, used)

    if how == "a run":
        with workspace(phone, f"{BASE}/runs", uses=used.digest):
            check()
    elif how == "a process":
        with phone.start(["sh", "-c", "sleep 60; exit", f"{used.directory}/bin/tvm_rpc"], timeout=60):
            wait_for(lambda: any("sleep 60" in line for line in processes(phone)), "it runs")
            check()
        wait_for(lambda: not any(used.digest in line for line in processes(phone)), "it has ended")
    else:
        phone.script('mkdir -p "$1" && echo "$2" >"$1/deployment"', f"{BASE}/rpc/1-adt0", used.digest)
        check()
        phone.shell(["rm", "-rf", f"{BASE}/rpc"])
    assert clean(phone, keep=0, user="tester").removed == (f"toy.{used.digest}",)
    assert entries(phone, f"{BASE}/store") == []


def test_a_deploy_loses_nothing_to_a_clean(phone: Device, tmp_path: Path) -> None:
    """Clean after the deploy found its files present and before it wrote its manifest."""
    bundle = make_bundle(tmp_path / "bundle")
    put(phone, tmp_path, 1)
    package = make_package(tmp_path / "p", params=b"fresh")
    payload = payload_of(bundle, package)
    with open_agent(phone, f"{BASE}/tmp", script("deploy"), uses=payload.digest) as agent:
        todo = store.plan_deploy(payload, store.inspect(agent, payload, BASE, full_hash=False))
        assert len(todo.reuse) == 3
        report = clean(phone, keep=0, user="tester")
        assert report.deploying == 1 and report.files == 0 and len(report.removed) == 1
        done = store.apply(agent, todo, BASE, progress=None, dry_run=False)
    assert whole(phone, done.deployment)


def test_a_deploy_waits_for_a_clean(phone: Device, tmp_path: Path) -> None:
    put(phone, tmp_path, 1)
    reports: list[DeployReport] = []
    with open_agent(phone, f"{BASE}/clean", f"{script('workspace')}serve() {{ :; }}\n{script('serve')}"):
        deploying_too = threading.Thread(target=lambda: reports.append(put(phone, tmp_path, 2)))
        deploying_too.start()
        wait_for(lambda: entries(phone, f"{BASE}/tmp") != [], "the deploy has set its mark")
        deploying_too.join(1)
        assert deploying_too.is_alive() and not reports
    deploying_too.join(120)
    assert len(reports) == 1 and whole(phone, reports[0].deployment)


CLEAN = """
import sys
from adt.device import selection
from adt.device.deploy.workspace import clean
while True:
    clean(selection.select(sys.argv[1]), keep=0, user="tester")
    print("clean", flush=True)
"""


def test_deploys_and_cleans_at_once_leave_only_whole_deployments(phone: Device, tmp_path: Path) -> None:
    with child(CLEAN, phone.serial) as cleaning:
        assert cleaning.stdout is not None
        for number in range(6):
            put(phone, tmp_path, number)
            for file in [name for name in entries(phone, f"{BASE}/deployments") if name.endswith(".json")]:
                held = Deployment(phone.serial, *file.split(".")[:2], BASE)
                with workspace(phone, f"{BASE}/runs", uses=held.digest):
                    there = phone.script('[ -f "$1" ]', held.manifest, check=False).exit_code == 0
                    assert not there or whole(phone, held)
        assert "clean" in cleaning.stdout.readline()
    soon_nothing(phone)


def test_leftovers_and_damage_go(phone: Device, tmp_path: Path) -> None:
    deployment = put(phone, tmp_path, 1).deployment
    phone.script(
        'cd "$1" && mkdir -p tmp/999999-adtdead/store runs/999998-adtdead deployments/0123456789abcdef01234567 '
        "&& echo { >deployments/stale.json && touch tmp/999999-adtdead/store/x",
        BASE,
    )
    assert len(remains(phone)) == 3
    report = clean(phone, keep=5, user="tester")
    assert (report.leftovers, report.removed) == (2, ("stale",))
    assert remains(phone) == [] and whole(phone, deployment)


def test_the_verb(phone: Device, tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path / "b")
    for number in (1, 2):
        package = make_package(tmp_path / "p", params=b"%d" % number)
        done = invoke("deploy", package.path, "--bundle", bundle.path, "--serial", phone.serial)
        assert done.returncode == 0, done.stderr
    document = invoke_json("clean", "--keep", 1, "--dry-run", "--serial", phone.serial)
    assert len(document["removed"]) == 1 and len(document["kept"]) == 1 and document["applied"] is False
    done = invoke("clean", "--keep", 0, "--all", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["devices"]
    assert (row["serial"], len(row["removed"]), row["bytes"] > 0) == (phone.serial, 2, True)
    assert row["deploys_under_way"] == 0
    assert invoke("clean", "--keep", -1).returncode == 2
