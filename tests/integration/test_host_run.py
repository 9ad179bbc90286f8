"""Packages run on this machine by TVM's wheel: right on PoCL and the CPU, clear where a driver fails."""

import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adt
from adt.bundle import plugins
from adt.bundle.plugins import load_plugin
from adt.errors import ConfigError, InputError, MismatchError, RunError, SourceError, ToolNotFound
from adt.host import cache
from adt.measure.reference import run_reference
from adt.package.host_run import run as host_run
from adt.package.host_run.opencl import opencl_device
from adt.package.host_run.run import HostRun, run_package, run_packages
from support.models.broken_kernels import with_library
from support.models.small import small_model

X = np.array([[1, 2, 3, 4]], np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "small.onnx")


@pytest.fixture(scope="module")
def on_cpu(model: Path) -> Path:
    return adt.compile(model, out=model.parent / "cpu", platform="host").path


@pytest.fixture(scope="module")
def on_opencl(model: Path) -> Path:
    return adt.compile(model, out=model.parent / "cl", platform="host", target="opencl", check=False).path


def expected(model: Path, x: np.ndarray[Any, Any] = X) -> np.ndarray[Any, Any]:
    return run_reference(model, {"x": x})["y"]


def library(code: str, directory: Path) -> bytes:
    out = directory / "made.so"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(out)]
    subprocess.run(command, input=code, text=True, check=True)
    return out.read_bytes()


def test_the_machine_has_a_device_for_these_tests() -> None:
    device = opencl_device()
    assert device is not None
    assert device.images
    assert device.kind in ("gpu", "cpu") and device.driver_version and device.extensions
    assert str(device).startswith(device.name)


def test_tvms_wheel_runs_and_verifies_a_model_before_anything_is_built(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compile, run and compare here with an empty cache; what needs the runner says so."""
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path))

    done = adt.up(model, platform="host", inputs={"x": X})

    assert done.verified.verification.passed and "TVM's wheel" in done.verified.serial
    np.testing.assert_array_equal(done.verified.right["y"], expected(model))
    assert [step.name for step in done.steps] == ["compile", "verify"]
    assert not {"bundles", "build", "tvm-source"} & {path.name for path in tmp_path.iterdir()}
    assert adt.run(done.package.path).report is None
    for needs_runner in (
        lambda: adt.run(done.package.path, run_count=2),
        lambda: adt.bench(done.package.path),
        lambda: adt.verify_layers(done.package.path),
    ):
        with pytest.raises(MismatchError, match="no bundle for host was built here") as refused:
            needs_runner()
        assert "adt build-target --for host" in refused.value.remedy
        assert "--dump-calls" not in refused.value.what, "no flag of a verb"


def test_an_empty_list_of_inputs_is_refused(on_opencl: Path) -> None:
    with pytest.raises(ConfigError, match="empty list of sets"):
        adt.verify(on_opencl, inputs=[])


def test_no_driver_is_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_opencl: Path) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    assert opencl_device() is None
    with pytest.raises(ToolNotFound, match="no OpenCL device"):
        run_package(on_opencl, {"x": X}, timeout=300)


def test_a_driver_that_crashes_is_no_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.so").write_bytes(
        library("#include <stdlib.h>\n__attribute__((constructor)) void f(void) { abort(); }", tmp_path)
    )
    (tmp_path / "bad.icd").write_text(f"{tmp_path / 'bad.so'}\n")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    assert opencl_device() is None


def test_opencl_and_cpu_in_one_process(model: Path, on_opencl: Path, on_cpu: Path) -> None:
    runs = [HostRun(on_opencl, {"x": X}), HostRun(on_cpu, {"x": X}), HostRun(on_opencl, {"x": -X})]
    first, second, third = run_packages(runs, timeout=300)
    np.testing.assert_allclose(first["y"], expected(model), rtol=1e-5)
    np.testing.assert_allclose(second["y"], expected(model), rtol=1e-5)
    np.testing.assert_allclose(third["y"], expected(model, -X), rtol=1e-5)


def test_calls_share_a_process(
    model: Path, on_cpu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Start another process for another environment or package at the same path, and after a failure."""
    other = small_model(tmp_path / "other.onnx", op="Neg")
    package = adt.compile(other, out=tmp_path / "other", platform="host").path
    pids = []

    def runs(package: Path, model: Path) -> None:
        answer = run_package(package, {"x": X}, timeout=300)
        np.testing.assert_allclose(answer["y"], expected(model), rtol=1e-5)
        assert host_run._Kept.child is not None
        pids.append(host_run._Kept.child.pid)

    runs(on_cpu, model)
    runs(package, other)
    runs(on_cpu, model)
    assert len(set(pids)) == 1
    shutil.rmtree(package)
    shutil.copytree(on_cpu, package)
    runs(package, model)
    monkeypatch.setenv("POCL_DEBUG", "0")
    runs(on_cpu, model)
    with pytest.raises(RunError):
        run_package(
            with_library(on_cpu, tmp_path / "bad", library("int f;", tmp_path)), {"x": X}, timeout=300
        )
    runs(on_cpu, model)
    assert len(set(pids)) == 4


def test_a_package_from_any_directory(
    model: Path, on_cpu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Import nothing from the working directory, and find a relative path."""
    (tmp_path / "numpy.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    answer = run_package(Path(os.path.relpath(on_cpu)), {"x": X}, timeout=300)
    np.testing.assert_allclose(answer["y"], expected(model), rtol=1e-5)


def test_a_kernel_that_the_driver_refuses(on_opencl: Path, tmp_path: Path) -> None:
    source = (on_opencl / "mod.so").read_bytes()
    assert b"__kernel void" in source
    broken = with_library(on_opencl, tmp_path / "broken", source.replace(b"__kernel void", b"__kernel vuid"))
    with pytest.raises(RunError, match="does not build a kernel") as caught:
        run_package(broken, {"x": X}, timeout=300)
    assert "vuid" in caught.value.details  # from the driver's build log
    assert "--target" in caught.value.remedy


def test_a_crash_says_which_signal(on_cpu: Path, tmp_path: Path) -> None:
    code = "__attribute__((constructor)) void f(void) { *(volatile int *)8 = 1; }"
    with pytest.raises(RunError, match=r"ended with SIG(SEGV|ABRT)"):
        run_package(with_library(on_cpu, tmp_path / "bad", library(code, tmp_path)), {"x": X}, timeout=300)


def test_a_run_that_hangs_is_ended(on_cpu: Path, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    code = f"""
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) void f(void) {{
  FILE *file = fopen("{mark}", "w");
  fprintf(file, "%d", getpid());
  fclose(file);
  for (;;) sleep(1);
}}"""
    hanging = with_library(on_cpu, tmp_path / "bad", library(code, tmp_path))
    for seconds in (4, 15, 60, 240):  # so long that the library has begun, also on a slow machine
        with pytest.raises(RunError, match=rf"did not end on .* within {seconds} s"):
            run_package(hanging, {"x": X}, timeout=seconds)
        if mark.exists():
            break
    assert not Path(f"/proc/{mark.read_text()}").exists()


def test_a_library_that_is_no_model(on_cpu: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be loaded"):
        run_package(
            with_library(on_cpu, tmp_path / "bad", library("int f;", tmp_path)), {"x": X}, timeout=300
        )


def test_what_does_not_fit_is_refused_before_it_runs(on_cpu: Path, tmp_path: Path) -> None:
    for wrong in ({}, {"x": X, "z": X}, {"x": X[:, :3]}, {"x": X.astype(np.float64)}):
        with pytest.raises(InputError):
            run_package(on_cpu, wrong, timeout=300)
    other = with_library(on_cpu, tmp_path / "arm", (on_cpu / "mod.so").read_bytes())
    facts = json.loads((other / "mod.json").read_text())
    facts["target"]["platform"] = "linux-aarch64"
    (other / "mod.json").write_text(json.dumps(facts))
    with pytest.raises(MismatchError, match="linux-aarch64"):
        run_package(other, {"x": X}, timeout=300)


def test_a_plugin_is_built_once_for_all_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    library = plugins.opencl_runtime()
    built_at = library.stat().st_mtime_ns
    with ThreadPoolExecutor(max_workers=3) as threads:
        libraries = set(threads.map(lambda _: plugins.opencl_runtime(), range(3)))
    assert libraries == {library} and library.stat().st_mtime_ns == built_at
    assert cache.lookup(str(library.parent.relative_to(cache.cache_dir()))) == library.parent
    assert load_plugin(library) is load_plugin(library)


def test_a_plugin_that_cannot_be_loaded_or_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = tmp_path / "libadt_codegen_bad.so"
    bad.write_text("no library")
    with pytest.raises(SourceError, match="cannot be loaded"):
        load_plugin(bad)
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho this compiler is broken >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(SourceError, match="building TVM's OpenCL runtime") as caught:
        plugins.opencl_runtime()
    assert "is broken" in caught.value.details or "not able to compile" in caught.value.details
    assert "--tvm-source" in caught.value.remedy
