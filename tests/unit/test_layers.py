"""Blame of one kernel in a run whose calls and tensors are made up here."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from adt.errors import RunError
from adt.measure.host_kernels import NotComputable, PlainKernel
from adt.measure.layers import (
    NOT_COMPARED,
    PASSES_ON,
    RIGHT,
    WRONG,
    CallComparer,
    CallComparison,
    KernelCall,
    LayerScan,
    Scan,
    chunks,
    list_calls,
    tensors_of,
)
from adt.numerics import relative_difference
from adt.verbs.verify import next_steps

Array = Any
F = np.float32


class Kernels:
    """Stands in for the host's kernels: each takes one tensor and writes the second."""

    def __init__(self, **functions: Callable[[Array], Array]) -> None:
        self.functions = functions
        self.runs = 0

    def plain(self, name: str) -> PlainKernel:
        if name not in self.functions:
            raise NotComputable("a library computes it")
        return PlainKernel(((None, "float32"), (None, "float32")), (1,), (name,))

    def run(self, name: str, arguments: Sequence[Array]) -> tuple[Array, ...]:
        self.runs += 1
        return (self.functions[name](arguments[0]),)


SCAN = Scan()
HOST = {"double": lambda x: x * 2, "add": lambda x: x + 1, "relu": lambda x: np.maximum(x, 0)}


def run(device: Mapping[str, Callable[[Array], Array]], names: Sequence[str], scan: Scan = SCAN) -> LayerScan:
    """Judge a chain of kernels on a device whose kernels are *device*."""
    comparer = CallComparer(Kernels(**HOST), "float32", scan)  # type: ignore[arg-type]
    x = np.linspace(-1, 1, 12, dtype=F).reshape(3, 4)
    rows = []
    for index, name in enumerate(names):
        y = device[name](x)
        rows.append(comparer.compare(KernelCall(index, name, ("global", "global"), (x, y))))
        x = y
    return LayerScan(tuple(rows), len(names), "here")


def judged(
    x: Array,
    y: Array,
    name: str = "double",
    kernels: Mapping[str, Callable[[Array], Array]] = HOST,
    precision: str = "float32",
    scan: Scan | None = None,
    scope: str = "global",
) -> CallComparison:
    """Judge one call of the kernel *name*, which gave *y* for *x*; the host has *kernels*."""
    comparer = CallComparer(Kernels(**kernels), precision, scan or Scan())  # type: ignore[arg-type]
    return comparer.compare(KernelCall(0, name, ("global", scope), (x, y)))


def verdicts(scan: LayerScan) -> list[str]:
    return [call.verdict for call in scan.calls]


def test_a_sound_run() -> None:
    scan = run(HOST, ["double", "add", "relu"])
    assert verdicts(scan) == [RIGHT] * 3 and scan.passed
    assert scan.first_diverging is None and scan.wrong == ()


def test_the_wrong_kernel_is_named_and_what_follows_is_not() -> None:
    scan = run(HOST | {"add": lambda x: x + F(1.5)}, ["double", "add", "relu", "double"])
    assert verdicts(scan) == [RIGHT, WRONG, PASSES_ON, PASSES_ON]
    (wrong,) = scan.wrong
    assert wrong.name == "add" and wrong.index == 1 and not scan.passed
    assert wrong.metrics is not None and wrong.metrics.max_abs == pytest.approx(0.5)
    assert scan.calls[3].alone == 0 and scan.calls[3].along > 0.1


def test_an_error_that_a_later_kernel_hides_again() -> None:
    device = HOST | {"double": lambda x: np.where(x < 0, x * 3, x * 2)}
    scan = run(device, ["double", "relu", "add"])
    assert verdicts(scan) == [WRONG, RIGHT, RIGHT]
    assert scan.calls[2].along == 0


def test_two_wrong_kernels_are_both_found() -> None:
    device = {"double": lambda x: x * 3, "add": HOST["add"], "relu": lambda x: -x}
    assert verdicts(run(device, ["double", "add", "relu"])) == [WRONG, PASSES_ON, WRONG]


def test_roundings_that_add_up_are_no_wrong_kernel() -> None:
    device = HOST | {"double": lambda x: x * 2 * F(1 + 4e-5)}
    scan = run(device, ["double"] * 6)
    assert PASSES_ON in verdicts(scan) and WRONG not in verdicts(scan) and scan.passed


def test_nan_on_the_device_is_wrong() -> None:
    scan = run(HOST | {"relu": lambda x: x * F(np.nan)}, ["relu"])
    assert verdicts(scan) == [WRONG] and scan.calls[0].alone == np.inf


def test_equal_nans_are_no_right_kernel() -> None:
    nothing = {"nothing": lambda x: x * F(np.nan)}
    comparer = CallComparer(Kernels(**HOST, **nothing), "float32", SCAN)  # type: ignore[arg-type]
    x = np.ones(4, F)
    rows = [
        comparer.compare(KernelCall(0, "double", ("global", "global"), (x, x * 2))),
        comparer.compare(KernelCall(1, "nothing", ("global", "global"), (x * 2, x * F(np.nan)))),
    ]
    scan = LayerScan(tuple(rows), 2, "here")
    assert verdicts(scan) == [RIGHT, NOT_COMPARED] and not scan.passed and not scan.wrong
    assert scan.first_nan is rows[1] and "nothing finite" in rows[1].reason


def test_what_cannot_be_compared_says_why_and_its_tensors_are_the_devices() -> None:
    device = HOST | {"clml": lambda x: x * 7}
    scan = run(device, ["double", "clml", "add"])
    assert verdicts(scan) == [RIGHT, NOT_COMPARED, RIGHT] and scan.passed
    assert "library" in scan.calls[1].reason
    assert not run(device, ["clml"]).passed


def test_a_view_of_another_shape_is_the_same_tensor() -> None:
    kernels = Kernels(**HOST)
    comparer = CallComparer(kernels, "float32", Scan())  # type: ignore[arg-type]
    x = np.ones((2, 3), F)
    comparer.compare(KernelCall(0, "double", ("global", "global"), (x, x * 5)))
    row = comparer.compare(KernelCall(1, "add", ("global", "global"), ((x * 5).ravel(), (x * 5).ravel() + 1)))
    assert row.verdict == PASSES_ON and row.along == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize(("limit", "verdict"), [(-1.0, WRONG), (0.1, RIGHT)])
def test_the_limit_can_be_given(limit: float, verdict: str) -> None:
    device = HOST | {"double": lambda x: x * F(2.01)}
    assert verdicts(run(device, ["double"], Scan(max_rel=limit))) == [verdict]


@pytest.mark.parametrize(
    ("dtype", "precision", "limit"),
    [
        ("float32", "float32", 1e-4),
        ("float16", "float32", 5e-2),
        ("float16", "float16_acc32", 2e-2),
        ("float32", "float16_acc32", 1e-4),
    ],
)
def test_half_precision_has_a_wider_limit(dtype: str, precision: str, limit: float) -> None:
    x = np.ones(4, dtype)
    assert judged(x, x * 2, precision=precision).limit == limit


def test_whole_numbers_differ_in_steps() -> None:
    x = np.array([1, 2, 3], np.int8)
    for steps, verdict in ((0, WRONG), (1, RIGHT), (-1, RIGHT)):
        row = judged(x, np.array([2, 4, 7], np.int8), scan=Scan(max_steps=steps))
        assert (row.verdict, row.alone) == (verdict, 1)


def test_sums_that_cancel_leave_nothing_but_roundings() -> None:
    """Compute ``x - mean`` of large numbers that are nearly equal: its small results are roundings of the large ones."""
    x = (1e6 + np.linspace(0, 0.5, 12)).astype(F)
    kernels = {"center": lambda x: (x - x.astype(np.float64).mean()).astype(F)}
    output = x - np.sum(x, dtype=F) / F(12)
    assert relative_difference(output, kernels["center"](x)) > 1e-2
    assert judged(x, output, "center", kernels).verdict == RIGHT
    assert judged(x, output + 20, "center", kernels).verdict == WRONG


def test_sums_on_the_edge_of_two_quanta_may_become_either() -> None:
    def quantize(sums: Array) -> Array:
        return (np.round(sums / 0.003) * 0.003).astype(F)

    x = np.random.default_rng(0).standard_normal((100, 16)).astype(F)
    sums = x.sum(1, dtype=np.float64)
    x[:, 0] += (np.floor(sums / 0.003) + 0.5) * 0.003 - sums
    kernels = {"quantize": lambda x: quantize(x.astype(np.float64).sum(1))}
    output = quantize(np.cumsum(x, 1, dtype=F)[:, -1])
    assert relative_difference(output, kernels["quantize"](x)) > 1e-4
    assert judged(x, output, "quantize", kernels).verdict == RIGHT
    output[7] += 0.03
    assert judged(x, output, "quantize", kernels).verdict == WRONG


def test_numbers_that_mask_others_do_not_hide_them() -> None:
    expected = np.array([3.0, -1e9, 2.0, -1e9], F)
    assert relative_difference(np.array([3.0, -1.000001e9, 2.0, -1e9], F), expected) < 1e-5
    assert relative_difference(np.array([3.3, -1e9, 2.0, -1e9], F), expected) == pytest.approx(0.1, rel=1e-3)
    assert relative_difference(np.array([3.0, -1.1e9, 2.0, -1e9], F), expected) == pytest.approx(
        0.1, rel=1e-3
    )


def test_difference_of_odd_arrays() -> None:
    odd = np.array([np.nan, np.inf, 1], F)
    assert relative_difference(odd, odd) == 0
    assert relative_difference(np.array([0, np.inf, 1], F), odd) == np.inf
    assert relative_difference(np.zeros((0, 3), F), np.zeros((0, 3), F)) == 0
    assert relative_difference(np.ones(2, F), np.zeros(2, F)) == np.inf
    assert relative_difference(np.array([3, 4]), np.array([3, 6])) == 2


def test_chunks_are_in_order_and_not_too_large() -> None:
    calls = [KernelCall(i, "k", (), bytes=size) for i, size in enumerate([5, 5, 20, 1, 9, 1])]
    assert [[call.index for call in chunk] for chunk in chunks(calls, 10)] == [[0, 1], [2], [3, 4], [5]]


def test_calls_and_tensors_of_a_run_are_read() -> None:
    argument = {"shape": [2, 3], "dtype": "float32", "scope": "global.texture"}
    calls = [
        {"index": 4, "name": "vm.builtin.reshape", "builtin": True, "arguments": [argument]},
        {"index": 5, "name": "conv|odd", "builtin": False, "arguments": [argument, argument]},
    ]
    (listed,) = list_calls({"profile": {"calls": calls}})
    assert listed == KernelCall(5, "conv|odd", ("global.texture",) * 2, bytes=48)
    arrays = {"00005|conv|odd|1": np.ones(2, F), "00005|conv|odd|0": np.zeros(2, F)}
    (tensors,) = tensors_of(arrays, [listed])
    assert [float(array[0]) for array in tensors.arguments] == [0, 1]
    with pytest.raises(RunError, match="which calls"):
        list_calls({"profile": None})


def test_next_steps_fit_the_kernel(tmp_path: Any) -> None:
    x = np.ones((1, 4), np.float16)
    call = judged(x, x, precision="float16", scope="global.texture")
    steps = " ".join(next_steps(tmp_path, LayerScan((call,), 1, "", "opencl"), call))
    assert "adreno-buffer" in steps and "--keep-float32" in steps and "--kernel double_kernel" in steps
    plain = judged(x.astype(F), x.astype(F), precision="float16")
    steps = " ".join(next_steps(tmp_path, LayerScan((plain,), 1, "", "cpu"), plain))
    assert "adreno" not in steps and "--keep-float32" not in steps and "--tir" in steps
