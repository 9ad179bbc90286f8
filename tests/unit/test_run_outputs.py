"""Results of a run: files, the table, classes with labels."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adt.device.place import Opened, RtvmOptions
from adt.errors import ConfigError, InputError, RunError
from adt.package.classes import check_scores, rank, read_labels
from adt.package.manifest import TensorSpec
from adt.verbs.arrays import check_outputs, described, save_outputs, split_output, table
from adt.verbs.options import check_affinity
from adt.verbs.profile import profile
from adt.verbs.run import RunResult, _time, run
from support.standins.artefacts import entry, make_typed_package, tensor

SCORES = np.array([[1.0, 3.0, 2.0, 3.0]], np.float32)
LABELS = ("n01 tench", "n02 goldfish, carp", "n03 shark", "n04 ray")


def test_the_best_classes_with_softmax() -> None:
    ranking = rank({"y": SCORES}, labels=LABELS, top=3)
    powers = np.exp(SCORES[0] - 3)
    assert ranking.softmax and "do not sum to 1" in ranking.reason
    assert [(best.index, best.label, best.score) for best in ranking.rows[0]] == [
        (1, LABELS[1], 3.0),  # of equals the first one first
        (3, LABELS[3], 3.0),
        (2, LABELS[2], 2.0),
    ]
    np.testing.assert_allclose(
        [best.probability for best in ranking.rows[0]], (powers / powers.sum())[[1, 3, 2]], rtol=1e-6
    )


def test_softmax_is_not_applied_twice() -> None:
    already = np.array([[0.25, 0.75], [0.5, 0.5]], np.float16)
    ranking = rank({"y": already}, top=1)
    assert not ranking.softmax and "sum to 1" in ranking.reason
    assert [[(best.index, best.probability) for best in row] for row in ranking.rows] == [
        [(1, 0.75)],
        [(0, 0.5)],
    ]
    assert rank({"y": already}, softmax=True).rows[0][0].probability != 0.75
    assert rank({"y": np.array([[2.0, -1.0]])}).softmax, "they sum to 1, but one is negative"
    assert rank({"y": np.array([[0.5, 0.6]])}).softmax
    plain = rank({"y": SCORES}, softmax=False).rows[0][0]
    assert (plain.score, plain.probability) == (3.0, None)


def test_scores_that_are_no_floats_or_not_finite() -> None:
    counts = rank({"y": np.array([[3, 200, 7]], np.uint8)})
    assert not counts.softmax and [best.index for best in counts.rows[0]] == [1, 2, 0]
    assert counts.rows[0][0].probability is None
    odd = rank({"y": np.array([[1.0, np.nan, 2.0]])})
    assert [best.index for best in odd.rows[0]] == [2, 0, 1] and not odd.softmax
    large = rank({"y": np.array([[1e30, -1e30]], np.float32)})
    assert large.rows[0][0].probability == 1.0


@pytest.mark.parametrize("shape", [(4,), (1, 4), (1, 4, 1, 1), (1, 1, 1, 4)])
def test_shapes_of_scores(shape: tuple[int, ...]) -> None:
    assert rank({"y": SCORES.reshape(shape)}, top=1).rows[0][0].index == 1


def test_which_output_has_the_scores() -> None:
    boxes = np.zeros((1, 10, 4), np.float32)
    assert rank({"boxes": boxes, "y": SCORES}).output == "y"
    both = {"features": np.zeros((1, 8), np.float32), "y": SCORES}
    assert rank(both, labels=LABELS).output == "y"
    with pytest.raises(InputError, match="2 outputs look like scores"):
        rank(both)
    with pytest.raises(InputError, match="0 outputs"):
        rank({"boxes": boxes, "flag": np.array([[True, False]]), "count": np.array([3])})
    with pytest.raises(InputError, match="3 labels and 4 classes"):
        rank({"y": SCORES}, labels=LABELS[:3])


def test_a_wrong_output_or_affinity_is_seen_before_the_run() -> None:
    assert split_output("y=a.npy", ["x", "y"]) == ("y", Path("a.npy"))
    for text, said in (
        ("z=a.npy", "no output 'z'"),
        ("a.npy", "is for one output, and the model gives x, y"),
    ):
        with pytest.raises(InputError, match=said):
            split_output(text, ["x", "y"])
    for text in ("big", "0,4-7", ""):
        check_affinity(text)
    with pytest.raises(ConfigError, match="--affinity 'fast' names no CPUs"):
        check_affinity("fast")


def test_labels_are_counted_before_the_run() -> None:
    scores = TensorSpec("y", (1, 214), "float32")
    check_scores([scores], ["a"] * 214)
    with pytest.raises(InputError, match="1 labels and 214 classes in the output y"):
        check_scores([scores], ["a"])
    check_scores([TensorSpec("y", ("n", 214), "float32")], ["a"])


def test_labels(tmp_path: Path) -> None:
    text = tmp_path / "synset.txt"
    text.write_text("\n".join(LABELS) + "\n\n")
    assert read_labels(text) == LABELS
    text.write_bytes("\ufeffa\r\n\r\nc".encode())
    assert read_labels(text) == ("a", "", "c"), "an empty line is a class without a name"
    document = tmp_path / "labels.json"
    for content, labels in (
        (["a", "b"], ("a", "b")),
        ({"1": "b", "0": "a"}, ("a", "b")),
        ({"0": ["n01", "tench"], "1": ["n02", "carp"]}, ("n01 tench", "n02 carp")),
    ):
        document.write_text(json.dumps(content))
        assert read_labels(document) == labels
    for wrong in ("{", "[]", "3", '{"0": "a", "2": "b"}', '{"x": "a"}', "[1]", "[[]]"):
        document.write_text(wrong)
        with pytest.raises(InputError, match="neither a JSON list"):
            read_labels(document)
    text.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read"):
        read_labels(text)
    text.write_text("\n")
    with pytest.raises(InputError, match="no labels"):
        read_labels(text)
    with pytest.raises(InputError, match="cannot be read"):
        read_labels(tmp_path / "none.txt")


def test_outputs_into_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outputs: dict[str, Any] = {"file": SCORES, "b": np.array([[1, 2]], ">i4")}
    written = save_outputs(["all.npz", "file=one.npz", "b=b.npy", "b=b.raw"], outputs)
    assert list(map(str, written)) == ["all.npz", "one.npz", "b.npy", "b.raw"]
    with np.load("all.npz") as archive:
        assert set(archive.files) == {"file", "b"}
        np.testing.assert_array_equal(archive["file"], SCORES)
    with np.load("one.npz") as archive:
        assert archive.files == ["file"]
    np.testing.assert_array_equal(np.load("b.npy"), [[1, 2]])
    assert Path("b.raw").read_bytes() == b"\1\0\0\0\2\0\0\0"
    save_outputs(["only.bin"], {"y": SCORES})
    assert Path("only.bin").read_bytes() == SCORES.tobytes()
    with pytest.raises(InputError, match="is for one output"):
        save_outputs(["c.npy"], outputs)
    with pytest.raises(InputError, match="no output 'z'"):
        save_outputs(["z=c.npy"], outputs)
    Path("lr=1").mkdir()
    check_outputs(["lr=1/all.npz", "file=b.npz"])
    assert list(map(str, save_outputs(["lr=1/all.npz", "./a=b.npz"], outputs))) == ["lr=1/all.npz", "a=b.npz"]
    assert not Path("c.npy").exists() and not Path("z=c.npy").exists()


@pytest.mark.parametrize(("target", "text"), [("out", "in which format"), ("none/out.npz", "no directory")])
def test_targets_are_checked_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=text):
        check_outputs([target])


def test_the_table_and_its_figures() -> None:
    odd = np.array([1, np.nan, -np.inf, 3], np.float16)
    (row,) = described({"y": odd})
    assert (row["min"], row["max"], row["mean"], row["not_finite"]) == (1.0, 3.0, 2.0, 2)
    assert row["head"] == [1.0, None, None, 3.0]
    json.dumps(
        described({"y": odd, "e": np.empty((0, 3)), "b": np.array([True]), "s": np.array(2)}), allow_nan=False
    )
    lines = table({"long name": SCORES, "n": np.arange(300, dtype=np.int64)})
    assert len(lines) == 3 and lines[1].startswith("long name  float32[1, 4]")
    assert lines[2].split() == ["n", "int64[300]", "0", "299", "149.5", "0", "1", "2", "3", "4", "…"]
    assert "(2 not finite)" in table({"y": odd})[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"via": "telepathy"}, "telepathy"),
        ({"key": "phone"}, "only with --via rpc"),
        ({"tracker": "127.0.0.1:9190"}, "only with --via rpc"),
        ({"via": "rpc", "run_count": 3, "options": RtvmOptions(threads=2)}, "--run-count and --threads"),
        ({"via": "rpc", "key": "phone", "serial": "abcd"}, "chooses the device"),
    ],
)
def test_ways_to_run_that_contradict(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(package(tmp_path), **options)


class Emulated:
    """A place that runs nothing, and says how it would have."""

    name, emulated, host = "S", True, False

    def run(self, options: RtvmOptions, *_: object, **__: object) -> None:
        raise RunError(f"{options.warmup_runs} + {options.run_count} + {options.profile} runs", remedy="-")


@pytest.mark.parametrize(
    ("verb", "options", "message"),
    [
        (run, {"run_count": 30, "warmup_runs": 3, "options": RtvmOptions(min_seconds=9)}, "0 + 1 + 0 runs"),
        (profile, {}, "0 + 1 + 1 runs"),
    ],
)
def test_an_emulated_device_runs_once(
    verb: Callable[..., object],
    options: dict[str, Any],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    opened = Opened(Emulated(), package(tmp_path), None)
    monkeypatch.setattr(f"adt.verbs.{verb.__name__}.open_place", lambda *_, **__: opened)
    caplog.set_level("INFO", "adt")
    with pytest.raises(RunError, match=re.escape(message)):
        verb(package(tmp_path), **options)
    assert caplog.messages == ["S is emulated, where nothing is measured: the model runs once"]


def package(directory: Path) -> Path:
    """Write a package that can be read, and not run."""
    entries = [entry([tensor("x", (1, 2))], [tensor("y", (1, 2))])]
    return make_typed_package(directory, "nothing", entries, platform="linux-aarch64").path


def test_inputs_are_checked_before_a_device_is_looked_for(tmp_path: Path) -> None:
    path = package(tmp_path)
    np.save(tmp_path / "x.npy", np.zeros((1, 3), np.float32))
    with pytest.raises(InputError, match=r"float32\[1, 2\]; given: float32\[1, 3\]"):
        run(path, files=[tmp_path / "x.npy"])
    with pytest.raises(InputError, match="given twice"):
        run(path, inputs={"x": np.zeros((1, 3))}, files=[f"x={tmp_path / 'x.npy'}"])
    with pytest.raises(InputError, match="takes x; given: y"):
        run(path, inputs={"y": np.zeros((1, 2), np.float32)})


@pytest.mark.parametrize(
    ("emulated", "kind", "device_type", "times", "message"),
    [
        (False, "cpu", "cpu", [3.0, 1.0, 2.0], "2.000 ms"),
        (False, "opencl", "gpu", [3.0, 1.0, 2.0], "2.000 ms"),
        (False, "opencl", "cpu", [3.0, 1.0, 2.0], ""),
        (True, "cpu", "cpu", [3.0, 1.0, 2.0], ""),
        (None, "cpu", "cpu", [3.0, 1.0, 2.0], ""),
        (False, "cpu", "cpu", [3.0], ""),
    ],
    ids=["cpu", "gpu", "OpenCL on a CPU", "emulated", "unknown", "one run"],
)
def test_times_are_shown_only_where_they_are_a_speed(
    emulated: bool | None, kind: str, device_type: str, times: list[float], message: str
) -> None:
    report = {"run_ms": times, "device": {"kind": kind, "type": device_type}}
    result = RunResult({}, (), "native", "abcd", "a phone", emulated, report)
    assert message in _time(result) and bool(message) == bool(_time(result))
    assert _time(replace(result, report=None)) == ""
