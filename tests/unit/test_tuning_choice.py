"""Choice of the records of which a compile takes its schedules, without TVM."""

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adt.compiler.passes.records import traces
from adt.compiler.passes.records.key import key_words, target_key, tvm_version, without_textures
from adt.compiler.passes.records.tuning import Tuning
from adt.compiler.targets import ModelTarget
from adt.errors import ConfigError, PackageError
from adt.package.manifest import PackageLike
from adt.tuning.database import tuned_schedules
from adt.tuning.database.store import open_database
from adt.tuning.records import BASELINE, Context, MeasuredOn, Record, Workload

ARM = ModelTarget(
    "cpu",
    "cpu",
    {
        "kind": "llvm",
        "mtriple": "aarch64-linux-gnu",
        "mcpu": "cortex-a76",
        "mattr": ["+dotprod", "+fullfp16"],
    },
    ("cpu",),
)
ADRENO = ModelTarget(
    "adreno",
    "opencl",
    {"kind": "opencl", "device": "adreno", "keys": ["adreno"], "host": ARM.spec, "max_num_threads": 1024},
    ("opencl", "opencl"),
    textures=True,
)
KEY = target_key(ADRENO)
PHONE = Context(KEY, "0.25.0", "Adreno (TM) 650", "V@0502")
NEWER = replace(PHONE, driver="V@0615")
OTHER = replace(PHONE, device="Adreno (TM) 740", driver="V@0700")
LIKE = PackageLike("a phone", "SM8250", PHONE.device, PHONE.driver, True, (), {}, ())


def test_a_target_s_key_has_what_decides_its_kernels() -> None:
    def arm(**changes: Any) -> str:
        return target_key(replace(ARM, spec={**ARM.spec, **changes}))

    same = [
        arm(),
        arm(mtriple="aarch64-linux-android28"),
        arm(**{"num-cores": 8}),
        arm(mattr=["+fullfp16", "+dotprod"]),
    ]
    assert len(set(same)) == 1
    others = [
        arm(mcpu="cortex-a53"),
        arm(mattr=["+dotprod"]),
        arm(mtriple="x86_64-linux-gnu"),
        arm(jit="orc"),
    ]
    assert len({*same, *others}) == 5
    assert arm(mtriple="armv7a-linux-androideabi28") == arm(mtriple="armv7-linux-gnueabihf")


def test_a_gpu_s_key_leaves_out_its_limits_and_the_processor_beside_it() -> None:
    elsewhere = {**ADRENO.spec, "host": {"kind": "llvm"}, "max_num_threads": 64}
    assert target_key(replace(ADRENO, spec=elsewhere)) == KEY
    assert target_key(replace(ADRENO, textures=False)) != KEY
    assert target_key(replace(ADRENO, spec={**ADRENO.spec, "device": "mali"})) != KEY


def test_cudas_records_are_an_architectures() -> None:
    orin, limited, thor = (
        replace(ADRENO, device="cuda", textures=False, spec={"kind": "cuda", **more})
        for more in ({"arch": "sm_87"}, {"arch": "sm_87", "max_threads_per_block": 512}, {"arch": "sm_110"})
    )
    keys = [target_key(target) for target in (orin, limited, thor)]
    assert keys[0] == keys[1] != keys[2]
    assert key_words(keys[0]) == "cuda sm_87"
    assert without_textures(keys[0]) is None


def test_keys_are_said_to_people() -> None:
    assert key_words(KEY) == "adreno (textures)"
    assert key_words(target_key(replace(ADRENO, textures=False))) == "adreno (buffers)"
    assert key_words(target_key(ARM)) == "aarch64 cortex-a76 +dotprod +fullfp16"
    assert key_words("no JSON") == "no JSON"


@pytest.mark.parametrize("text", ["0.25.0", "0.25.0.post1", "0.25.0.dev12+g1234567", "0.25.0+cpu"])
def test_versions_of_tvm_have_three_numbers(text: str) -> None:
    assert tvm_version(text) == "0.25.0"


@pytest.mark.parametrize("text", ["", "no JSON", "{}", "[]", "[[]]", "[[], 1]"])
def test_what_is_no_trace_is_refused(text: str) -> None:
    with pytest.raises(traces.TraceError):
        traces.canonical(text)


def test_one_trace_has_one_text() -> None:
    assert traces.canonical(' [ [["GetSBlock", [], ["a", "main"], ["b0"]]],\n []] ') == (
        '[[["GetSBlock",[],["a","main"],["b0"]]],[]]'
    )


def result(
    workload: str, trace: str, seconds: float, context: Context = PHONE, *, emulated: bool = False
) -> Record:
    on = MeasuredOn("serial", "a phone", None, emulated)
    return Record(workload, context, "kernel", trace, (seconds,), None, on, "", 1.0)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Make the directory of the databases."""
    return tmp_path / "db"


def keep(directory: Path, records: Iterable[Record]) -> None:
    records = tuple(records)
    ids = sorted({record.workload for record in records})
    with open_database(directory, write=True) as database:
        database.add(records, [Workload(name, "1", "0.25.0", f"module of {name}") for name in ids])


def taken(directory: Path, like: PackageLike | None = None, tuned_on: str = "") -> Tuning | None:
    return tuned_schedules.tuning_for_target(directory, ADRENO, "0.25.0", tuned_on=tuned_on, like=like)


def test_the_fastest_of_each_workload_is_taken_with_its_baseline(directory: Path) -> None:
    keep(
        directory,
        [
            result("a", BASELINE, 3.0),
            result("a", "slow", 2.0),
            result("a", "fast", 1.0),
            result("b", BASELINE, 1.0),
            result("b", "slower than untuned", 2.0),
            result("c", "imported", 5.0),
        ],
    )
    choice = taken(directory)
    assert choice is not None
    assert [(k.workload, k.trace, k.seconds, k.baseline, k.faster) for k in choice.kernels] == [
        ("module of a", "fast", 1.0, 3.0, True),
        ("module of b", "slower than untuned", 2.0, 1.0, False),
        ("module of c", "imported", 5.0, None, True),
    ]
    assert (choice.device, choice.driver, choice.emulated) == (PHONE.device, PHONE.driver, False)


def test_the_digest_changes_with_what_decides_a_package(directory: Path) -> None:
    def digest() -> str:
        choice = taken(directory)
        assert choice is not None
        return choice.digest

    keep(directory, [result("a", BASELINE, 3.0), result("a", "fast", 1.0)])
    first = digest()
    keep(directory, [result("a", "slow", 2.0), result("a", "fast", 1.1), result("a", "fast", 0.9)])
    assert digest() == first, "times alone decide no byte"
    keep(directory, [result("a", "faster", 0.5)])
    second = digest()
    assert second != first
    keep(directory, [result("a", BASELINE, 0.1)] * 3)
    assert digest() != second, "the untuned schedule is the fastest now"


def test_one_device_needs_no_choice_and_several_do(directory: Path) -> None:
    keep(directory, [result("a", "x", 1.0, PHONE)])
    keep(directory, [result("a", "y", 1.0, replace(PHONE, target="another target", device="elsewhere"))])
    choice = taken(directory)
    assert choice is not None and choice.device == PHONE.device
    keep(directory, [result("a", "z", 1.0, OTHER)])
    with pytest.raises(ConfigError) as raised:
        taken(directory)
    assert "Adreno (TM) 650, V@0502" in raised.value.details and "Adreno (TM) 740" in raised.value.details
    assert "--tuned-on" in raised.value.remedy


@pytest.mark.parametrize(
    ("words", "driver"),
    [
        ("Adreno (TM) 740", "V@0700"),
        ("740", "V@0700"),
        ("ADRENO (TM) 650, v@0615", "V@0615"),
        ("0502", "V@0502"),
    ],
)
def test_words_choose_among_devices_and_drivers(directory: Path, words: str, driver: str) -> None:
    keep(directory, [result("a", "x", 1.0, context) for context in (PHONE, NEWER, OTHER)])
    choice = taken(directory, like=LIKE, tuned_on=words)
    assert choice is not None and choice.driver == driver


@pytest.mark.parametrize(("words", "count"), [("650", 2), ("Mali", 0)])
def test_words_that_mean_none_or_several_are_refused(directory: Path, words: str, count: int) -> None:
    keep(directory, [result("a", "x", 1.0, context) for context in (PHONE, NEWER, OTHER)])
    with pytest.raises(ConfigError) as raised:
        taken(directory, tuned_on=words)
    assert len(raised.value.details.splitlines()) == (count or 3)


def test_the_device_that_is_compiled_for_chooses_its_records(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keep(directory, [result("a", "x", 1.0, context) for context in (NEWER, OTHER, PHONE)])
    choice = taken(directory, like=LIKE)
    assert choice is not None and (choice.device, choice.driver) == (PHONE.device, PHONE.driver)
    assert not caplog.records


def test_for_a_cpu_its_system_on_chip_chooses(directory: Path) -> None:
    chip, other = (Context(target_key(ARM), "0.25.0", name, "") for name in ("SM8250", "SM8550"))
    keep(directory, [result("a", "x", 1.0, context) for context in (chip, other)])
    choice = tuned_schedules.tuning_for_target(directory, ARM, "0.25.0", like=LIKE)
    assert choice is not None and (choice.device, choice.driver) == ("SM8250", "")


def test_records_of_another_driver_are_taken_with_a_warning(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keep(directory, [result("a", "x", 1.0, context) for context in (PHONE, OTHER)])
    choice = taken(directory, like=replace(LIKE, opencl_driver="V@0999"))
    assert choice is not None and choice.driver == PHONE.driver
    assert "V@0502" in caplog.text and "V@0999" in caplog.text


def test_no_other_device_s_records_are_taken(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    keep(directory, [result("a", "x", 1.0, OTHER)])
    assert taken(directory, like=LIKE) is None
    assert "no records of Adreno (TM) 650" in caplog.text and "Adreno (TM) 740" in caplog.text


@pytest.mark.parametrize("change", [{"tvm": "0.26.0"}, {"target": target_key(ARM)}])
def test_records_for_another_target_or_tvm_are_none(
    directory: Path, caplog: pytest.LogCaptureFixture, change: dict[str, str]
) -> None:
    keep(directory, [result("a", "x", 1.0, replace(PHONE, **change))])
    assert taken(directory) is None
    [warning] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "no kernel is tuned" in warning.message and PHONE.device in warning.message


def test_emulated_times_are_named(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    keep(directory, [result("a", "x", 1.0, emulated=True)])
    choice = taken(directory)
    assert choice is not None and choice.emulated
    assert "emulation" in caplog.text


def test_a_directory_without_a_database_is_an_error(directory: Path) -> None:
    with pytest.raises(PackageError):
        taken(directory)


BUFFERS = replace(PHONE, target=target_key(replace(ADRENO, textures=False)))
"""PHONE, with all tensors in buffers."""


def test_records_without_textures_are_taken_of_the_same_device_and_driver_alone(directory: Path) -> None:
    keep(directory, [result("a", "fast", 1.0)])
    alone = taken(directory)
    keep(directory, [result("c", "x", 1.0, replace(BUFFERS, device="another"))])
    keep(directory, [result("c", "x", 1.0, replace(BUFFERS, driver="V@0001"))])
    assert taken(directory) == alone is not None
    keep(directory, [result("c", "quick", 5.0, BUFFERS)])
    both = taken(directory)
    assert both is not None and both.digest != alone.digest
    assert [kernel.trace for kernel in both.kernels] == ["fast", "quick"]
    assert both.device == PHONE.device


def test_a_kernel_of_both_forms_has_the_schedule_for_textures(directory: Path) -> None:
    keep(directory, [result("a", "ours", 2.0), result("a", "of the twin", 1.0, BUFFERS)])
    choice = taken(directory)
    assert choice is not None and [kernel.trace for kernel in choice.kernels] == ["ours"]


def test_a_target_without_textures_has_its_own_records_alone(directory: Path) -> None:
    keep(directory, [result("a", "x", 1.0), result("b", "y", 1.0, BUFFERS)])
    target = replace(ADRENO, textures=False)
    choice = tuned_schedules.tuning_for_target(directory, target, "0.25.0")
    assert choice is not None and [kernel.trace for kernel in choice.kernels] == ["y"]
