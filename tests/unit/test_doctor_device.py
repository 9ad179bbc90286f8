"""Verdicts of the doctor on adb, its server, devices and their offers, RPC ports and packages."""

import os
import socket
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from adt.checkup import device, package, rpc
from adt.checkup.check import Action, Area, Check, Fix, Status, answers, make_scope
from adt.checkup.device import Server
from adt.checkup.rpc import Listener, Port
from adt.device.opencl import PLACES
from adt.device.scripts import script
from adt.device.selection import DeviceInfo
from adt.device.survey import STORAGE, DeviceFacts, Survey, arguments, parse
from adt.device.transport.adb import Adb
from adt.rpc import wire
from adt.rpc.server import ServerStatus
from adt.rpc.tracker import TrackerInfo
from adt.virtual.state import EmulatorRecord
from support.devices.adb_server import Peer, fake_server, text
from support.devices.ports import free_port
from support.devices.programs import program_output
from support.standins.artefacts import make_bundle, make_package

PHONE = DeviceFacts(
    {"ro.product.cpu.abilist": "arm64-v8a", "ro.build.version.sdk": "34", "ro.product.model": "Phone"},
    "aarch64",
    4096,
)
VIRTUAL = DeviceFacts({"ro.adt.platform": "linux-aarch64"}, "aarch64", 4096)


def info(serial: str, state: str = "device") -> DeviceInfo:
    return DeviceInfo(serial, state, "Model", "", "usb")


# --- adb ---------------------------------------------------------------------


def test_adb_that_is_old_or_mute() -> None:
    assert device.check_program(Adb(Path("/adb"), (36, 0, 0), "PATH")).status is Status.OK
    old = device.check_program(Adb(Path("/adb"), (29, 0, 6), "PATH"))
    assert old.status is Status.WARNING and "`adb pair`" in old.found
    assert device.check_program(Adb(Path("/adb"), (), "PATH")).status is Status.WARNING


def test_the_protocol_is_read_from_what_adb_prints() -> None:
    text = "Android Debug Bridge version 1.0.41\nVersion 36.0.0-13206524\nInstalled as /adb\n"
    assert device.parse_protocol(text) == 41
    assert device.parse_protocol("nothing") is None


def test_a_server_that_does_not_run_is_a_warning_with_a_fix() -> None:
    (check,) = device.check_server(Server(5037, running=False), [], "default")
    assert check.status is Status.WARNING and check.fix == Fix(Action.START_SERVER)


def test_a_server_with_a_problem_fails() -> None:
    server = Server(5037, True, problem="took longer", remedy="end it", holder="/bin/x, pid 3")
    (check,) = device.check_server(server, [], "default")
    assert check.status is Status.FAILED
    assert check.remedy == "end it" and "/bin/x, pid 3" in check.origin


def test_clients_of_another_version_are_told_that_one_kills_the_other() -> None:
    server = Server(5037, True, 40)
    clients = {Path("/same"): 40, Path("/mute"): None, Path("/new"): 41}
    ok, clash = device.check_server(server, clients, "default")
    assert ok.status is Status.OK
    assert clash.status is Status.WARNING and "/new speaks 41" in clash.found and "ends" in clash.found


def test_a_server_that_other_machines_reach_is_told() -> None:
    checks = list(device.check_server(Server(5037, True, 41, exposed="0.0.0.0"), {}, "default"))
    assert [check.status for check in checks] == [Status.OK, Status.WARNING]
    assert "0.0.0.0" in checks[1].found


def test_no_server_is_started_by_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
    monkeypatch.delenv("ADB_SERVER_SOCKET", raising=False)
    assert device.look() == Server(port, running=False)
    assert rpc.listeners([port]) == []


def test_a_server_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(peer: Peer) -> None:
        assert peer.request() == "host:version"
        peer.send(text("0029"))

    def listing(peer: Peer) -> None:
        assert peer.request() == "host:devices-l"
        peer.send(text("abc device usb:1 model:M\n"))

    with fake_server(monkeypatch, version, listing) as server:
        status = device.look()
    assert status.usable and status.protocol == 41
    assert [entry.serial for entry in status.devices] == ["abc"]
    assert status.exposed == ""
    assert status.port == server.port and f"pid {os.getpid()}" in status.holder


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "longer than"),
        (b"HTTP/1.1 400\r\n", "does not speak adb"),
        (b"OKAY0004zzzz", "zzzz"),
        (b"", "broke"),
    ],
    ids=["silence", "another protocol", "no number", "hang-up"],
)
def test_a_server_that_is_none_fails_in_bounded_time(
    monkeypatch: pytest.MonkeyPatch, answer: bytes | None, message: str
) -> None:
    monkeypatch.setattr(device, "SERVER_SECONDS", 0.3)

    def handler(peer: Peer) -> None:
        if answer is None:
            peer.drain()
        else:
            peer.request(answer)

    with fake_server(monkeypatch, handler):
        status = device.look()
    assert status.running and not status.usable
    assert message in status.problem and "ANDROID_ADB_SERVER_PORT" in status.remedy


def test_an_address_that_cannot_be_used_is_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADB_SERVER_SOCKET", "tcp:192.0.2.1:5037")
    environ = {"ADB_SERVER_SOCKET": "tcp:192.0.2.1:5037"}
    checks = [
        check for query in device.questions(make_scope({}, environ)) for check in answers(Area.DEVICE, query)
    ]
    server = next(check for check in checks if check.name == "adb server")
    assert server.status is Status.FAILED and "192.0.2.1" in server.found


def test_where_the_servers_address_comes_from() -> None:
    assert device.address_origin(make_scope({}, {})) == "adb's default port"
    environ = {"ANDROID_ADB_SERVER_PORT": "1", "ADB_SERVER_SOCKET": "tcp:2"}
    assert device.address_origin(make_scope({}, environ)) == "ADB_SERVER_SOCKET"


# --- devices -----------------------------------------------------------------


def states(
    *devices: DeviceInfo, serial: str = "", running: tuple[EmulatorRecord, ...] = (), needed: bool = False
) -> list[Check]:
    return list(device.check_states(devices, serial, running, needed=needed))


def test_no_device_is_a_warning_until_somebody_asks() -> None:
    (check,) = states()
    assert check.status is Status.WARNING and "adt emulator start" in check.remedy
    assert states(needed=True)[0].status is Status.FAILED


@pytest.mark.parametrize(
    ("state", "advice"),
    [
        ("unauthorized", "Allow USB debugging"),
        ("offline", "adt adb -s abc -- reconnect"),
        ("no permissions", "udev"),
    ],
)
def test_a_device_that_is_not_ready_has_a_remedy(state: str, advice: str) -> None:
    (check,) = states(info("abc", state))
    assert check.status is Status.FAILED and state in check.found and advice in check.remedy
    assert check.fix == (Fix(Action.RECONNECT_OFFLINE) if state == "offline" else None)


def test_a_device_that_is_passed_over_is_a_warning() -> None:
    ready, away = states(info("one"), info("two", "unauthorized"))
    assert (ready.status, away.status) == (Status.OK, Status.WARNING)
    ready, away = states(info("one"), info("two", "unauthorized"), serial="two")
    assert (ready.status, away.status) == (Status.OK, Status.FAILED)
    assert states(info("one", "connecting"))[0].status is Status.WARNING


def test_a_named_device_must_be_there() -> None:
    absent, other = states(info("one"), serial="two")
    assert absent.status is Status.FAILED and "it sees one" in absent.found and absent.fix is None
    assert other.status is Status.OK
    (address,) = states(serial="127.0.0.1:5")
    assert address.fix == Fix(Action.CONNECT, ("127.0.0.1:5",))


def test_a_virtual_device_that_adb_does_not_know_is_told() -> None:
    record = EmulatorRecord("adt.emulator", 1, "toy", 5555, 1, 1, "", "userns", "/", "")
    (check,) = states(running=(record,))
    assert check.status is Status.WARNING and check.fix == Fix(Action.CONNECT, ("127.0.0.1:5555",))
    assert [check.name for check in states(info("127.0.0.1:5555"), running=(record,))] == [
        "device 127.0.0.1:5555"
    ]


def by_name(checks: Iterator[Check]) -> dict[str, Check]:
    return {check.name.removeprefix("S: "): check for check in checks}


def test_facts() -> None:
    checks = by_name(device.check_facts("S", PHONE, 28))
    assert {check.status for check in checks.values()} == {Status.OK}
    assert checks["API level"].found == "34" and checks["page size"].found == "4096 bytes"
    assert by_name(device.check_facts("S", PHONE, 35))["API level"].status is Status.WARNING
    old = by_name(device.check_facts("S", replace(PHONE, properties={}, machine="mips"), 28))
    assert old["platform"].status is Status.FAILED and "API level" not in old
    assert (
        by_name(device.check_facts("S", replace(PHONE, page_size=None), 28))["page size"].status
        is Status.WARNING
    )
    large = by_name(device.check_facts("S", replace(PHONE, page_size=16384), 28))["page size"]
    assert large.status is Status.OK and "aligned" in large.found


SURVEY = """\
==space==
Filesystem 1K-blocks Used Available Use% Mounted on
/dev/block/x 1000000 1 {free} 1% /data
==programs==
code 7
==selinux==
Enforcing
==libraries==
/vendor/lib64/libOpenCL.so /vendor/lib64/libOpenCL.so
/system/vendor/lib64/libOpenCL.so /vendor/lib64/libOpenCL.so
==public==
libOpenCL.so
libfoo.so 64
==deployments==
/data/local/tmp/adt/me/deployments/toy.json
/data/local/tmp/adt/me/deployments/other.json
==store==
2048\t/data/local/tmp/adt
"""


def surveyed(facts: DeviceFacts = PHONE, free: int = 900_000, **changes: str) -> dict[str, Check]:
    parts = parse(SURVEY.format(free=free)).text
    return by_name(device.check_survey("S", facts, Survey({**parts, **changes})))


def test_a_good_survey() -> None:
    checks = surveyed()
    assert {check.status for check in checks.values()} == {Status.OK}
    assert checks["SELinux"].found == "Enforcing"
    assert checks["deployments"].found == "2: toy, other, 2.0 MiB"
    assert "not tried" in checks["OpenCL"].found
    assert checks["OpenCL"].found.count("/vendor/lib64/libOpenCL.so") == 2  # one library, two names
    assert checks["OpenCL in apps"].found == "apps may open libOpenCL.so"


def test_a_survey_with_empty_parts_is_read() -> None:
    empty = "\n".join(f"=={name}==" for name in STORAGE) + "\n"
    assert {parse(empty)[name] for name in STORAGE} == {parse("")[name] for name in STORAGE} == {""}


def test_room_on_the_device() -> None:
    assert surveyed(free=50_000)["free space"].status is Status.WARNING
    assert surveyed(free=5_000)["free space"].status is Status.FAILED
    assert "adt clean" in surveyed(free=5_000)["free space"].remedy
    assert surveyed(space="df: nothing")["free space"].status is Status.WARNING


def test_a_directory_that_does_not_let_programs_run() -> None:
    check = surveyed(programs="sh: /data/local/tmp/x/try: Permission denied\ncode 126")["programs"]
    assert check.status is Status.FAILED and "noexec" in check.found and "Permission denied" in check.found
    full = surveyed(programs="mkdir: No space left on device")["programs"]
    assert full.status is Status.FAILED and "No space left" in full.found
    assert surveyed(programs="")["programs"].status is Status.FAILED


def test_opencl_that_is_not_there() -> None:
    none = surveyed(libraries="")["OpenCL"]
    assert none.status is Status.WARNING and "--target cpu" in none.remedy
    assert surveyed(VIRTUAL, libraries="")["OpenCL"].status is Status.OK
    hidden = surveyed(public="libfoo.so")["OpenCL in apps"]
    assert hidden.status is Status.WARNING and "none" in hidden.found


def test_the_vendors_names_are_looked_for() -> None:
    for path in (
        "/vendor/lib64/libOpenCL.so",
        "/system/vendor/lib64/libOpenCL.so",
        "/vendor/lib64/libOpenCL-pixel.so",
        "/vendor/lib64/egl/libGLES_mali.so",
        "/vendor/lib64/libPVROCL.so",
        "/system/vendor/lib/libPVROCL.so",
    ):
        assert path in PLACES
    assert len(PLACES) == len(set(PLACES))


def test_the_survey_is_a_shell_script_that_leaves_nothing(tmp_path: Path) -> None:
    parts, _, *libraries = arguments(STORAGE, ["/etc/passwd", "/absent"])
    words = ("sh", "-c", script("survey"), "sh", parts, str(tmp_path), *libraries)
    survey_answers = parse(program_output(*words))
    assert survey_answers["programs"] == "code 7"
    assert survey_answers["libraries"] == "/etc/passwd /etc/passwd"
    assert list(tmp_path.iterdir()) == []


def test_a_device_is_asked_for_only_when_it_is_ready() -> None:
    server = Server(5037, True, 41, (info("one"), info("two", "offline"), info("three")))
    assert device.ready(lambda: server, "") == ["one", "three"]
    assert device.ready(lambda: server, "three") == ["three"]
    assert device.ready(lambda: server, "two") == []


# --- sockets and RPC ---------------------------------------------------------

TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:23E6 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 111 1
   1: 00000000:23E7 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 222 1
   2: 0100007F:23E6 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1000        0 333 1
   3: 00000000000000000000000001000000:23E8 00000000000000000000000000000000:0000 0A 0:0 0:0 0 1000 0 444 1
   4: 0000000000000000FFFF00000100007F:23E9 00000000000000000000000000000000:0000 0A 0:0 0:0 0 1000 0 555 1
"""


def test_proc_net_tcp_is_read() -> None:
    listeners = rpc.parse_listeners(TCP)
    assert [(row.address, row.port, row.inode, row.loopback) for row in listeners] == [
        ("127.0.0.1", 9190, "111", True),
        ("0.0.0.0", 9191, "222", False),
        ("::1", 9192, "444", True),
        ("127.0.0.1", 9193, "555", True),
    ]


def port(number: int, tracker: wire.Summary | None = None, *, exposed: bool = False) -> Port:
    return Port(number, "/bin/x, pid 7", "0.0.0.0" if exposed else "127.0.0.1", exposed, tracker)


KNOWN = wire.Summary((wire.Queue("phone", 1, 1, 0),), (wire.Registered("phone", "127.0.0.1:9191"),))


def test_free_ports() -> None:
    ports, tracker = rpc.check_ports([])
    assert ports.status is tracker.status is Status.OK
    assert "10 of 10 free" in ports.found and "none runs" in tracker.found


def test_ports_held_by_something_else() -> None:
    some = next(iter(rpc.check_ports([port(9190)])))
    assert some.status is Status.WARNING and "9190 (/bin/x, pid 7)" in some.found
    every = next(iter(rpc.check_ports([port(number) for number in rpc.PORTS])))
    assert every.status is Status.FAILED and "--port-end" in every.remedy


def test_a_tracker_with_and_without_servers() -> None:
    ports, tracker = rpc.check_ports([port(9190, KNOWN)])
    assert ports.status is tracker.status is Status.OK
    assert tracker.found == "registered: phone: 1 of 1 free, 0 waiting"
    _, empty = rpc.check_ports([port(9190, wire.Summary((), ()))])
    assert empty.status is Status.WARNING and "adb reverse" in empty.remedy


def test_a_tracker_that_other_machines_reach() -> None:
    exposed = [
        check for check in rpc.check_ports([port(9190, KNOWN, exposed=True)]) if "0.0.0.0" in check.found
    ]
    assert [check.status for check in exposed] == [Status.WARNING]
    assert "--host 127.0.0.1" in exposed[0].remedy


@pytest.mark.parametrize(
    ("state", "status", "remedy"),
    [
        ("ready", Status.OK, ""),
        ("waiting", Status.WARNING, "get-state"),
        ("lost", Status.WARNING, "adt rpc stop --serial s"),
        ("failed", Status.WARNING, "adt rpc start --serial s --key k"),
        ("restarting", Status.WARNING, "adt rpc status"),
    ],
)
def test_servers_of_our_own(state: str, status: Status, remedy: str) -> None:
    server = ServerStatus("s", "k", state, "127.0.0.1:9090", "", 1, 2, 3.0, 1, "SIGSEGV", Path("/log"))
    check = rpc.check_server(server)
    assert check.status is status and remedy in check.remedy and "SIGSEGV" in check.found


def test_our_own_tracker_that_died() -> None:
    assert list(rpc.check_own_tracker(TrackerInfo(False, ""))) == []
    assert list(rpc.check_own_tracker(TrackerInfo(True, "127.0.0.1:9190"))) == []
    (check,) = rpc.check_own_tracker(TrackerInfo(False, "127.0.0.1:9190", error="it has died"))
    assert check.status is Status.WARNING and check.remedy == "adt tracker start"


def test_packages_for_rpc() -> None:
    assert rpc.check_packages([]).status is Status.OK
    check = rpc.check_packages(["psutil"])
    assert (check.status, check.remedy) == (Status.WARNING, f"{sys.executable} -m pip install psutil")


def test_what_listens_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    summary = wire.Summary((), ())
    monkeypatch.setattr(wire, "summary", lambda address, seconds: {"127.0.0.1:9190": summary}[address])
    assert rpc.ask(9190) is summary


def test_what_is_no_tracker_has_no_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "SECONDS", 0.3)
    with fake_server(monkeypatch, Peer.drain) as silent:
        assert rpc.ask(silent.port) is None


def test_taken_ports_are_found_with_their_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as plug, socket.create_server(("127.0.0.1", 0)) as open_plug:
        numbers = [plug.getsockname()[1], open_plug.getsockname()[1]]
        monkeypatch.setattr(rpc, "PORTS", numbers)
        real = rpc.listeners

        def second_is_open(ports: Iterable[int]) -> list[Listener]:  # nothing here may really be
            return [replace(row, address="0.0.0.0") if row.port == numbers[1] else row for row in real(ports)]

        monkeypatch.setattr(rpc, "listeners", second_is_open)
        first, second = rpc.look()
    assert (first.number, first.exposed, second.exposed) == (numbers[0], False, True)
    assert "python" in first.holder and first.tracker is None
    assert rpc.look() == []


# --- packages ----------------------------------------------------------------


@pytest.fixture
def no_adb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Run no adb server, and give an empty cache."""
    monkeypatch.setattr(package, "look", lambda: Server(5037, running=False))
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def examined(
    package_dir: Path | None = None, bundle: Path | None = None, *, named: bool = False
) -> list[Check]:
    areas = (Area.PACKAGE,) if named else ()
    scope = make_scope({}, {}, areas=areas, package=package_dir, bundle=bundle)
    return [check for question in package.questions(scope) for check in answers(Area.DEVICE, question)]


def test_nothing_is_said_of_packages_unless_asked(no_adb: Path) -> None:
    assert examined() == []
    (check,) = examined(named=True)
    assert check.status is Status.FAILED and "--package DIR" in check.remedy


def test_a_package_and_its_bundle(no_adb: Path) -> None:
    toy = make_package(no_adb / "toy").path
    checks = examined(toy)
    assert [(check.name, check.status) for check in checks] == [
        ("package", Status.OK),
        ("bundle", Status.WARNING),
    ]
    assert "adt build-target --for linux-aarch64" in checks[1].remedy
    make_bundle(no_adb / "cache/bundles/linux-aarch64-0")
    checks = examined(toy)
    assert [(check.name, check.status) for check in checks] == [
        ("package", Status.OK),
        ("bundle", Status.OK),
        ("package and bundle", Status.OK),
    ]


def test_the_bundle_that_was_built_last_is_taken(no_adb: Path) -> None:
    for name, age in (("b", 100), ("c", 50), ("a", 200)):
        path = make_bundle(no_adb / "cache/bundles" / name).path
        os.utime(path / "bundle.json", (1_000_000 - age, 1_000_000 - age))
    toy = make_package(no_adb / "toy")
    assert package.newest_bundle(toy) == no_adb / "cache/bundles/c"


def test_a_damaged_package_does_not_hide_its_bundle(no_adb: Path) -> None:
    toy = make_package(no_adb / "toy").path
    (toy / "mod.so").write_bytes(b"other")
    bundle = make_bundle(no_adb / "bundle").path
    first, second = examined(toy, bundle)
    assert (first.status, second.status) == (Status.FAILED, Status.OK)
    assert "mod.so" in first.found and "adt compile" in first.remedy
    (missing,) = examined(no_adb / "absent")
    assert missing.status is Status.FAILED


def test_a_pair_that_does_not_fit(no_adb: Path) -> None:
    toy = make_package(no_adb / "toy")
    text = (toy.path / "mod.json").read_text().replace('"alignment": 32', '"alignment": 64')
    (toy.path / "mod.json").write_text(text)
    checks = examined(toy.path, make_bundle(no_adb / "bundle").path)
    assert checks[-1].name == "package and bundle" and checks[-1].status is Status.FAILED
    assert "64 bytes" in checks[-1].found and "--alignment 64" in checks[-1].remedy


def test_a_device_that_the_bundle_is_not_for(no_adb: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(5037, True, 41, (info("one"),))
    monkeypatch.setattr(package, "look", lambda: server)
    monkeypatch.setattr(package, "Device", lambda serial: type("Fake", (), {"facts": PHONE}))
    bundle = make_bundle(no_adb / "bundle").path
    (_, fit) = examined(bundle=bundle)
    assert fit.name == "bundle on one" and fit.status is Status.FAILED
    monkeypatch.setattr(package, "Device", lambda serial: type("Fake", (), {"facts": VIRTUAL}))
    assert examined(bundle=bundle)[-1].status is Status.OK
