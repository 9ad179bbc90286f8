"""Models with which onnxruntime, or onnx, never ends: ctrl-C and TERM end adt, and nothing is left."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper

from support.devices.programs import ADT
from support.models.onnx_graphs import graph_of, node
from support.sampling import matrix
from support.waiting import wait_for

SECONDS = 60
MARK = "ADT_TEST_ENDLESS"
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("doubling", 1)]


def value(name: str, kind: int = TensorProto.FLOAT, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def loop() -> onnx.ModelProto:
    """Build a Loop of 2**62 steps, which onnxruntime runs."""
    body = helper.make_graph(
        [node("Identity", ["go"], ["goes"]), node("Add", ["old", "old"], ["new"])],
        "body",
        [value("step", TensorProto.INT64), value("go", TensorProto.BOOL), value("old", TensorProto.FLOAT, 2)],
        [value("goes", TensorProto.BOOL), value("new", TensorProto.FLOAT, 2)],
    )
    nodes = [node("Loop", ["steps", "true", "x"], ["y"], body=body)]
    return graph_of(nodes, {"x": (2,)}, ["y"], {"steps": np.int64(1 << 62), "true": np.bool_(True)})


def doubling() -> onnx.ModelProto:
    """Build thirty functions, each the one before twice, which onnx inlines with Python's lock held."""
    functions = [
        helper.make_function(
            "doubling", "f0", ["a"], ["b"], [node("Relu", ["a"], ["b"])], opset_imports=OPSETS
        )
    ]
    for number in range(1, 30):
        before = f"f{number - 1}"
        twice = [node(before, [a], [b], domain="doubling") for a, b in (("a", "c"), ("c", "b"))]
        functions.append(
            helper.make_function("doubling", f"f{number}", ["a"], ["b"], twice, opset_imports=OPSETS)
        )
    graph = helper.make_graph(
        [node("f29", ["x"], ["y"], domain="doubling")],
        "endless",
        [value("x", TensorProto.FLOAT, 2)],
        [value("y", TensorProto.FLOAT, 2)],
    )
    return helper.make_model(graph, opset_imports=OPSETS, functions=functions, ir_version=8)


def family(scratch: Path) -> dict[int, float]:
    """Return the CPU seconds of each process that works with the temporary directory *scratch*."""
    seconds = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it has ended, or is another user's
            if process.environ().get(MARK) == str(scratch) and process.status() != psutil.STATUS_ZOMBIE:
                seconds[process.pid] = process.cpu_times().user
    return seconds


def busy(scratch: Path) -> bool:
    """True if a process of adt's has computed longer than anything but the model takes."""
    return any(seconds > 3 for seconds in family(scratch).values())


@pytest.mark.parametrize(("model", "number"), matrix([loop, doubling], [signal.SIGINT, signal.SIGTERM]))
def test_an_interrupt_ends_adt(model: object, number: signal.Signals, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    onnx.save(model(), tmp_path / "endless.onnx")  # type: ignore[operator]
    with subprocess.Popen(
        [ADT, "compile", tmp_path / "endless.onnx", "--for", "host", "-o", tmp_path / "package"],
        env=os.environ | {"TMPDIR": str(scratch), MARK: str(scratch)},
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            wait_for(lambda: running.poll() is not None or busy(scratch), "work on the model")
            running.send_signal(number)
            assert running.wait(SECONDS) == 128 + number
            assert running.stderr is not None
            assert running.stderr.read().splitlines()[-1].startswith("interrupted: ")
        finally:
            running.kill()
    wait_for(lambda: not family(scratch), "the end of all its processes")
    assert not list(scratch.glob("adt-*"))
    assert not (tmp_path / "package").exists()
