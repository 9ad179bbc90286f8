"""A package's kernels run on this machine as plain loops."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te

from adt.errors import PackageError
from adt.measure.host_kernels import HostKernels, KernelProcess, NotComputable
from adt.package.graphs import compress, reference_file
from adt.package.manifest import PackageFile
from adt.package.package import ModelPackage
from support.standins.artefacts import package_manifest


def with_plain(directory: Path, data: bytes | None) -> ModelPackage:
    """Return a package, as far as its kernels go, whose mod.json describes *data*."""
    (directory / "inspect").mkdir(exist_ok=True)
    facts = {}
    if data is not None:
        (directory / "inspect/plain.json.gz").write_bytes(data)
        facts["inspect/plain.json.gz"] = PackageFile(hashlib.sha256(data).hexdigest(), len(data))
    return ModelPackage(directory, replace(package_manifest(), inspection=facts))


def relu_and_sum() -> Any:
    x = te.placeholder((4, 8), "float32", "x")
    relu = te.compute((4, 8), lambda i, j: te.max(x[i, j], tvm.tirx.const(0, "float32")), "relu")
    k = te.reduce_axis((0, 8), "k")
    return te.create_prim_func([x, relu, te.compute((4,), lambda i: te.sum(relu[i, k], k), "total")])


@pytest.fixture(scope="module")
def kernels() -> Iterator[HostKernels]:
    yield HostKernels({"fused": relu_and_sum()})


def test_what_a_kernel_reads_and_writes(kernels: HostKernels) -> None:
    plain = kernels.plain("fused")
    assert plain.parameters == (((4, 8), "float32"), ((4, 8), "float32"), ((4,), "float32"))
    assert plain.outputs == (1, 2) and plain.operators == ("relu", "total")


def test_it_computes(kernels: HostKernels) -> None:
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    arguments = [x, np.full((4, 8), 9, np.float32), np.full(4, 9, np.float32)]
    relu, total = kernels.run("fused", arguments)
    assert np.array_equal(relu, np.maximum(x, 0)) and np.allclose(total, np.maximum(x, 0).sum(1))
    assert float(arguments[2][0]) == 9, "the device's tensors stay as they are"


@pytest.mark.parametrize("name", ["fused_texture", "fused_texture_2"])
def test_a_kernel_for_images_is_the_same_one(kernels: HostKernels, name: str) -> None:
    assert kernels.plain(name) == kernels.plain("fused")


def test_what_cannot_be_run_says_why(kernels: HostKernels) -> None:
    with pytest.raises(NotComputable, match="library"):
        kernels.plain("clml_0")
    with pytest.raises(NotComputable, match="takes 3 tensors"):
        kernels.run("fused", [np.zeros((4, 8), np.float32)])
    wrong = [np.zeros((8, 4), np.float32), np.zeros((4, 8), np.float32), np.zeros(4, np.float32)]
    with pytest.raises(NotComputable, match=r"argument 0 is float32\[4, 8\]"):
        kernels.run("fused", wrong)


def test_a_kernel_that_works_in_place_is_refused() -> None:
    from tvm.script import tirx as T

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def twice(x: T.Buffer((4,), "float32")) -> None:  # type: ignore[valid-type]
        for i in range(4):
            with T.sblock("twice"):
                j = T.axis.spatial(4, i)
                x[j] = x[j] * T.float32(2)

    with pytest.raises(NotComputable, match="in place"):
        HostKernels({"twice": twice}).plain("twice")


def test_kept_kernels_come_back_and_damage_is_told(tmp_path: Path) -> None:
    data = compress({"fused": relu_and_sum()})
    assert data == compress({"fused": relu_and_sum()})
    package = with_plain(tmp_path, data)
    with KernelProcess(package) as kernels:
        assert kernels.plain("fused").outputs == (1, 2)
        arguments = [np.ones((4, 8), np.float32), np.zeros((4, 8), np.float32), np.zeros(4, np.float32)]
        assert np.array_equal(kernels.run("fused", arguments)[1], np.full(4, 8, np.float32))
        with pytest.raises(NotComputable, match="library"):
            kernels.plain("clml_0")
    (tmp_path / "inspect/plain.json.gz").write_bytes(data[:-20] + b"x" * 20)
    with pytest.raises(PackageError, match="not the file"):
        reference_file(package)
    with pytest.raises(PackageError, match="cannot be read"):
        reference_file(with_plain(tmp_path, b"no gzip"))
    with pytest.raises(PackageError, match="no inspect/plain"):
        reference_file(with_plain(tmp_path, None))
