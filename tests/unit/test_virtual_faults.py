"""Specifications of faults, what is armed, and the packet that changes it."""

import json
from pathlib import Path

import pytest

from adt.virtual import filesystem
from support.devices.faults import VALUES, Fault, Injector, parse
from support.devices.faulty_device import change

GOOD = (
    "drop-after=0",
    "stall-after=64k@once",
    "reboot-after=1M",
    "bandwidth=500k",
    "truncate",
    "enospc=1g",
    "wrong-hash@once",
    "readonly=/data/local/tmp",
    "unauthorized=2.5",
    "offline@once",
    "no-shell-v2",
)


def test_every_kind_is_read_and_written_back() -> None:
    read = parse(GOOD)
    assert tuple(map(str, read)) == GOOD
    assert {fault.kind for fault in read} == set(VALUES)
    assert read[1] == Fault("stall-after", "64k", True) and read[1].amount == 65536
    assert read[2].amount == 1 << 20 and read[8].seconds == 2.5
    assert read[4].amount is None


@pytest.mark.parametrize(
    "text",
    ["", "late", "drop-after", "drop-after=", "drop-after=x", "drop-after=-1", "drop-after=1t", "offline=1",
     "bandwidth=0", "unauthorized=soon", "readonly=data", "readonly", "wrong-hash=", "offline@twice",
     "offline@once@once", "readonly=/data@once"],
)  # fmt: skip
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text!r} is not a fault"):
        parse([text])


def test_a_kind_is_given_once() -> None:
    with pytest.raises(ValueError, match="given twice"):
        parse(["drop-after=1", "drop-after=2"])
    assert len(parse(["readonly=/data", "readonly=/sdcard"])) == 2


def test_once_is_gone_and_the_rest_stays() -> None:
    injector = Injector()
    injector.replace(parse(["wrong-hash@once", "truncate"]))
    assert injector.strikes("wrong-hash") and not injector.strikes("wrong-hash")
    assert injector.strikes("truncate") and injector.strikes("truncate")
    assert not injector.strikes("offline")


class Connection:
    """Record of what a fault did to a connection."""

    def __init__(self, injector: Injector) -> None:
        self.cuts = 0
        injector.connections.add(self)

    def on_faults(self) -> None:
        pass

    def cut(self) -> None:
        self.cuts += 1


def test_shell_v2_is_offered_again_through_a_new_connection() -> None:
    injector = Injector()
    connection = Connection(injector)
    injector.replace(parse(["no-shell-v2"]))
    assert injector.features(("shell_v2", "ls_v2")) == ("ls_v2",)
    injector.replace(parse(["no-shell-v2", "truncate"]))
    assert connection.cuts == 1, "nothing new for a new connection"
    injector.replace(())
    assert connection.cuts == 2 and injector.features(("shell_v2",)) == ("shell_v2",)


def test_readonly_of_a_directory_that_is_not_there() -> None:
    injector = Injector()
    with pytest.raises(OSError, match="no directory /none/such"):
        injector.replace(parse(["truncate", "readonly=/none/such"]))
    assert injector.armed() == ()


def test_faults_are_changed_by_a_packet() -> None:
    injector = Injector()
    assert change(injector, b"{}") == {"faults": []}
    armed = {"faults": ["offline", "truncate=9@once"]}
    assert change(injector, json.dumps(armed).encode()) == change(injector, b"{}") == armed
    for nonsense in (b"", b"no json", b'{"faults": ["late"]}', b'{"faults": ["readonly=/none/such"]}'):
        assert "error" in change(injector, nonsense)
    assert change(injector, b"{}") == armed
    assert change(injector, b'{"faults": []}') == {"faults": []}


def test_boot_identifiers_are_uuids_and_differ(tmp_path: Path) -> None:
    found = set()
    for _ in range(3):
        filesystem.new_boot_id(tmp_path / "id")
        text = (tmp_path / "id").read_text()
        assert [len(part) for part in text.strip().split("-")] == [8, 4, 4, 4, 12] and text[14] == "4"
        found.add(text)
    assert len(found) == 3
