"""Models over RPC: which server is used, what is uploaded and removed, and how failures are told."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adt.errors import InputError, MismatchError, RpcError, RunError
from adt.package.files import LIBRARY
from adt.package.package import ModelPackage
from adt.rpc import temporary_server, wire
from adt.rpc.session import explain_errors, remote_model
from adt.rpc.temporary_server import Endpoint
from adt.verbs import remote
from support.standins.rpc_records import server_record

RECORD = server_record(key="phone", deployment="/d/bundle")


@pytest.fixture
def total(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Set the number of servers that the tracker has under any key."""
    number = [1]

    def summary(_address: str) -> Any:
        return SimpleNamespace(queue=lambda _key: SimpleNamespace(total=number[0]))

    monkeypatch.setattr(wire, "summary", summary)
    return number


def test_a_server_from_the_same_bundle_is_used(total: list[int]) -> None:
    deployments = {"/d/bundle", "/d/package"}
    assert temporary_server._existing(RECORD, deployments) == Endpoint("phone", tracker="127.0.0.1:9190")
    assert temporary_server._existing(replace(RECORD, deployment="/d/package"), deployments).tracker
    assert temporary_server._existing(replace(RECORD, tracker=""), deployments) == Endpoint(
        "phone", address="127.0.0.1:9090"
    )


def test_a_key_of_several_devices_is_no_way_to_one(total: list[int]) -> None:
    total[0] = 2
    with pytest.raises(RpcError, match="2 servers have the key phone") as caught:
        temporary_server._existing(RECORD, {"/d/bundle"})
    assert "--key phone" in caught.value.remedy


def test_a_server_from_another_bundle_is_not_used(total: list[int]) -> None:
    with pytest.raises(RpcError, match="another bundle"):
        temporary_server._existing(replace(RECORD, deployment="/d/other"), {"/d/bundle"})


class Session:
    """Answers to the first requests of :func:`remote_model`."""

    def __init__(self, exist: Any = True) -> None:
        self.files: dict[str, bytes] = {}
        self.exist = exist

    def upload(self, path: str, target: str) -> None:
        self.files[target] = Path(path).read_bytes()

    def remove(self, name: str) -> None:
        del self.files[name]

    def device(self, _kind: str, _index: int) -> Any:
        outer = self

        class Device:
            @property
            def exist(self) -> bool:
                if isinstance(outer.exist, Exception):
                    raise outer.exist
                return bool(outer.exist)

        return Device()

    def load_module(self, path: str) -> Any:
        assert path.startswith("/") or list(self.files.values()) == [b"library"]
        raise RuntimeError("Traceback\n  File x\nCheck failed: wrong ELF class")


@pytest.fixture
def package(tmp_path: Path) -> ModelPackage:
    (tmp_path / LIBRARY).write_bytes(b"library")
    target = SimpleNamespace(vdevices=("opencl",), platform="linux-aarch64", machine="AARCH64")
    manifest: Any = SimpleNamespace(name="net", target=target, tvm=SimpleNamespace(version="0.25"))
    return ModelPackage(tmp_path, manifest)


@pytest.mark.parametrize("library", ["", "/d/model/mod.so"])
def test_a_library_that_does_not_load_leaves_nothing(package: ModelPackage, library: str) -> None:
    session = Session()
    with (
        pytest.raises(
            MismatchError, match="net cannot be loaded over RPC: Check failed: wrong ELF class"
        ) as caught,
        remote_model(session, package, library=library),
    ):
        pass
    assert "linux-aarch64" in caught.value.remedy and session.files == {}


@pytest.mark.parametrize("exist", [False, RuntimeError("Error! Cannot open libOpenCL!")])
def test_a_server_without_the_device(package: ModelPackage, exist: Any) -> None:
    session = Session(exist)
    with pytest.raises(MismatchError, match="no opencl device"), remote_model(session, package):
        pass
    assert session.files == {}


def test_only_what_the_model_did_is_explained(package: ModelPackage) -> None:
    with (
        pytest.raises(RunError, match="net cannot run over RPC: out of memory") as caught,
        explain_errors(package, "run"),
    ):
        raise ValueError("Traceback\n  out of memory  \n")
    assert "Traceback" in caught.value.details
    for passed in (RuntimeError("kShutdown"), InputError("wrong", remedy="Give another.")):
        with pytest.raises(type(passed)) as same, explain_errors(package, "run"):
            raise passed
        assert same.value is passed, "the session explains its end by itself"


def test_a_device_that_a_tracker_gave_is_checked_as_far_as_it_is_known(
    package: ModelPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = SimpleNamespace(platforms=("linux-aarch64",), label="board", emulated=False)
    asked: list[Any] = []
    monkeypatch.setattr(remote.selection, "select", lambda _serial: SimpleNamespace(facts=facts))
    monkeypatch.setattr(remote, "served_bundle", lambda serial: SimpleNamespace(manifest=f"of {serial}'s"))
    monkeypatch.setattr(remote, "check_pair", lambda *pair: asked.append(pair))
    unknown: Any = SimpleNamespace(serial="", target=SimpleNamespace(address="10.0.0.7:9090"))
    assert remote._tracked_device(unknown, package) == (
        "10.0.0.7:9090",
        "the RPC server at 10.0.0.7:9090",
        None,
    )
    known: Any = SimpleNamespace(serial="abcd", target=unknown.target)
    assert remote._tracked_device(known, package) == ("abcd", "board", False)
    assert asked == [("of abcd's", package.manifest)], "the bundle that the server runs from"
    facts.platforms = ("android-arm64-v8a",)
    with pytest.raises(MismatchError, match="runs android-arm64-v8a"):
        remote._tracked_device(known, package)
