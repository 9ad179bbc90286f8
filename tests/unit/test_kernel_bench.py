"""The kernel bench: its table of operators, whose calls are whose, and what it says of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import kernel_models
import kernel_report
import kernel_runs
import kernel_table
import kernels
from kernel_report import DeviceFacts, Part
from kernel_runs import TEXTURE, Batch, Found, Kernel, Settings
from kernel_table import CONV, DENSE, MAX_POOL, NETWORKS, Op

from adt.errors import ConfigError, MismatchError, RunError
from adt.package.inspection.graph import Call, Graph, Tensor

SMALL = Op(CONV, (8, 6, 6), 8, (3, 3), 1, (1, 1), 1, "relu")
POOL = Op(MAX_POOL, (8, 6, 6), 8, (3, 3), 2, (1, 1))
CLASSES = Op(DENSE, (8, 1, 1), 10)


@pytest.mark.parametrize(
    ("network", "millions"),
    [
        ("resnet-18", 1814.1),
        ("resnet-50", 4089.2),
        ("mobilenet", 568.7),
        ("mobilenet-v2", 300.8),
        ("mobilenet-v3-large", 216.6),
        ("squeezenet-v1.1", 349.2),
        ("inception-v3", 5713.2),
        ("yolov8n", 4371.5),
    ],
)
def test_networks_have_their_published_number_of_multiplications(network: str, millions: float) -> None:
    total = sum(op.macs * calls[network] for op, calls in kernel_table.operators([network]).items())

    assert total / 1e6 == pytest.approx(millions, abs=0.05)


def test_each_operator_is_there_once_and_has_a_name_of_its_own() -> None:
    ops = kernel_table.operators(NETWORKS)

    assert len({op.name for op in ops}) == len(ops) > 200
    shared = Op(CONV, (64, 56, 56), 64, (3, 3), 1, (1, 1), 1, "relu")
    assert ops[shared] == {"resnet-18": 2, "resnet-50": 3}


def test_a_name_tells_all_of_an_operator() -> None:
    assert SMALL.name == "conv 3x3 8 6x6 relu"
    assert Op(CONV, (8, 9, 9), 16, (3, 3), 2, (0, 0)).name == "conv 3x3/2 8→16 9x9 unpadded"
    assert Op(CONV, (8, 9, 9), 8, (5, 5), 1, (2, 2), 8).name == "depthwise 5x5 8 9x9"
    assert Op(CONV, (8, 9, 9), 16, (1, 1), 1, (0, 0), 2).name == "conv 1x1 groups 2 8→16 9x9"
    assert CLASSES.name == "dense 8→10"


def test_the_model_of_a_batch_computes_each_operator_for_itself(tmp_path: Path) -> None:
    import onnxruntime

    ops = [
        SMALL,
        POOL,
        CLASSES,
        Op(CONV, (8, 6, 6), 4, then="add+relu6"),
        Op("upsample", (8, 2, 3), 8, stride=2),
    ]
    ops += [
        Op("squeeze_excite", (8, 4, 4), 4),
        Op("global_pool", (8, 4, 4), 8),
        Op(CONV, (4, 4, 4), 4, then="silu"),
    ]
    session = onnxruntime.InferenceSession(str(kernel_models.write_model(ops, tmp_path / "model.onnx")))

    inputs = kernel_models.inputs_for([(one.name, one.shape) for one in session.get_inputs()])
    found = session.run(None, inputs)

    assert [one.shape[1:] for one in found] == [
        op.output[: one.ndim - 1] for op, one in zip(ops, found, strict=True)
    ]
    assert found[3].max() <= 6 and found[3].min() == 0
    for number, op in enumerate(ops):
        names = [name for name in inputs if name == f"x{number}" or name.startswith(f"x{number}_")]
        assert len(names) == 1 + ("add" in op.then)


def graph(calls: Sequence[Call], outputs: tuple[int, ...]) -> Graph:
    count = 1 + max(tensor for call in calls for tensor in (*call.inputs, *call.outputs))
    tensors = tuple(Tensor(f"t{at}", "value", (1,), "float32", 4) for at in range(count))
    return Graph(tensors, tuple(calls), (), outputs)


def test_calls_belong_to_the_operator_whose_output_depends_on_them() -> None:
    calls = (
        Call("pack_blocks_texture", "kernel", (0,), (1,), 0),
        Call("pack_blocks_texture", "kernel", (2,), (3,), 0),
        Call("fused_conv_blocks_add_relu_texture", "kernel", (1,), (4,), 900),
        Call("fused_conv_blocks1_texture", "kernel", (3,), (5,), 90),
        Call("max_pool_blocks_texture", "kernel", (5,), (6,), 80),
        Call("unpack_blocks_texture", "kernel", (4,), (7,), 0),
        Call("unpack_blocks1_texture", "kernel", (6,), (8,), 0),
        Call("vm.builtin.reshape", "builtin", (8,), (9,)),
    )  # fmt: skip
    whole = graph(calls, (7, 9))

    first, second = (kernel_runs.calls_behind(whole, output) for output in whole.outputs)

    assert (first, second) == ([0, 2, 5], [1, 3, 4, 6, 7])
    assert kernel_runs.split(SMALL, whole, first) == ([2], [0, 5])
    # the convolution in front of a pool is none of its time
    assert kernel_runs.split(POOL, whole, second) == ([4], [1, 6])


@pytest.mark.parametrize(
    ("name", "packs"),
    [
        ("pack_blocks3_texture_2", True),
        ("fused_unpack_blocks1_reshape2", True),
        ("fused_conv_blocks_add_unpack_blocks", False),
        ("fused_resize2d_unpack_blocks_texture", False),
    ],
)
def test_a_kernel_that_packs_and_computes_is_the_operators(name: str, packs: bool) -> None:
    whole = graph([Call(name, "kernel", (0,), (1,), 0)], (1,))

    assert kernel_runs.split(SMALL, whole, [0]) == (([], [0]) if packs else ([0], []))


def test_what_is_no_number_or_of_another_shape_is_as_wrong_as_can_be() -> None:
    right = np.array([1.0, -4.0], np.float32)

    assert kernel_runs.difference(right + np.float32(0.25), right) == pytest.approx(0.0625)
    assert kernel_runs.difference(np.array([1, np.nan]), right) == float("inf")
    assert kernel_runs.difference(np.array([1.0]), right) == float("inf")


def test_batches_have_all_operators_and_share_the_heavy_ones() -> None:
    ops = list(kernel_table.operators(NETWORKS))

    made = kernels.batches(ops, (TEXTURE,), 12)

    assert sorted(op.name for batch in made for op in batch.ops) == sorted(op.name for op in ops)
    assert max(len(batch.ops) for batch in made) <= 12
    heavy = sorted(ops, key=lambda op: -op.macs)[: len(made)]
    assert all(len(set(heavy) & set(batch.ops)) == 1 for batch in made)


def settings(said: list[str]) -> Settings:
    return Settings({}, 1e-4, 2, False, 1, 0, None, None, said.append)


def in_vain(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> list[tuple[str, ...]]:
    """Meanwhile every package that has POOL in it fails when it runs; the batches that were compiled."""
    compiled: list[tuple[str, ...]] = []

    def compile_all(
        batches: Sequence[Batch], _: Settings, scratch: Path
    ) -> Iterator[tuple[Batch, Path, Mapping[str, str]]]:
        for at, batch in enumerate(batches):
            compiled.append(tuple(op.name for op in batch.ops))
            place = scratch / f"{len(compiled)}-{at}"
            place.mkdir()
            yield batch, place, {}

    def run(batch: Batch, way: Any, *_: Any) -> tuple[list[Found], kernel_runs.BatchRun]:
        if POOL in batch.ops:
            raise fault
        found = [Found(kernels=(Kernel("k", 1, 1, 0),), difference=0, right=True) for _ in batch.ops]
        return found, kernel_runs.BatchRun(way.name, (), ())

    monkeypatch.setattr(kernel_runs, "_compiled", compile_all)
    monkeypatch.setattr(kernel_runs, "_run", run)
    return compiled


def test_only_the_operator_at_fault_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = in_vain(monkeypatch, RunError("the driver refuses it", remedy="-"))
    said: list[str] = []

    results: kernel_runs.Results = {}
    for some, _ in kernel_runs.measure([Batch((SMALL, POOL, CLASSES), (TEXTURE,))], settings(said), tmp_path):
        results |= some

    assert compiled == [(SMALL.name, POOL.name, CLASSES.name), (SMALL.name,), (POOL.name,), (CLASSES.name,)]
    assert {op for (op, _), found in results.items() if not found.error} == {SMALL, CLASSES}
    assert results[POOL, "texture"].error == "the driver refuses it"
    assert "tried one by one" in said[0]


def test_what_no_operator_can_help_ends_the_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = in_vain(monkeypatch, MismatchError("the bundle is too old", remedy="-"))

    with pytest.raises(MismatchError):
        list(kernel_runs.measure([Batch((SMALL, POOL), (TEXTURE,))], settings([]), tmp_path))
    assert len(compiled) == 1


def found(ms: float, *, difference: float = 1e-7, right: bool = True) -> Found:
    return Found(kernels=(Kernel("k", ms, ms, 2),), clock="event", difference=difference, right=right)


def part(**times: tuple[Found, Found]) -> Part:
    ops = {SMALL: {"a": 2}, POOL: {"a": 1, "b": 1}}
    results = {(op, way): times[op.kind][at] for op in ops for at, way in enumerate(("texture", "buffer"))}
    choices = {SMALL: kernel_report.Chosen("texture", "why")}
    return Part("float32", ("texture", "buffer"), ops, results, [], 1.0, choices)


TESTED = DeviceFacts("a phone", "S", "Adreno", "1.0", "OpenCL 3.0", True, False, False, ())


def test_ratios_sums_and_the_fastest_way() -> None:
    both = part(conv=(found(4.0), found(2.0)), max_pool=(found(1.0), found(3.0)))

    assert kernel_report.ratio(both, SMALL) == 2
    assert [kernel_report.fastest(both, op) for op in (SMALL, POOL)] == ["buffer", "texture"]
    assert kernel_report.sums(both) == {
        "a": {"texture": 9, "buffer": 7, "fastest": 5},
        "b": {"texture": 1, "buffer": 3, "fastest": 1},
    }
    assert "   2.00 conv 3x3 8 6x6 relu (texture)" in kernel_report.table(TESTED, both)
    assert kernel_report.faults([both]) == []


def test_a_wrong_kernel_wins_nothing_and_is_told() -> None:
    both = part(
        conv=(found(0.5, difference=0.2, right=False), found(2.0)),
        max_pool=(Found(error="why not"), found(3.0)),
    )

    assert kernel_report.ratio(both, SMALL) is None
    assert kernel_report.fastest(both, SMALL) == "buffer"
    assert kernel_report.sums(both)["b"]["texture"] is None
    assert kernel_report.faults([both]) == [
        "conv 3x3 8 6x6 relu, texture, float32: off by 0.2",
        "max_pool 3x3/2 8 6x6, texture, float32: why not",
    ]
    text = "\n".join(kernel_report.table(TESTED, both))
    assert "!0.5000" in text and "failed" in text


def test_no_time_of_an_emulated_device_is_shown() -> None:
    both = part(conv=(found(4.25), found(2.25)), max_pool=(found(1.25), found(3.25)))
    emulated = DeviceFacts("virtual", "S", "PoCL", "5", "OpenCL 3.0", False, True, False, ())

    text = "\n".join(kernel_report.table(emulated, both))

    assert ".25" not in text and "sums" not in text and "1e-07" in text


@pytest.mark.parametrize(
    "words", [["--models", "alexnet"], ["--only", "^nothing$"], ["--ways", "vulkan"], ["--precision", "int8"]]
)
def test_what_there_is_not_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "described", lambda serial: TESTED)

    assert kernels.main(words) == ConfigError.exit_code
    assert "remedy:" in capsys.readouterr().err


def test_where_adt_chooses_buffers_without_measurements() -> None:
    from adt.api.model import job_of
    from adt.api.requests import CompileRequest

    odd = Op(CONV, (64, 6, 6), 5, (3, 3), 1, (1, 1))
    job = job_of(CompileRequest("model.onnx", platform="host", target="adreno"))

    made = kernels.choices([SMALL, odd, POOL], job, "float32")

    assert {op: choice.form for op, choice in made.items()} == {SMALL: "texture", odd: "buffer"}
    assert "idle" in made[odd].reason


def test_an_interrupted_bench_tells_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(batches: list[Batch], *_: Any) -> Iterator[tuple[kernel_runs.Results, None]]:
        yield {(batches[0].ops[0], "texture"): found(1.0)}, None
        raise KeyboardInterrupt

    monkeypatch.setattr(kernels, "described", lambda serial: TESTED)
    monkeypatch.setattr(kernels, "measure", measure)
    out = tmp_path / "kernels.json"

    code = kernels.main(
        ["--only", "^dense 512", "--ways", "texture", "--precision", "float32", "-o", str(out)]
    )

    assert code == 130
    (row,) = json.loads(out.read_text())["parts"][0]["ops"]
    assert row["ways"]["texture"]["ms"] == 1.0


def test_the_document_is_json_even_of_what_is_no_number(tmp_path: Path) -> None:
    both = part(
        conv=(found(1.0, difference=float("inf"), right=False), found(2.0)), max_pool=(found(1.0), found(1.0))
    )

    text = json.dumps(kernel_report.document(TESTED, {}, {}, [both], []), allow_nan=False)

    assert json.loads(text)["parts"][0]["ops"][0]["ways"]["texture"]["difference"] is None
