"""`adt profile` for real: this machine's CPU, OpenCL on it, over RPC, a virtual device, and the page in a browser.

That there are times is tested, and that there are none where they would be no speed; never how large they are.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import adt as api
from adt.errors import ConfigError, RpcError
from adt.package.inspection.profile import CallTime, Profile
from adt.verbs import profile as verb
from support.codegen.browser import Page, browser
from support.devices.fixtures import Rack
from support.devices.programs import adt, adt_json
from support.models.onnx_graphs import graph_of, node, write

HOSTILE = '</script><script>document.title="owned"</script><img src=x onerror=alert(1)>'
SPEED = re.compile(r"\d\s?(?:ms|s|µs)\b|FLOP/s|GB/s|of the time")
"""Words by which a text tells a speed."""
CONVOLUTIONS = (2 * 8 * 16 * 16 * 4 * 9, 2 * 8 * 16 * 16 * 8 * 9)


@pytest.fixture(scope="module", autouse=True)
def own_kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Begin with an empty cache of PoCL."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POCL_CACHE_DIR", str(tmp_path_factory.mktemp("pocl")))
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write conv → relu → conv → add (of the first conv) → mean → matmul → softmax."""
    random = np.random.default_rng(0)
    shapes = {"w1": (8, 4, 3, 3), "w2": (8, 8, 3, 3), "m": (8, 10)}
    weights = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    arrays = weights | {"flat": np.array([1, 8])}
    nodes = [
        node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1]),
        node("Add", ["a", "c"], ["d"]),
        node("GlobalAveragePool", ["d"], ["p"]),
        node("Reshape", ["p", "flat"], ["q"]),
        node("MatMul", ["q", "m"], ["t"]),
        node("Softmax", ["t"], ["y"]),
    ]
    tiny = graph_of(nodes, {"x": (1, 4, 16, 16)}, ["y"], arrays)
    return write(tiny, tmp_path_factory.mktemp("model") / "tiny.onnx")


@pytest.fixture(scope="module")
def started() -> Iterator[Page]:
    """Open a browser page that all tests share: its start takes longer than the tests."""
    with browser() as page:
        yield page


@pytest.fixture
def page(started: Page) -> Page:
    """Return the browser's page as if it had just started."""
    started.ask("Emulation.setEmulatedMedia", features=[])
    started.complaints.clear()
    started.requests.clear()
    return started


@pytest.fixture(scope="module")
def profile(on_cpu: Path) -> Profile:
    return api.profile(on_cpu, runs=3, warmup_runs=1)


def joined(call: CallTime) -> tuple[object, ...]:
    """Return all that is known of a call but its times."""
    return call.index, call.name, call.kind, call.device, call.shapes, call.flops, call.bytes


def work(profile: Profile) -> list[CallTime]:
    """Return the calls that the virtual machine does not do itself."""
    return [call for call in profile.calls if call.device != "vm"]


def check_work(profile: Profile, package: Path) -> None:
    """Check that all kernels ran in the graph's order, with the arithmetic and bytes of the formulas."""
    graph = api.inspect(package).graph
    kernels = [(index, call.name) for index, call in enumerate(graph.calls) if call.kind == "kernel"]
    assert [(call.index, call.name) for call in work(profile)] == kernels
    convolutions = [call for call in work(profile) if "conv" in call.name]
    assert [call.flops for call in convolutions] == [CONVOLUTIONS[0], CONVOLUTIONS[1] + 8 * 16 * 16]
    output = [int(extent) for extent in convolutions[0].shapes.partition("→ float32[")[2][:-1].split(",")]
    lanes = output[4] if len(output) == 5 else 1
    assert output == ([1, 8 // lanes, 16, 16, lanes] if lanes > 1 else [1, 8, 16, 16])
    filled = {channels: -(-channels // lanes) * lanes for channels in (4, 10)}
    assert convolutions[0].bytes == 4 * (filled[4] * 16 * 16 + 8 * 4 * 9 + 8 * 16 * 16)
    (product,) = (call for call in work(profile) if call.name.startswith(("matmul", "product")))
    assert product.flops == 2 * 8 * (filled[10] if product.device == "cpu" else 10), "a GPU's stays plain"


def test_the_cpu(profile: Profile, on_cpu: Path) -> None:
    check_work(profile, on_cpu)
    assert not profile.emulated and not profile.notes and profile.runs == 3
    assert {call.clock for call in profile.calls} == {"host"} and "the host's clock" in profile.clock
    assert all(0 < call.min_us <= call.mean_us <= call.max_us for call in work(profile))
    assert profile.plain_us and profile.profiled_us and profile.total_us <= profile.profiled_us
    assert sum(row.share for row in profile.kernels) == pytest.approx(1)
    assert all(row.gbps for row in profile.kernels if row.device == "cpu")
    moves = {"pack_blocks", "fused_unpack_blocks_reshape"}
    assert {row.name for row in profile.kernels if row.device == "cpu" and not row.gflops} == moves
    assert {row.roof_gflops for row in profile.kernels} == {None}, "nobody gave the device's limits"


def test_the_command(on_cpu: Path, tmp_path: Path) -> None:
    words = ("profile", on_cpu, "-n", 2, "--peak-gflops", 50, "--peak-gbps", 10, "--sort", "order")
    files = ("--trace", tmp_path / "trace.json", "--html", tmp_path / "page.html")
    shown = adt(*words, *files)
    assert shown.returncode == 0, shown.stderr
    assert "of roof" in shown.stdout and "the virtual machine" in shown.stdout
    order = [line.split()[0] for line in shown.stdout.split("\n\n")[1].splitlines() if " cpu " in line]
    assert order[0].startswith("pack_blocks") and order[-1].startswith("softmax")
    trace = json.loads((tmp_path / "trace.json").read_text())
    assert [e["name"] for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] == "kernel"] == order
    assert (tmp_path / "page.html").stat().st_size > 10_000
    refused = adt("profile", on_cpu, "--sort", "size")
    assert refused.returncode == 3 and "--sort: 'size' is none of" in refused.stderr


def test_the_document_goes_to_inspect(on_cpu: Path, tmp_path: Path) -> None:
    document = adt_json("profile", on_cpu, "-n", 2)
    (tmp_path / "profile.json").write_text(json.dumps(document))
    adt_json("inspect", on_cpu, "--html", tmp_path / "page.html", "--profile", tmp_path / "profile.json")
    names = {call["name"]: call["mean_us"] for call in document["calls"] if call["index"] >= 0}
    text = (tmp_path / "page.html").read_text()
    assert text.count('"us":[') == sum(call["index"] >= 0 for call in document["calls"]) >= len(names) > 5


def test_opencl_has_the_devices_clock(on_pocl: Path, tmp_path: Path) -> None:
    result = api.profile(on_pocl, runs=3, warmup_runs=1)
    check_work(result, on_pocl)
    assert {(call.device, call.clock) for call in work(result)} == {("opencl", "event")}
    assert all(call.host_us and call.host_us > 0 for call in work(result))
    assert "its events" in result.clock
    assert any("OpenCL on a CPU" in note for note in result.notes), "PoCL is no GPU"
    api.profile_html(result, tmp_path / "page.html")
    assert "OpenCL on a CPU" in (tmp_path / "page.html").read_text()


def test_over_rpc_it_is_the_same(profile: Profile, on_cpu: Path, on_pocl: Path) -> None:
    remote = api.profile(on_cpu, runs=2, via="rpc")
    assert [joined(call) for call in remote.calls] == [joined(call) for call in profile.calls]
    assert remote.via == "rpc" and remote.plain_us and not remote.emulated
    opencl = api.profile(on_pocl, runs=2, via="rpc")
    check_work(opencl, on_pocl)
    assert {call.clock for call in work(opencl)} == {"event"}
    assert any("OpenCL on a CPU" in note for note in opencl.notes)


def test_another_server_cannot_profile(on_cpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "REMOTE_FUNCTION", "adt.not_there")
    with pytest.raises(RpcError, match=r"has no function adt\.not_there") as refused:
        api.profile(on_cpu, runs=1, via="rpc")
    assert "adt build-target" in refused.value.remedy


def test_an_emulated_device_has_no_speed(
    model: Path,
    rack: Rack,
    page: Page,
    tmp_path: Path,
) -> None:
    api.build_target(platform="linux-aarch64")
    package = api.compile(model, out=tmp_path / "pkg", platform="linux-aarch64", check=False).path
    device = rack.start("profiled")
    try:
        shown = adt("profile", package, "--serial", device.serial, "--html", tmp_path / "page.html")
        assert shown.returncode == 0, shown.stderr
        assert f"{device.serial} is emulated, where nothing is measured: the model runs once" in shown.stderr
        assert "emulated: not a device's speed" in shown.stdout and "conv_blocks" in shown.stdout
        assert not SPEED.search(shown.stdout) and "%" not in shown.stdout
        page.open(tmp_path / "page.html")
        text: str = page.run("document.body.innerText")
        assert not SPEED.search(text) and "fused_conv_blocks1_add" in text
        assert "its processor is emulated" in text
        result = api.profile(package, serial=device.serial)
        assert result.emulated and result.runs == 1 and {row.gflops for row in result.kernels} == {None}
        check_work(result, package)
        with pytest.raises(ConfigError, match="a trace is of times"):
            api.profile_trace(result, tmp_path / "trace.json")
        assert not (tmp_path / "trace.json").exists()
    finally:
        rack.stop("profiled")


@pytest.mark.nightly
def test_an_emulated_device_over_rpc(
    model: Path,
    rack: Rack,
    tmp_path: Path,
) -> None:
    api.build_target(platform="linux-aarch64")
    package = api.compile(model, out=tmp_path / "pkg", platform="linux-aarch64").path
    device = rack.start("remote")
    try:
        result = api.profile(package, serial=device.serial, runs=1, via="rpc")
        check_work(result, package)
        assert result.emulated and result.via == "rpc" and {row.gflops for row in result.kernels} == {None}
    finally:
        rack.stop("remote")


def texts(page: Page, selector: str) -> list[str]:
    contents: list[str] = page.run(
        f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.textContent)"
    )
    return contents


def press(page: Page, key: str, code: int) -> None:
    for kind in ("keyDown", "keyUp"):
        page.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)


def test_the_page_in_a_browser(profile: Profile, page: Page, tmp_path: Path) -> None:
    """Use the page with the keyboard alone, in both colours, and with names that would be markup."""
    named = {
        row.name: f"{HOSTILE}{row.name}" if row.name.startswith("conv_blocks") else row.name
        for row in profile.kernels
    }
    shown = replace(
        profile,
        calls=tuple(replace(call, name=named[call.name]) for call in profile.calls),
        kernels=tuple(replace(row, name=named[row.name]) for row in profile.kernels),
        peak_gflops=50.0,
        peak_gbps=10.0,
    )
    file = tmp_path / "alone" / "page.html"
    file.parent.mkdir()
    api.profile_html(shown, file)
    page.open(file)
    assert page.run("document.title") == "tiny · adt profile", "no script of the model ran"
    assert page.run("document.querySelectorAll('img, iframe, link').length") == 0
    largest = max(shown.kernels, key=lambda row: row.mean_us)
    bars = texts(page, "#bars text.mono")
    assert len(bars) == len(shown.kernels)
    assert bars[0] == (largest.name if len(largest.name) <= 32 else f"{largest.name[:31]}…")
    assert len(texts(page, "#cumulative circle")) == len(shown.kernels)
    assert len(texts(page, "#order rect.shape")) == len(work(shown))
    assert len(texts(page, "#roofline circle")) == sum(bool(row.flops) for row in shown.kernels)
    assert page.run("document.querySelectorAll('#roofline path.roof').length") == 1
    assert texts(page, "tr.row td:first-child")[0] == largest.name, "the table begins with the slowest"
    assert any(HOSTILE in name for name in texts(page, "tr.row td:first-child")), "a name is shown as it is"

    page.run("document.querySelector('#bars g.mark').focus()")
    press(page, "ArrowDown", 40)
    second = page.run("document.activeElement.dataset.kernel")
    press(page, "Enter", 13)
    assert page.run("document.querySelector('tr.picked').dataset.row") == second
    assert len(texts(page, "tr.more tr")) == 1 + shown.kernels[int(second)].calls
    plots = 2 + bool(shown.kernels[int(second)].flops)  # without arithmetic it has no place below a roof
    assert page.run("document.querySelectorAll('g.mark.picked').length") >= plots, "marked in each plot"
    page.run("document.querySelector('tr.row').focus()")
    press(page, "Enter", 13)
    assert page.run("document.querySelector('tr.picked').dataset.row") == page.run(
        "document.querySelector('tr.row').dataset.row"
    )
    page.click("th:nth-child(3) button")
    assert texts(page, "tr.row td:nth-child(3)") == sorted(texts(page, "tr.row td:nth-child(3)"), key=int)
    assert page.run("document.querySelector('th[aria-sort]').getAttribute('aria-sort')") == "ascending"

    light = page.run("getComputedStyle(document.body).backgroundColor")
    page.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert page.run("getComputedStyle(document.body).backgroundColor") != light
    page.screenshot(tmp_path / "page.png")
    assert page.complaints == []
    assert [url.partition(":")[0] for url in page.requests] == ["file"]


CUT = """[...document.querySelectorAll("svg text")].filter((text) => {
  const inner = text.getBoundingClientRect(), outer = text.ownerSVGElement.getBoundingClientRect();
  return inner.left < outer.left || inner.right > outer.right || inner.top < outer.top
    || inner.bottom > outer.bottom;
}).map((text) => text.textContent)"""
"""Texts that reach out of their drawing, which is where a browser cuts them."""


@pytest.mark.parametrize("emulated", [False, True], ids=["times", "arithmetic alone"])
def test_no_text_of_a_plot_is_cut(profile: Profile, page: Page, emulated: bool, tmp_path: Path) -> None:
    """Draw long names and long numbers: FLOPs of a call, tiny speeds of a roofline."""
    calls = tuple(
        replace(call, name=f"{call.name}_W{'W' * 40}", flops=113_000 if call.flops else None)
        for call in profile.calls
    )
    names = {before.name: after.name for before, after in zip(profile.calls, calls, strict=True)}
    kernels = tuple(
        replace(row, name=names[row.name], gflops=row.gflops and row.gflops * 1e-6) for row in profile.kernels
    )
    shown = replace(profile, calls=calls, kernels=kernels, emulated=emulated)
    api.profile_html(shown, tmp_path / "page.html")
    page.open(tmp_path / "page.html")
    assert not emulated or any("kFLOP" in text for text in texts(page, "#order text"))
    assert page.run(CUT) == []


def test_a_branch_that_is_not_taken(tmp_path: Path) -> None:
    """Tell which branch of an If ran; the graph has both."""
    value = helper.make_tensor_value_info
    branches = {
        f"{name}_branch": helper.make_graph(
            [node(op, ["x"], [f"{name}_y"])],
            name,
            [],
            [value(f"{name}_y", TensorProto.FLOAT, (1, 8))],
        )
        for name, op in (("then", "Exp"), ("else", "Sin"))
    }
    nodes = [node("If", ["c"], ["z"], **branches), node("Abs", ["z"], ["y"])]
    model = graph_of(nodes, {"c": (), "x": (1, 8)}, ["y"])
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.BOOL
    path = write(model, tmp_path / "branch.onnx")
    package = api.compile(path, out=tmp_path / "pkg", platform="host", check=False).path
    inputs: dict[str, np.ndarray[Any, Any]] = {"c": np.array(False), "x": np.ones((1, 8), np.float32)}
    result = api.profile(package, inputs=inputs, runs=2)
    names = [call.name for call in work(result)]
    assert any("sin" in name for name in names) and not any("exp" in name for name in names)
    assert all(call.index >= 0 for call in work(result))
    assert any("a branch not taken" in note for note in result.notes)
