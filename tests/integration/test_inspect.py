"""`adt inspect` on packages that were really compiled, and its page in a real browser."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import adt as api
from support.codegen.browser import Page, browser
from support.devices.programs import adt, adt_json, run_program
from support.models.onnx_graphs import f32, graph_of, node, write

HOSTILE = '</script><script>document.title="owned"</script><img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write conv → relu → conv → add (of the first conv) → mean; its input has a hostile name."""
    path = tmp_path_factory.mktemp("model") / "skip.onnx"
    nodes = [
        node("Conv", [HOSTILE, "w1"], ["a"], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"]),
        node("Conv", ["b", "w2"], ["c"], pads=[1, 1, 1, 1]),
        node("Add", ["a", "c"], ["d"]),
        node("GlobalAveragePool", ["d"], ["y"]),
    ]
    weights = {"w1": f32(8, 4, 3, 3), "w2": f32(8, 8, 3, 3)}
    return write(graph_of(nodes, {HOSTILE: (1, 4, 16, 16)}, ["y"], weights), path)


@pytest.fixture(scope="module")
def opencl(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("packages") / "opencl"
    adt_json("compile", model, "--for", "linux-aarch64", "--target", "opencl", "--no-check", "-o", out)
    return out


@pytest.fixture(scope="module")
def cpu(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("packages") / "cpu"
    adt_json("compile", model, "--for", "linux-aarch64", "-o", out)
    return out


def test_the_summary(opencl: Path) -> None:
    shown = adt("inspect", opencl).stdout
    for words in (
        "opencl on linux-aarch64",
        "float32[1, 4, 16, 16]",
        "float32[1, 8, 1, 1]",
        "0 of",
        "storages",
    ):
        assert words in shown
    document = adt_json("inspect", opencl)
    assert document["kernels"] == len(document["package"]["kernels"]) >= 3
    assert 0 < document["memory"]["peak"] <= document["memory"]["total"] <= document["memory"]["unplanned"]
    assert document["sizes"]["inspect"] == sum(
        facts["size"] for facts in document["package"]["inspection"].values()
    )


def test_the_graph_is_the_models(opencl: Path) -> None:
    graph = api.inspect(opencl).graph
    inputs = [tensor for tensor in graph.tensors if tensor.kind == "input"]
    assert [(t.shape, t.dtype, t.bytes) for t in inputs] == [((1, 4, 16, 16), "float32", 4096)]
    params = [tensor.shape for tensor in graph.tensors if tensor.kind == "param"]
    assert params == [(2, 9, 4, 4), (2, 9, 8, 4)], "output blocks, taps, input channels, lanes"
    assert [graph.tensors[index].shape for index in graph.outputs] == [(1, 8, 1, 1)]
    written = [index for call in graph.calls for index in call.outputs]
    assert len(written) == len(set(written)), "each value is written once"
    known = {i for i, tensor in enumerate(graph.tensors) if tensor.kind in ("input", "param", "constant")}
    for call in graph.calls:
        assert set(call.inputs) <= known, f"{call.name} reads what was not written"
        known |= set(call.outputs)
    convolutions = [call for call in graph.calls if "conv_blocks" in call.name]
    assert len(convolutions) == 2
    for storage_index, storage in enumerate(graph.storages):
        assert storage.first <= storage.last
        users = [
            at
            for at, call in enumerate(graph.calls)
            if any(graph.tensors[i].storage == storage_index for i in (*call.inputs, *call.outputs))
        ]
        assert storage.first <= users[0] and users[-1] <= storage.last


def test_each_kernel_of_the_program_compiles_alone(opencl: Path, tmp_path: Path) -> None:
    document = adt_json("inspect", opencl, "--opencl", "--out", tmp_path / "cl")
    rows = document["opencl"]
    assert {row["function"] for row in rows} <= {
        k["name"] for k in adt_json("inspect", opencl)["package"]["kernels"]
    }
    assert all(np.prod(row["work_items"]) >= 1 and np.prod(row["work_groups"]) >= 1 for row in rows)
    files = sorted((tmp_path / "cl").glob("*.cl"))
    assert len(files) == len(rows) >= 3
    for file in files:
        words = [
            "clang",
            "-x",
            "cl",
            "-cl-std=CL1.2",
            "-Xclang",
            "-finclude-default-header",
            "-fsyntax-only",
            file,
        ]
        run_program(*words)


def test_a_package_for_a_device_has_the_alignment_of_its_runtime(cpu: Path) -> None:
    assert api.inspect(cpu).package.manifest.alignment == 32


def test_how_a_cpu_computes_each_kernel(cpu: Path, opencl: Path) -> None:
    shown = adt("inspect", cpu, "--cpu").stdout.splitlines()
    kernels = adt_json("inspect", cpu, "--cpu")["cpu"]
    assert [line.split()[0] for line in shown] == [kernel["name"] for kernel in kernels]
    first, second = kernels[:2]
    for kernel in (first, second):  # the convolutions; 64-bit Arm's vectors have four lanes
        assert "positions of" in kernel["schedule"] and "x 4 channels at once" in kernel["schedule"]
    assert first["flops"] == 2 * 16 * 16 * 8 * 8 * 9 + 16 * 16 * 8, "the second one, with its residual"
    assert {kernel["calls"] for kernel in kernels} == {1}
    refused = adt("inspect", opencl, "--cpu")
    assert "computes on opencl" in refused.stderr and "--target cpu" in refused.stderr
    refused = adt("inspect", cpu, "--int8")
    assert refused.returncode == 3 and "computes no integers" in refused.stderr


def test_textures_are_marked(model: Path, tmp_path: Path) -> None:
    adt_json(
        "compile", model, "--for", "linux-aarch64", "--target", "adreno", "--no-check", "-o", tmp_path / "pkg"
    )
    shown = adt("inspect", tmp_path / "pkg").stdout
    inspection = api.inspect(tmp_path / "pkg")
    assert 0 < inspection.textured <= inspection.package.manifest.total
    assert f"{inspection.textured} of them with textures" in shown and "global.texture" in shown
    textured = [kernel for kernel in inspection.graph.kernels if kernel.textures]
    texts = inspection.sources("opencl")
    for kernel in inspection.graph.kernels:
        assert ("image2d" in texts[kernel.name]) == bool(kernel.textures)
    assert any(argument.startswith("write_only ") for kernel in textured for argument in kernel.textures)
    adt_json("inspect", tmp_path / "pkg", "--html", tmp_path / "page.html")
    report = inspection.package.manifest.made.textures
    assert report is not None
    with browser() as shown_page:
        shown_page.open(tmp_path / "page.html")
        shown_page.run("[...document.querySelectorAll('nav button')][3].click()")
        cells = names(shown_page, "section[data-view=Textures] td")
        assert shown_page.complaints == []
    for operator in report.convolutions:
        assert operator.name in cells and (operator.reason or operator.grounds) in cells
    in_images = {tensor.name for tensor in inspection.graph.tensors if tensor.texture}
    assert in_images, "what a kernel reads as an image lies in one"
    for call in inspection.graph.calls:
        if not inspection.graph.textures_of(call.name):
            assert not {inspection.graph.tensors[i].name for i in (*call.inputs, *call.outputs)} & in_images


def test_one_kernel(opencl: Path) -> None:
    name = adt_json("inspect", opencl, "--opencl")["opencl"][0]["name"]
    shown = adt("inspect", opencl, "--opencl", "--kernel", name).stdout
    assert shown.startswith("// textures: none") and shown.count("__kernel") == 1
    refused = adt("inspect", opencl, "--opencl", "--kernel", name + "x")
    assert refused.returncode == 3 and f"Did you mean {name!r}" in refused.stderr


def test_code_and_relax(cpu: Path, opencl: Path) -> None:
    assert "R.vm.alloc_storage" in adt("inspect", cpu, "--relax").stdout
    assert "threadIdx.x" in adt("inspect", opencl, "--tir").stdout
    assert 'target triple = "aarch64' in adt("inspect", cpu, "--llvm").stdout
    assembly = adt("inspect", cpu, "--asm").stdout
    names = [kernel["name"] for kernel in adt_json("inspect", cpu)["package"]["kernels"]]
    assert all(f"__tvm_ffi_{name}:" in assembly for name in names)
    assert "fmla" in assembly or "fmadd" in assembly, "arm64 code"
    assert adt("inspect", cpu, "--opencl").returncode == 11
    assert "hands nothing to a library" in adt("inspect", cpu, "--offload").stderr
    assert adt("inspect", cpu, "--relax", "--tir").returncode == 3
    assert adt("inspect", cpu, "--out", cpu).returncode == 3


def test_params(model: Path, cpu: Path) -> None:
    rows = {row.name: row for row in api.inspect(cpu).params()}
    for tensor in onnx.load(model).graph.initializer:
        array = numpy_helper.to_array(tensor)
        row = rows[tensor.name]
        assert (np.prod(row.shape), row.bytes, row.not_finite) == (array.size, array.nbytes, 0)
        assert np.allclose([row.min, row.max, row.mean], [array.min(), array.max(), array.mean()])
    assert "2 parameters" in adt("inspect", cpu, "--params").stdout


def test_diff(model: Path, opencl: Path, cpu: Path, tmp_path: Path) -> None:
    assert adt("inspect", cpu, "--diff", cpu).stdout == "the packages are the same\n"
    shown = adt("inspect", opencl, "--diff", cpu).stdout
    assert "target.device: opencl → cpu" in shown
    changed = onnx.load(model)
    array = numpy_helper.to_array(changed.graph.initializer[1]).copy()
    array[0, 0, 0, 0] += 0.5
    changed.graph.initializer[1].CopyFrom(numpy_helper.from_array(array, "w2"))
    onnx.save(changed, tmp_path / model.name)
    adt_json("compile", tmp_path / model.name, "--for", "linux-aarch64", "-o", tmp_path / "changed")
    difference = api.inspect_diff(cpu, tmp_path / "changed")
    assert [row.name for row in difference.fields] == ["source.sha256"]
    assert not difference.kernels
    assert [(c.name, round(c.max_abs or 0, 4)) for c in difference.changed_params] == [("w2", 0.5)]


@pytest.fixture(scope="module")
def page(opencl: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("page")
    calls = api.inspect(opencl).graph.calls
    profile = {
        "schema": "adt.profile",
        "schema_version": 1,
        "library_sha256": json.loads((opencl / "mod.json").read_text())["files"]["mod.so"]["sha256"],
        "device": f"a stand-in {HOSTILE}",
        "emulated": True,
        "runs": 3,
        "calls": [
            {"index": i, "name": call.name, "mean_us": 10.0 * (i + 1), "min_us": 1.0, "max_us": 99.0}
            for i, call in enumerate(calls)
        ],
    }
    (directory / "profile.json").write_text(json.dumps(profile))
    adt_json("inspect", opencl, "--html", directory / "page.html", "--profile", directory / "profile.json")
    return directory / "page.html"


def names(page: Page, selector: str) -> list[str]:
    contents: list[str] = page.run(f"[...document.querySelectorAll('{selector}')].map(e => e.textContent)")
    return contents


def test_the_page_in_a_browser(opencl: Path, page: Path, tmp_path: Path) -> None:
    graph = api.inspect(opencl).graph
    place = tmp_path / "alone" / "page.html"
    place.parent.mkdir()
    shutil.copy(page, place)  # nothing beside it
    with browser() as shown:
        shown.open(place)
        assert shown.run("document.title") == "skip · adt inspect", "no script of the model ran"
        assert shown.run("document.querySelectorAll('img, iframe, link').length") == 0
        assert len(names(shown, "g.node")) == len(graph.calls) + 2
        assert shown.run("document.querySelectorAll('path.edge').length") >= len(graph.calls) + 1
        assert shown.run("document.querySelectorAll('.banner').length") == 1, "emulated times are said to be"

        at = next(i for i, call in enumerate(graph.calls) if "conv_blocks" in call.name)
        shown.click(f'g.node[data-node="{at + 1}"]')
        assert names(shown, "aside h2") == [graph.calls[at].name]
        assert "__kernel void" in names(shown, "aside pre")[0]
        assert f"{10 * (at + 1)}.0 µs" in names(shown, "aside .chips")[0]
        shown.click('g.node[data-node="0"]')
        assert HOSTILE in names(shown, "aside")[0], "a name is shown as it is"

        shown.run("document.querySelector('nav button:nth-child(2)').click()")
        assert len(names(shown, "svg rect.frame")) == len(graph.storages)
        shown.run("document.querySelector('nav button:nth-child(3)').click()")
        shown.click("tr.link")  # the slowest first
        slowest = graph.calls[max(i for i, call in enumerate(graph.calls) if call.kind == "kernel")]
        assert names(shown, "aside h2") == [slowest.name]

        shown.run(
            "{ const i = document.querySelector('input'); i.value = 'conv_blocks'; i.dispatchEvent(new Event('input')) }"
        )
        assert len(names(shown, "g.node:not(.dim)")) == sum(
            "conv_blocks" in call.name for call in graph.calls
        )
        shown.screenshot(tmp_path / "page.png")
        assert shown.complaints == []
        assert [url.partition(":")[0] for url in shown.requests] == ["file"]
