"""Choice of tensors that become images, and their right use by every kernel."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te, tirx, topi
from tvm.s_tir import Schedule
from tvm.s_tir.backend.adreno.transform import TextureFlatten

from adt.compiler.importers.importer import import_model
from adt.compiler.ir import rewriter
from adt.compiler.networks.builder import Network
from adt.compiler.passes.gpu.choice import ALWAYS
from adt.compiler.passes.gpu.pipeline import for_gpu
from adt.compiler.passes.gpu.placement import ImageLimits, place, with_images
from adt.compiler.passes.gpu.schedules import TEXELS, elements_by_tvm, prove
from adt.compiler.passes.layout.operators import block_channels
from adt.compiler.passes.lowering import check_images, image_faults, texture_lowering
from adt.compiler.passes.pipeline import fused_pipeline
from adt.compiler.passes.records.schedules import Untuned
from adt.compiler.passes.scheduling import Decisions, NoSchedule, refusals
from adt.compiler.targets.gpu import ANY_ADRENO
from adt.package.reports import SCOPE
from support.models import vision
from support.models.gpu_kernels import ADRENO

LIMITS = ImageLimits(side=8192, layers=2048)


def copy_kernel(lanes: int = 4) -> Any:
    x = te.placeholder((2, 4, 4, lanes), "float32", name="x")
    y = te.compute(x.shape, lambda *at: x(*at) + 1.0, name="y")
    return te.create_prim_func([x, y])


def lowered(function: Any) -> Any:
    with ADRENO:
        return texture_lowering()(
            tvm.IRModule({"k": function.with_attr({"target": ADRENO, "global_symbol": "k"})})
        )


def texel_schedule(function: Any, form: int = 0) -> Any:
    schedule = Schedule(function)
    with refusals():
        TEXELS.forms[form].schedule(schedule, ANY_ADRENO, Decisions())
    return schedule.mod["main"]


def test_a_texel_schedule_writes_whole_texels() -> None:
    function = texel_schedule(with_images(copy_kernel(), (True, True)))

    assert image_faults(lowered(function)) == []
    prove(function, ADRENO)


def test_a_store_of_single_lanes_is_refused() -> None:
    """Refuse upstream's fallback of a work-item for each element: wrong numbers, no message."""
    plain = Schedule(with_images(copy_kernel(), (False, True)))
    with ADRENO:
        function = elements_by_tvm(plain, ANY_ADRENO, Decisions()).mod["main"]
    module = lowered(function)

    (fault,) = image_faults(module)

    assert "float32, which is no texel" in fault
    with pytest.raises(RuntimeError, match="would use images wrongly"):
        check_images()(module)
    with pytest.raises(NoSchedule, match="no texel"):
        prove(function, ADRENO)


def test_an_image_that_is_read_and_written_is_refused() -> None:
    x = te.placeholder((2, 4, 4, 4), "float32", name="x")
    y = te.compute(x.shape, lambda *at: x(*at) + 1.0, name="y")
    z = te.compute(x.shape, lambda *at: y(*at) * 2.0, name="z")
    function = te.create_prim_func([x, y, z])
    schedule = tvm.s_tir.Schedule(with_images(function, (False, True, False)))
    for name in ("y", "z"):
        block = schedule.get_sblock(name)
        *outer, lane = schedule.get_loops(block)
        schedule.bind(schedule.fuse(*outer), "threadIdx.x")
        schedule.vectorize(lane)

    faults = image_faults(_one_kernel(schedule.mod["main"]))

    assert any("reads and writes the image" in fault for fault in faults)


def _one_kernel(function: Any) -> Any:
    """Flatten and vectorize only: splitting into kernels would separate the two."""

    passes = [
        TextureFlatten(),
        tvm.s_tir.transform.ConvertBlocksToOpaque(),
        tvm.s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        tirx.transform.VectorizeLoop(),
    ]
    with ADRENO:
        return tvm.transform.Sequential(passes)(tvm.IRModule({"k": function}))


def test_what_cannot_be_a_vector_is_computed_lane_by_lane_and_stored_as_a_texel() -> None:
    """Compute erf lane by lane: as a vector, which TVM cannot make of it, it would store single lanes."""
    x = te.placeholder((2, 4, 4, 4), "float32", name="x")
    function = te.create_prim_func([x, te.compute(x.shape, lambda *at: tirx.erf(x(*at)), name="y")])
    images = with_images(function, (True, True))

    with pytest.raises(NoSchedule, match="cannot lower it"):
        prove(texel_schedule(images), ADRENO)
    assert image_faults(lowered(texel_schedule(images, form=1))) == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: copy_kernel(8), "no texel"),
        (lambda: _softmax(), "reductions"),
    ],
    ids=["eight lanes", "several reductions"],
)
def test_what_cannot_write_texels_says_why(make: Any, words: str) -> None:
    with pytest.raises(NoSchedule, match=words):
        texel_schedule(make())


def _softmax() -> Any:
    x = te.placeholder((2, 4, 4, 4), "float32", name="x")
    return te.create_prim_func([x, topi.nn.softmax(x, 3)])


def fused(path: Path) -> Any:
    imported = import_model(path, {})
    module = rewriter.bind_params(imported.module, imported.params)
    with ADRENO:
        module = relax.transform.FoldConstant()(relax.transform.DecomposeOpsForInference()(module))
        module, _ = block_channels(module, ALWAYS.choose)
        for name in ("FoldConstant", "LegalizeOps", "AnnotateTIROpPattern", "FuseOps", "FuseTIR"):
            module = getattr(relax.transform, name)()(module)
        return relax.transform.DeadCodeElimination(["main"])(module)


def test_tensors_become_images_where_every_kernel_can(tmp_path: Path) -> None:
    module, rows, _ = place(fused(vision.mixed_blocks(tmp_path / "m.onnx")), ADRENO, LIMITS, Untuned())

    by_name = {row.kernel: row for row in rows}
    assert sum(row.textured for row in rows) >= len(rows) - 2
    assert all("would hold one texel" in row.reason for row in rows if not row.textured)
    assert any("would hold one texel" in row.reason for row in rows)
    assert any("is returned" in row.reason for row in rows)
    # A gate that is fused with the map it multiplies is computed again for each texel of the map.
    assert any(row.kernel.startswith("fused_reshape_multiply") for row in rows)
    for name, function in module.functions.items():
        if name.name_hint not in by_name:
            continue
        scopes = [function.buffer_map[param].scope() for param in function.params]
        assert scopes.count(SCOPE) == by_name[name.name_hint].reads + by_name[name.name_hint].writes


def test_an_image_over_the_devices_limits_stays_a_buffer(tmp_path: Path) -> None:
    small = ImageLimits(side=8, layers=2048)

    rows = place(fused(vision.mixed_blocks(tmp_path / "m.onnx")), ADRENO, small, Untuned())[1]

    assert any("over the device's limits" in row.reason for row in rows)
    assert any(row.textured for row in rows)


def test_weights_become_parameters_with_their_names(tmp_path: Path) -> None:
    imported = import_model(vision.mixed_blocks(tmp_path / "m.onnx"), {})

    compiled = for_gpu(imported.module, imported.params, ADRENO, LIMITS, Untuned(), chooser=ALWAYS)

    names = [str(param.name_hint) for param in compiled.module["main"].params]
    assert names[1:] == list(compiled.params)
    assert len(set(names)) == len(names)
    assert compiled.report.share > 0.9
    assert all(np.isfinite(tensor.numpy()).all() for tensor in compiled.params.values())


def classifier(path: Path) -> Any:
    net = Network((1, 4, 8, 8))
    x = net.relu(net.conv("x", 8))
    return net.save(path, net.classifier(x, 8), (1, 8))


def rows_merged(path: Path) -> Any:
    """Read a map's rows as one by a convolution over one axis."""
    net = Network((1, 4, 8, 8))
    x = net.relu(net.conv("x", 8))
    x = net.op("Reshape", [x, net.weight(np.array([1, 8, 64]))], 8)
    x = net.op("Conv", [x, net.weight(np.ones((8, 8, 1), np.float32))], 8, kernel_shape=[1])
    return net.save(path, net.relu(x), (1, 8, 64))


def placed(path: Path) -> Any:
    imported = import_model(path, {})
    return for_gpu(imported.module, imported.params, ADRENO, LIMITS, Untuned()).module


@pytest.mark.parametrize("make", [classifier, rows_merged])
def test_an_image_is_never_viewed_in_another_shape(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    """Copy an image that PoCL would take for a buffer silently and other drivers refuse."""
    module = placed(make(tmp_path / "m.onnx"))

    values = [binding.value for block in module["main"].body.blocks for binding in block.bindings]
    views = [value for value in values if getattr(getattr(value, "op", None), "name", "") == "relax.reshape"]
    assert views
    assert not [view for view in views if SCOPE in str(view.args[0].struct_info)]


def test_a_reshape_that_is_returned_is_a_view(tmp_path: Path) -> None:
    net = Network((1, 4, 8, 8))
    pooled = net.op("GlobalAveragePool", [net.conv("x", 8)], 8)
    module = placed(net.save(tmp_path / "m.onnx", net.op("Flatten", [pooled], 8), (1, 8)))

    values = [binding.value for block in module["main"].body.blocks for binding in block.bindings]
    operators = [value.op.name for value in values if isinstance(value, relax.Call)]
    assert operators == [*["relax.call_tir"] * 3, "relax.reshape"]  # packing, convolution, pool


@pytest.mark.parametrize("size", [7, 28], ids=["a part is a row", "a part is rows"])
def test_work_items_share_the_sum_over_a_whole_map(tmp_path: Path, size: int) -> None:
    net = Network((1, 4, size, size))
    pooled = net.op("GlobalAveragePool", [net.conv("x", 8)], 8)
    module = placed(net.save(tmp_path / "m.onnx", net.op("Flatten", [pooled], 8), (1, 8)))

    [pool] = [function for name, function in module.functions.items() if "pool" in name.name_hint]
    assert 'scope="shared"' in pool.script()


def lowered_main(module: Any) -> str:
    with ADRENO:
        return str(fused_pipeline(Untuned())(module)["main"].script())


def test_the_memory_of_an_image_is_its_size(tmp_path: Path) -> None:
    text = lowered_main(placed(classifier(tmp_path / "m.onnx")))

    sizes = [int(size) for size in re.findall(r"R\.vm\.alloc_storage\(R\.shape\(\[(\d+)\]\)", text)]
    assert max(sizes) == 2 * 8 * 8 * 4 * 4  # two blocks of 8 by 8 texels of four float32
