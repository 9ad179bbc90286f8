"""Inspection without TVM: kernels taken apart, graphs laid out, the page that shows them."""

import base64
import hashlib
import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adt.compiler import record
from adt.errors import MismatchError, PackageError
from adt.host import manifest
from adt.package.inspection import page as layout
from adt.package.inspection.graph import Call, DeviceKernel, Graph, Storage, Tensor, size_of
from adt.package.inspection.inspection import Inspection
from adt.package.inspection.page import render
from adt.package.inspection.profile import CallTime, Profile, load_profile
from support.codegen.html_elements import Elements
from support.standins.artefacts import make_package

HOSTILE = '</script><script>document.title="owned"</script><img src=x onerror=alert(1)>\u2028&amp;'
PROTOTYPES = """\
__kernel void add_kernel(__global float* restrict out, __global float* restrict x);
__kernel void conv_kernel(__write_only image2d_array_t out, __read_only image2d_array_t x, __global half* restrict w, int n);
"""
PROGRAM = f"""\
// Function: add_kernel
{PROTOTYPES}__kernel void add_kernel(__global float* restrict out, __global float* restrict x) {{
  out[0] = x[0];
}}

// Function: conv_kernel
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
{PROTOTYPES}__kernel void conv_kernel(__write_only image2d_array_t out, __read_only image2d_array_t x, __global half* restrict w, int n) {{
  const sampler_t image_sampler = CLK_ADDRESS_CLAMP;
}}
"""


def test_each_kernel_of_a_program() -> None:
    add, conv = record.split_program(PROGRAM)
    assert (add.name, add.function, add.textures, add.buffers) == ("add_kernel", "add", (), ("out", "x"))
    assert (conv.function, conv.buffers) == ("conv", ("w",))
    assert conv.textures == ("write_only out", "read_only x")
    assert conv.text.startswith(
        "// textures: write_only out, read_only x\n#pragma OPENCL EXTENSION cl_khr_fp16"
    )
    assert conv.text.count("__kernel") == 1 and "add_kernel" not in conv.text
    assert record.split_program("") == ()


@pytest.mark.parametrize(
    ("name", "function"),
    [("conv_kernel", "conv"), ("conv_kernel_1", "conv"), ("a_kernel_b_kernel", "a_kernel_b")],
)
def test_the_function_that_launches_a_kernel(name: str, function: str) -> None:
    assert record.KernelSource(name, (), (), "").function == function


def test_sizes() -> None:
    assert size_of((2, 3), "float32") == 24
    assert size_of((2, 3), "float16x4") == 48
    assert size_of((5,), "bool") == 5
    assert size_of((3,), "int4") == 2
    assert size_of(("n", 3), "float32") is None
    assert size_of((2,), "object") is None


def graph(name: str = "conv") -> Graph:
    """Build inputs → conv (texture) → relu → output; two storages, one after the other."""
    texture = "global.texture-nhwc"
    return Graph(
        tensors=(
            Tensor("x", "input", (1, 4), "float32", 16),
            Tensor(HOSTILE, "param", (4, 4), "float32", 64),
            Tensor("alloc", "value", (1, 4), "float32", 16, 0, texture),
            Tensor("alloc1", "value", (1, 4), "float32", 16, 1),
        ),
        calls=(
            Call(name, "kernel", (0, 1), (2,)),
            Call("relu", "kernel", (2,), (3,)),
            Call("vm.builtin.copy", "builtin", (3,), ()),
        ),
        storages=(Storage(16, texture, 0, 0, 0), Storage(32, "global", 0, 1, 2)),
        outputs=(3,),
        kernels=(
            DeviceKernel(
                f"{name}_kernel", name, ("read_only x",), ("w",), (2, 1, 1), (8, 8, 1), "opencl/k.cl", 3
            ),
        ),
    )


def test_memory() -> None:
    toy_graph = graph()
    assert (toy_graph.total, toy_graph.peak, toy_graph.unplanned) == (48, 32, 32)
    assert toy_graph.by_scope() == {"global.texture-nhwc": 16, "global": 32}
    assert toy_graph.textures_of("conv") == 1 and toy_graph.textures_of("relu") == 0


@pytest.fixture
def inspection(tmp_path: Path) -> Inspection:
    package = make_package(tmp_path / "pkg", name="toy")
    (package.path / "inspect/opencl").mkdir(parents=True)
    manifest.write(graph(), package.path / "inspect/graph.json")
    (package.path / "inspect/opencl/k.cl").write_text(f"__kernel void conv_kernel() {{}} // {HOSTILE}\n")
    (package.path / "inspect/tir.py").write_text(
        "class Module:\n    @T.prim_func\n    def relu(x: int):\n        pass\n"
    )
    return Inspection(package)


def test_the_page_is_one_file_and_takes_nothing_for_markup(inspection: Inspection) -> None:
    page = Elements(render(inspection))
    assert [tag for tag, _ in page.tags] == [
        "html", "head", "meta", "meta", "meta", "title", "style", "body", "noscript", "script", "script"
    ]  # fmt: skip
    assert not [facts for _, facts in page.tags if {"src", "href"} & facts.keys()]
    policy = page.tags[3][1]["content"] or ""
    assert "default-src 'none'" in policy
    for kind in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(page.texts[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    data = json.loads(page.texts["data"])
    assert data["tensors"][1]["name"] == HOSTILE
    assert HOSTILE in data["sources"]["conv"]["conv_kernel"]
    assert "def relu" in data["sources"]["relu"]["TIR"]
    assert data["textures"] is None, "none were asked for"
    nodes = {node["name"]: node for node in data["nodes"]}
    assert (
        nodes["conv"]["texture"] and nodes["conv"]["device"] == "opencl" and nodes["relu"]["device"] == "cpu"
    )
    assert [[start, end] for start, end, *_ in data["edges"]] == [[0, 1], [1, 2], [2, 3], [2, 4]]


def profile(inspection: Inspection, **changes: object) -> Profile:
    facts = {
        "library_sha256": inspection.package.manifest.files["mod.so"].sha256,
        "device": "a device",
        "emulated": False,
        "runs": 10,
        "calls": (CallTime(0, "conv", 120.5, 100.0, 150.0), CallTime(1, "another", 1.0, 1.0, 1.0)),
    }
    return Profile(**(facts | changes))  # type: ignore[arg-type]


def test_times_go_to_the_calls_they_are_of(inspection: Inspection, tmp_path: Path) -> None:
    manifest.write(profile(inspection), tmp_path / "profile.json")
    page = render(inspection, load_profile(tmp_path / "profile.json", inspection.package.manifest))
    data = json.loads(Elements(page).texts["data"])
    assert [node.get("us") for node in data["nodes"]] == [None, [120.5, 100.0, 150.0], None, None, None]
    assert data["profile"]["total_us"] == 121.5


def test_a_profile_of_another_package(inspection: Inspection, tmp_path: Path) -> None:
    manifest.write(profile(inspection, library_sha256="0" * 64), tmp_path / "profile.json")
    with pytest.raises(MismatchError, match="another compile"):
        load_profile(tmp_path / "profile.json", inspection.package.manifest)
    (tmp_path / "profile.json").write_text("{}")
    with pytest.raises(PackageError, match=r"not a adt\.profile file"):
        load_profile(tmp_path / "profile.json", inspection.package.manifest)


def test_without_a_record(tmp_path: Path) -> None:
    bare = Inspection(make_package(tmp_path / "pkg"))
    assert not bare.recorded and bare.textured == 0
    for look in (bare.relax, bare.tir, bare.llvm, bare.sources, lambda: render(bare)):
        with pytest.raises(PackageError, match="was left out") as missing:
            look()
        assert "adt compile toy.onnx" in missing.value.remedy


@given(
    st.integers(1, 30).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=60),
        )
    )
)
@settings(max_examples=25, deadline=None)
def test_boxes_never_overlap_and_edges_go_down(case: tuple[int, list[tuple[int, int]]]) -> None:
    count, pairs = case
    edges = [(start, end) for start, end in pairs if start < end]
    boxes, paths, (width, height) = layout.place(count, edges)
    for i in range(count):
        assert -1e-6 <= boxes[i][0] <= width - layout.WIDTH + 1e-6
        assert 0 <= boxes[i][1] <= height - layout.HEIGHT + 1e-6
        for j in range(i):
            apart = abs(boxes[i][0] - boxes[j][0]) >= layout.WIDTH - 1e-6
            assert apart or boxes[i][1] != boxes[j][1]
    assert set(paths) == set(edges)
    for (start, end), path in paths.items():
        assert boxes[start][1] < boxes[end][1]
        assert all(upper[1] < lower[1] for upper, lower in itertools.pairwise(path))
