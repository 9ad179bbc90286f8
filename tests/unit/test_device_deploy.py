"""Planning a deployment, against inventories made up in memory; names; what comes back from runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from adt.device import place
from adt.device.deploy.payload import Payload, PayloadFile, payload_of, user_directory
from adt.device.deploy.store import Inventory, parse_inventory, parse_sums, plan_deploy
from adt.errors import InputError, MismatchError, OutOfMemory, PackageError, RunError
from adt.host import npz
from support.standins.artefacts import make_bundle, make_package

A, B, C = ("a" * 64, "b" * 64, "c" * 64)
FILES = (
    PayloadFile("bin/rtvm", Path("rtvm"), A, 100),
    PayloadFile("lib/x y.so", Path("x"), B, 20),
    PayloadFile("model/mod.so", Path("mod.so"), C, 3),
)
PAYLOAD = Payload("toy", "linux-aarch64", FILES)
EMPTY = Inventory()
FULL = Inventory(
    linked=frozenset(file.name for file in FILES), manifest=PAYLOAD.manifest, hashes={A: A, B: B, C: C}
)


@pytest.mark.parametrize(
    ("inventory", "send", "damaged", "complete"),
    [
        pytest.param(EMPTY, FILES, (), False, id="empty device"),
        pytest.param(FULL, (), (), True, id="all is there"),
        pytest.param(replace(FULL, hashes={A: A, B: B}), FILES[2:], (), False, id="a file is missing"),
        pytest.param(
            replace(FULL, hashes={A: A, B: C, C: C}), FILES[1:2], FILES[1:2], False, id="a file is damaged"
        ),
        pytest.param(replace(FULL, manifest=""), (), (), False, id="no manifest"),
        pytest.param(replace(FULL, manifest="{}"), (), (), False, id="other manifest"),
        pytest.param(replace(FULL, linked=frozenset()), (), (), False, id="no links"),
    ],
)
def test_what_is_not_there_intact_is_sent(
    inventory: Inventory, send: tuple[PayloadFile, ...], damaged: tuple[PayloadFile, ...], complete: bool
) -> None:
    plan = plan_deploy(PAYLOAD, inventory)
    assert (plan.send, plan.damaged, plan.complete) == (send, damaged, complete)
    assert plan.reuse == tuple(file for file in FILES if file not in send)
    assert plan.send_bytes == sum(file.size for file in send)


def test_contents_that_occur_twice_are_sent_once() -> None:
    twice = Payload("toy", "p", (*FILES, PayloadFile("lib/again.so", Path("x"), B, 20)))
    assert plan_deploy(twice, EMPTY).send_bytes == 123
    assert plan_deploy(twice, replace(EMPTY, hashes={A: A, B: B, C: C})).reuse == twice.files


def test_the_digest_names_contents_and_names() -> None:
    renamed = replace(FILES[0], name="bin/other")
    changed = replace(FILES[0], sha256=C)
    digests = {Payload("n", "p", (file, *FILES[1:])).digest for file in (FILES[0], renamed, changed)}
    assert len(digests) == 3
    assert Payload("n", "p", FILES[::-1]).digest == PAYLOAD.digest


def test_the_answer_of_the_device_is_read() -> None:
    at_once, later = "3 77 2026-11-21 07:00:00.123456789 +0000", "3 78 2026-11-21 07:00:01.000000001 +0000"
    printed = (
        f"==links==\n2\n0\n==stats==\n{A} {at_once}\n{B} {at_once}\n{C} {later}\nstat: noise\n"
        f"==sealed==\n{A} {at_once}\n{C} {at_once}\n==manifest==\n{{}}\n"
    )
    state = parse_inventory(printed, PAYLOAD)
    assert state.linked == {"bin/rtvm", "model/mod.so"}
    assert state.stats == {A: f"{A} {at_once}", B: f"{B} {at_once}", C: f"{C} {later}"}
    assert state.doubtful == (B, C), "never hashed, and changed since it was"
    assert state.manifest == "{}\n"


@pytest.mark.parametrize("facts", ["0 0 unknown", "3 77 2026-11-21 07:00:00 +0000"])
def test_what_cannot_be_told_apart_by_its_times_is_always_hashed(facts: str) -> None:
    line = f"{A} {facts}\n"
    state = parse_inventory(f"==links==\n==stats==\n{line}==sealed==\n{line}==manifest==\n", PAYLOAD)
    assert state.doubtful == (A,)


def test_what_the_devices_sha256sum_prints_is_read() -> None:
    assert parse_sums(f"{A}  {A}\n{C} *{B}\nsha256sum: {C}: Permission denied\n") == {A: A, B: C}


def test_a_payload_holds_the_bundle_and_the_package_under_model(tmp_path: Path) -> None:
    payload = payload_of(make_bundle(tmp_path / "b"), make_package(tmp_path / "p", name="toy-1"))
    assert [file.name for file in payload.files] == [
        "bin/rtvm",
        "lib/libone.so",
        "model/mod.so",
        "model/mod.params",
        "model/mod.json",
    ]
    assert payload.name == "toy-1"
    assert payload_of(make_bundle(tmp_path / "b"), None).name == "bundle-linux-aarch64"


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "lib/../../x", "a\nb", "", "./a", "a//b"])
def test_a_manifest_cannot_name_a_file_elsewhere(tmp_path: Path, name: str) -> None:
    bundle = make_bundle(tmp_path / "b")
    files = {**bundle.manifest.files, name: bundle.manifest.files["bin/rtvm"]}
    with pytest.raises(PackageError, match=r"plain relative path|leads out|control characters"):
        payload_of(replace(bundle, manifest=replace(bundle.manifest, files=files)), None)


@pytest.mark.parametrize("name", ["../../x", "a/b", "$(x)", "a b"])
def test_a_hostile_package_name_stays_one_file_name(tmp_path: Path, name: str) -> None:
    stem = payload_of(make_bundle(tmp_path / "b"), make_package(tmp_path / "p", name=name)).name
    assert "/" not in stem and "." not in stem and " " not in stem and "$" not in stem


@pytest.mark.parametrize(
    ("user", "directory"),
    [("ann", "ann"), ("../root", "___root"), ("a b/c", "a_b_c"), ("", "user"), ("dom\\ann", "dom_ann")],
)
def test_users_get_directories_of_their_own(user: str, directory: str) -> None:
    assert user_directory(user) == f"/data/local/tmp/adt/{directory}"


def test_npz_keeps_every_name_type_and_shape(tmp_path: Path) -> None:
    arrays = {
        "file": np.zeros((2, 3), np.float16),
        "a/b:0": np.arange(6, dtype=np.int64).reshape(2, 3).T,
        "scalar": np.array(True),
        "empty": np.zeros((0, 4), np.float32),
    }
    (tmp_path / "x.npz").write_bytes(npz.npz_bytes(arrays))
    loaded = place.load_npz(tmp_path / "x.npz")
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (loaded[name].dtype, loaded[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(loaded[name], array)


def test_objects_are_no_input() -> None:
    with pytest.raises(InputError, match="the input x"):
        npz.npz_bytes({"x": np.array([{}], dtype=object)})


@pytest.mark.parametrize("data", [b"", b"PK", b"no zip at all"])
def test_damaged_outputs_are_explained(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(RunError, match="cannot be read"):
        place.load_npz(tmp_path / "x.npz")


def test_pickled_outputs_are_never_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(RunError):
        place.load_npz(tmp_path / "x.npz")


def ended(code: int, err: str = "", out: str = "") -> place.ProgramExit:
    return place.ProgramExit("S", code, out, err, "the crash log: logcat")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *((2, RunError), (3, PackageError), (4, InputError), (5, RunError), (6, MismatchError)),
        *((7, MismatchError), (8, RunError), (9, OutOfMemory), (77, RunError)),
    ],
)
def test_rtvms_own_message_and_remedy_reach_the_user(code: int, kind: type[Exception]) -> None:
    error = place.explain(ended(code, "noise\nrtvm: error: it is so\nremedy: do this\n"))
    assert type(error) is kind
    assert (error.what, error.remedy) == ("it is so", "do this")


def test_a_drivers_log_is_no_message_of_rtvms() -> None:
    log = "Error: CL_BUILD_PROGRAM_FAILURE\nerror: kernel.cl:28:1: unknown type name '_'"
    error = place.explain(ended(5, f"noise\nrtvm: error: the model failed\n{log}\nremedy: do this\n"))
    assert (error.what, error.remedy, error.details) == ("the model failed", "do this", log)


def test_without_a_message_the_output_is_shown() -> None:
    error = place.explain(ended(5, "something odd\n"))
    assert "exit code 5" in error.what
    assert error.details == "something odd"
    assert error.remedy


@pytest.mark.parametrize(
    ("code", "name"), [(139, "SIGSEGV"), (134, "SIGABRT"), (137, "SIGKILL"), (132, "SIGILL")]
)
def test_a_signal_is_named_and_leads_to_the_log(code: int, name: str) -> None:
    error = place.explain(ended(code))
    assert name in error.what
    assert "logcat" in error.remedy
    assert ("memory" in error.remedy) == (name == "SIGKILL")
    assert ("--like" in error.remedy) == (name == "SIGILL")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (127, "sh: rtvm: not found"),
        (126, "sh: rtvm: Permission denied"),
        (1, 'CANNOT LINK EXECUTABLE "rtvm": library "libx.so" not found'),
        (127, "rtvm: error while loading shared libraries: libx.so"),
    ],
)
def test_a_program_that_does_not_start_says_so(code: int, message: str) -> None:
    error = place.explain(ended(code, message))
    assert "does not start" in error.what
    assert message in error.details


@pytest.mark.parametrize("out", ["", "no json", "[1]"])
def test_a_run_without_a_report_is_an_error(out: str) -> None:
    with pytest.raises(RunError, match="report"):
        place.read_report(ended(0, out=out))
