"""Messages about this machine's OpenCL and about a run that failed, without running anything."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from adt.bundle import plugins
from adt.bundle.libraries import LIBRARIES
from adt.errors import RunError, ToolNotFound
from adt.host.child import ChildDied, ChildFailed, ChildHung
from adt.package.host_run import opencl as host_opencl
from adt.package.host_run import run as host_run
from adt.package.host_run.opencl import HostOpenCl, choose
from support.standins.artefacts import package_manifest
from support.standins.opencl import POCL

GPU = replace(POCL, platform="NVIDIA CUDA", name="H", kind="gpu", version="OpenCL 3.0 CUDA")
PACKAGE = package_manifest()


def test_a_gpu_comes_before_a_cpu_and_an_accelerator_never() -> None:
    assert choose((POCL, GPU)) == GPU
    assert choose((POCL, replace(GPU, version="OpenCL 1.1 old"))) == POCL
    assert choose((replace(POCL, kind="accelerator"),)) is None
    assert choose(()) is None


def test_what_the_query_printed() -> None:
    document = {"devices": [vars(POCL)], "reason": ""}
    text = "a driver says hello\n" + json.dumps(document, default=list)
    (device,) = host_opencl.parse(text)
    assert device == POCL and not device.fp16 and not device.gpu
    assert replace(device, extensions=("cl_khr_fp16",)).fp16
    assert (
        host_opencl.parse(json.dumps({"devices": [], "reason": "this machine has no OpenCL library"})) == ()
    )


def failure(answer: dict[str, object], device: HostOpenCl | None = GPU) -> RunError:
    return host_run._failure(answer, PACKAGE, device)


def ended(reason: ChildFailed) -> RunError:
    return host_run._ended(reason, PACKAGE, GPU, 60)


def test_a_build_log_is_in_the_details() -> None:
    text = "InternalError: Check failed\nOpenCL build error for device=1\nError: CL_BUILD\n<source>:3: bad"
    error = failure({"stage": "run", "error": text})
    assert "does not build a kernel" in error.what and "H (NVIDIA CUDA" in error.what
    assert error.details.endswith("<source>:3: bad") and error.details.startswith("OpenCL build error")


def test_a_signal_a_timeout_and_an_error() -> None:
    chatter = "[10:00:00] x.cc:341: Warning: Scope Loaded:global\n"
    crash = ended(ChildDied("ended", chatter * 3 + "driver: assertion failed", -11))
    assert "SIGSEGV" in crash.what and crash.details == "driver: assertion failed"
    assert "within 60 s" in ended(ChildHung("no answer")).what
    assert "exit code 7" in ended(ChildDied("ended", "", 7)).what
    error = failure({"stage": "run", "error": "ValueError: one\n\ntwo"}, device=None)
    assert error.what.endswith("failed on this machine's CPU: two")
    assert "cannot be loaded" in failure({"stage": "load", "error": "x"}).what


def test_no_compiler_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolNotFound) as caught:
        plugins._compiler(plugins.code_generator(LIBRARIES["clml"]))
    assert "apt-get install g++" in caught.value.remedy and "CLML" in caught.value.remedy


def test_the_wheel_is_named_by_its_libraries() -> None:
    wheel = plugins.installed_wheel()
    assert wheel.digest == plugins.installed_wheel().digest and len(wheel.digest) == 64
    assert (wheel.tvm / "lib/libtvm_runtime.so").is_file() and (wheel.ffi / "include").is_dir()
