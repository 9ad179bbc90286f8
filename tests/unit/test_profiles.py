"""A profile without a device: calls put together with their graph, kernel by kernel, as text, trace and page."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import adt
from adt.cli.command import Rendering
from adt.errors import ConfigError, RunError
from adt.host import manifest
from adt.measure.profile.assembly import Limits, ProfilePlace, align, assemble, join, read_report
from adt.measure.profile.output import TOP, page_data, render, sorted_totals, table, trace
from adt.package.inspection.graph import Call, DeviceKernel, Graph, Tensor
from adt.package.inspection.profile import Profile, load_profile
from support.codegen.html_elements import Elements
from support.standins.artefacts import make_package

HOSTILE = '</script><script>document.title="owned"</script><img src=x onerror=alert(1)>\u2028\x1b[31m'
EMULATED = ProfilePlace("a virtual device", True, "native")


def measured(name: str, *host: float, device: tuple[float, ...] | None = None, **more: Any) -> dict[str, Any]:
    shapes = more.pop("shapes", [(1, 4), (1, 4)])
    arguments = [{"shape": shape, "dtype": "float32", "scope": "global"} for shape in shapes]
    times = {"host_us": list(host), "device_us": None if device is None else list(device)}
    return (
        {"name": name, "builtin": name.startswith("vm."), "depth": 0, "arguments": arguments} | times | more
    )


def report(*calls: dict[str, Any], runs: int = 2) -> dict[str, Any]:
    return {"runs": runs, "total_us": [100.0] * runs, "calls": list(calls)}


def graph(*names: str) -> Graph:
    """Return a chain of kernels on float32[1, 4], each of 8000 operations; the first one is OpenCL's."""
    tensors = [Tensor(f"t{i}", "value", (1, 4), "float32", 16) for i in range(len(names) + 1)]
    calls = [
        Call(name, "builtin" if name.startswith("vm.") else "kernel", (i,), (i + 1,), 8000)
        for i, name in enumerate(names)
    ]
    kernel = DeviceKernel(f"{names[0]}_kernel", names[0], (), (), (1,), (1,), "opencl/k.cl", 1)
    return Graph(tuple(tensors), tuple(calls), (), (len(names),), (kernel,))


RAW = report(
    measured("vm.builtin.alloc_storage", 1, 3, shapes=[]),
    measured("conv", 60, 62, device=(40, 44)),
    measured("relu", 10, 12),
    measured("conv", 30, 32, device=(20, 20)),
)


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    package = make_package(tmp_path / "pkg", name="toy")
    (package.path / "inspect").mkdir()
    manifest.write(graph("conv", "relu", "conv"), package.path / "inspect/graph.json")
    place = ProfilePlace("a board", False, "native", "GPU 9", "gpu")
    return assemble(package, "main", RAW, place, plain_us=(80.0, 90.0), limits=Limits(1.0, 0.002))


def test_calls_are_joined_in_order(profile: Profile) -> None:
    assert [(c.name, c.index, c.device, c.clock) for c in profile.calls] == [
        ("vm.builtin.alloc_storage", -1, "vm", "host"),
        ("conv", 0, "opencl", "event"),
        ("relu", 1, "cpu", "host"),
        ("conv", 2, "opencl", "event"),
    ]
    conv = profile.calls[1]
    assert (conv.mean_us, conv.min_us, conv.max_us, conv.host_us) == (42, 40, 44, 61)
    assert (conv.flops, conv.bytes, conv.shapes) == (8000, 32, "float32[1, 4] → float32[1, 4]")
    assert profile.total_us == 2 + 42 + 11 + 20 and profile.counted_us == 42 + 20
    assert (profile.plain_us, profile.profiled_us) == (85, 100)
    assert "for 2 of 4 calls; else the host's clock" in profile.clock
    assert profile.notes == ()


def test_the_mean_of_equal_times_is_that_time() -> None:
    raw = report(measured("a", 0.088, 0.088, 0.088), runs=3)
    (call,), _ = join(read_report(raw), graph("a"), "cpu")
    assert call.min_us == call.mean_us == call.max_us == call.host_us == 0.088


def test_kernels_are_added_up(profile: Profile) -> None:
    conv = next(row for row in profile.kernels if row.name == "conv")
    assert (conv.calls, conv.first, conv.mean_us, conv.min_us, conv.clock) == (2, 1, 62, 60, "event")
    assert conv.share == 1, "of what is by the device's clock"
    assert [row.share for row in profile.kernels if row.name != "conv"] == [None, None]
    assert (conv.flops, conv.bytes, conv.intensity) == (16000, 64, 250)
    assert conv.gflops == pytest.approx(16000 / 62e-6 / 1e9)
    assert conv.gbps == pytest.approx(64 / 62e-6 / 1e9)
    assert conv.roof_gflops == pytest.approx(min(1.0, 250 * 0.002))
    storage = profile.kernels[0]
    assert (storage.flops, storage.bytes, storage.gflops, storage.roof_gflops) == (None, None, None, None)


@pytest.mark.parametrize(
    ("ran", "known", "places"),
    [
        (["a", "vm.x", "b"], ["a", "b"], [0, -1, 1]),
        (["a", "a", "a"], ["a", "a", "a"], [0, 1, 2]),
        (["a", "c"], ["a", "b", "c"], [0, 2]),  # a branch that was not taken
        (["a", "b", "b"], ["a", "b"], [0, 1, -1]),  # a loop
        (["vm.builtin.call_tir_dyn", "b"], ["a", "b"], [0, 1]),  # the VM hides its name
        (["x"], ["a"], [-1]),
        ([], ["a"], []),
    ],
)
def test_the_order_decides_which_call_is_which(ran: list[str], known: list[str], places: list[int]) -> None:
    assert align(ran, known) == places


def test_a_run_that_differs_from_the_graph_says_so() -> None:
    raw = report(measured("a", 1, 1), measured("stranger", 1, 1), measured("a", 5, 5))
    calls, notes = join(read_report(raw), graph("a", "b"), "cpu")
    assert [(c.name, c.index, c.flops) for c in calls] == [
        ("a", 0, 8000),
        ("stranger", -1, None),
        ("a", -1, 8000),  # arithmetic is the kernel's, wherever it runs
    ]
    assert calls[1].bytes == 32, "what its arguments take"
    assert "2 of 3 calls are not where the graph has them: stranger" in notes[0]
    assert "1 of the graph's 2 calls did not run" in notes[1]


def test_without_a_graph_the_arithmetic_is_unknown() -> None:
    calls, notes = join(read_report(RAW), None, "opencl")
    assert [c.flops for c in calls] == [None] * 4
    assert {c.device for c in calls if c.name == "conv"} == {"opencl"}
    assert "FLOPs are unknown" in notes[0]


def test_a_package_from_before_has_no_arithmetic(tmp_path: Path) -> None:
    package = make_package(tmp_path / "pkg", name="toy")
    (package.path / "inspect").mkdir()
    old = manifest.fields_of(graph("conv", "relu", "conv"))
    for call in old["calls"]:
        del call["flops"]
    (package.path / "inspect/graph.json").write_text(json.dumps(old))
    result = assemble(package, "main", RAW, ProfilePlace("a board", False, "native"))
    assert [c.index for c in result.calls] == [-1, 0, 1, 2] and {c.flops for c in result.calls} == {None}
    assert result.kernels[1].bytes == 64 and result.kernels[1].gflops is None
    row = next(line for line in table(result) if line.startswith("conv"))
    assert row.split()[6] == "-", "unknown, not nothing"
    other = assemble(package, "other", RAW, ProfilePlace("a board", False, "native"))
    assert {c.index for c in other.calls} == {-1}, "the graph is of main"


def test_time_inside_other_calls_is_counted_once() -> None:
    raw = report(
        measured("f", 100, 100),
        measured("a", 30, 40, depth=1),
        measured("b", 5, 5, depth=2),
        measured("c", 7, 7),
    )
    calls, _ = join(read_report(raw), None, "cpu")
    assert [c.mean_us for c in calls] == [65, 30, 5, 7]
    assert calls[0].bytes is None, "what it moves is in the calls that it makes"


@pytest.mark.parametrize(
    "raw",
    [
        None,
        {},
        report(runs=0),
        report({"name": "a"}),
        report(measured("a", 1)),  # of two runs
        report(measured("a", 1, 1, device=(1,))),
        report(measured("a", 1, 1) | {"host_us": "soon"}),
    ],
)
def test_something_else_than_a_profile_is_refused(raw: Any) -> None:
    with pytest.raises(RunError, match="no profile"):
        read_report(raw)


def test_the_document_is_what_inspect_reads(
    profile: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Rendering("profile", profile, ()).show(as_json=True)
    (tmp_path / "p.json").write_text(capsys.readouterr().out)
    package = make_package(tmp_path / "again", name="toy")
    assert load_profile(tmp_path / "p.json", package.manifest) == profile


def test_a_file_of_the_first_kind_is_still_read(tmp_path: Path) -> None:
    package = make_package(tmp_path / "pkg", name="toy")
    old = {
        "schema": "adt.profile",
        "schema_version": 1,
        "library_sha256": package.manifest.files["mod.so"].sha256,
        "device": "a phone",
        "emulated": False,
        "runs": 3,
        "calls": [{"index": 0, "name": "conv", "mean_us": 1.0, "min_us": 1.0, "max_us": 1.0}],
    }
    (tmp_path / "p.json").write_text(json.dumps(old))
    assert load_profile(tmp_path / "p.json", package.manifest).calls[0].clock == "host"


def test_the_table(profile: Profile) -> None:
    lines = table(profile)
    assert "toy, entry main" in lines[0] and "the device's clock (its events)" in lines[2]
    rows = lines[lines.index("") + 1 :]
    assert [row.split("  ")[0] for row in rows] == ["kernel", "conv", "relu", "the virtual machine"]
    assert "device" in rows[1] and "100.0%" in rows[1] and rows[2].split()[4] == "-"
    assert "0.062 ms on the device in 2 calls" in lines[3]
    assert "0.013 ms by the host's clock in the 2 others" in lines[4]
    assert "the sum on the device is 0.73 times that" in lines[5]
    assert next(row.name for row in sorted_totals(profile, "calls")) == "conv"
    assert [row.first for row in sorted_totals(profile, "order")] == [0, 1, 2]
    assert next(row.name for row in sorted_totals(profile, "gflops")) == "relu"
    assert any("vm.builtin.alloc_storage" in line for line in table(profile, everything=True))


def test_a_long_table_is_cut(profile: Profile) -> None:
    many = replace(profile, calls=tuple(replace(profile.calls[1], name=f"k{i}") for i in range(TOP + 5)))
    assert table(many)[-1] == "… 5 more, 20.0% of the time: --all shows them"


def test_of_many_tensors_the_first_and_the_result_are_shown(profile: Profile) -> None:
    wide = replace(profile.calls[2].arguments[0], shape=(1, 1000, 1000, 1000), scope="global.texture")
    assert wide.text == "float32[1, 1000, 1000, 1000] texture"
    call = replace(profile.calls[2], arguments=(wide, wide, wide, wide), results=1)
    kernels = (replace(profile.kernels[2], shapes=(call.shapes,)),)
    shown = table(replace(profile, kernels=kernels), everything=True)[-1]
    assert shown.endswith(f"{wide.text}, … → {wide.text}") and shown.count("1000, 1000, 1000") == 2


def test_an_emulated_place_has_no_times(tmp_path: Path) -> None:
    result = assemble(make_package(tmp_path / "pkg", name="toy"), "main", RAW, EMULATED, plain_us=(85.0,))
    assert result.emulated and result.kernels[0].gflops is None
    text = "\n".join(table(result))
    assert "emulated: not a device's speed" in text and "conv" in text
    for word in ("ms", "µs", "%", "GFLOP/s", "GB/s"):
        assert word not in text.replace("times", "")
    for sort in ("time", "gflops"):
        with pytest.raises(ConfigError, match="an emulator's"):
            table(result, sort=sort)
    with pytest.raises(ConfigError, match="processor is emulated"):
        trace(result)
    data = page_data(result)
    assert (data["counted_us"], data["sums"], data["clock"]) == (None, [], None)
    for row in data["kernels"]:
        assert not {"us", "share", "gflops", "gbps"} & set(row)
        assert all("us" not in call for call in row["calls"])


@pytest.mark.parametrize(
    ("profile_place", "message"),
    [
        (ProfilePlace("here", False, "native", "pthread-cpu", "cpu"), "not a GPU's"),
        (ProfilePlace("a server", None, "rpc"), "is not known"),
        (EMULATED, "not a device's speed"),
    ],
)
def test_what_the_times_are_not_is_said(profile_place: ProfilePlace, message: str, tmp_path: Path) -> None:
    package = make_package(tmp_path / "pkg", name="toy")
    target = replace(package.manifest.target, device="opencl")
    package = replace(package, manifest=replace(package.manifest, target=target))
    result = assemble(package, "main", RAW, profile_place)
    assert any(message in note for note in result.notes)
    assert any(message in line for line in table(result))


def test_the_trace_is_chromes(profile: Profile) -> None:
    document = json.loads(json.dumps(trace(profile)))
    assert set(document) == {"traceEvents", "displayTimeUnit", "otherData"}
    calls = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert [event["name"] for event in calls] == [call.name for call in profile.calls]
    end = 0.0
    for event, call in zip(calls, profile.calls, strict=True):
        assert {"name", "cat", "ts", "dur", "pid", "tid", "args"} <= set(event)
        assert event["ts"] == pytest.approx(end) and event["dur"] == pytest.approx(call.mean_us)
        end = event["ts"] + event["dur"]
    assert end == pytest.approx(profile.total_us)
    assert calls[1]["args"]["flops"] == 8000 and calls[1]["args"]["graph_call"] == 0
    named = {event["tid"] for event in document["traceEvents"] if event["name"] == "thread_name"}
    assert named == {event["tid"] for event in calls}, "every track has a name"


def test_hostile_names_stay_text(profile: Profile) -> None:
    calls = (replace(profile.calls[1], name=HOSTILE), *profile.calls[1:])
    kernels = (replace(profile.kernels[1], name=HOSTILE), *profile.kernels[1:])
    hostile = replace(
        profile, package=HOSTILE, device=HOSTILE, calls=calls, kernels=kernels, notes=(HOSTILE,)
    )
    tags = [tag for tag, _ in Elements(render(hostile)).tags]
    assert tags.count("script") == 2 and "img" not in tags
    assert not any("\x1b" in line or "\u2028" in line for line in table(hostile))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"runs": 0}, "--runs: 0 is not a number of at least 1"),
        ({"warmup_runs": -1}, "--warmup-runs: -1"),
        ({"via": "usb"}, "--via: 'usb'"),
        ({"peak_gflops": 0.0}, "--peak-gflops: 0.0"),
        ({"peak_gbps": float("nan")}, "--peak-gbps: nan"),
        ({"key": "android"}, "only with --via rpc"),
        ({"via": "rpc", "threads": 2}, "together with --via rpc"),
    ],
)
def test_what_cannot_be_is_refused_first(words: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        adt.profile(tmp_path / "none", **words)


def test_arithmetic_is_counted_as_by_formula() -> None:
    from tvm import te, tirx, topi

    from adt.compiler.ir.flops import ATTRIBUTE, SCHEDULED, flops_of

    x, w = te.placeholder((1, 4, 16, 20), name="x"), te.placeholder((8, 4, 3, 5), name="w")
    conv = te.create_prim_func([x, w, topi.nn.conv2d_nchw(x, w, 2, (1, 2, 1, 2), 1)])
    out_height, out_width = (16 + 2 - 3) // 2 + 1, (20 + 4 - 5) // 2 + 1
    assert flops_of(conv) == 2 * 8 * out_height * out_width * 4 * 3 * 5
    a, b = te.placeholder((7, 32), name="a"), te.placeholder((32, 9), name="b")
    matmul = te.create_prim_func([a, b, topi.nn.relu(topi.matmul(a, b))])
    assert flops_of(matmul) == 2 * 7 * 32 * 9 + 7 * 9
    assert flops_of(matmul.with_attr(SCHEDULED, True)) is None
    assert flops_of(matmul.with_attr(ATTRIBUTE, 5).with_attr(SCHEDULED, True)) == 5
    n = te.placeholder((tirx.Var("n", "int64"), 32), name="n")
    assert flops_of(te.create_prim_func([n, b, topi.matmul(n, b)])) is None, "extents are open"
    c = te.placeholder((8,), name="c")
    assert flops_of(te.create_prim_func([c, topi.sort(c)])) is None, "a library does it"
