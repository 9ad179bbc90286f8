"""A GPU that fails or is lost ends in an error of the C interface, not in the end of the app's process.

OpenCL is a stand-in, which computes nothing: each of its calls fails in turn.
"""

from pathlib import Path

import pytest
from test_cpp_runner import Built, built
from test_rtvm import onnx_file, textured
from test_runner_abi import CASES, Case, case

import adt
from adt.package.package import ModelPackage
from support.devices.programs import run_program, try_program
from support.sampling import of_each_run

__all__ = ["CASES", "built", "case", "onnx_file", "textured"]

SUPPORT = Path(__file__).parents[1] / "support"


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the stand-in's libOpenCL.so."""
    place = tmp_path_factory.mktemp("standin")
    headers = adt.source().path / "3rdparty/OpenCL-Headers"
    source = SUPPORT / "standins/opencl_driver.c"
    words = ["gcc", "-shared", "-fPIC", "-O1", "-w", f"-I{headers}", source, "-o", place / "libOpenCL.so"]
    run_program(*words)
    return place


def test_failures_are_told_apart(case: Case, driver: Path) -> None:
    case("device_failures", {"LD_LIBRARY_PATH": str(driver)})


@pytest.mark.parametrize("vendor", ["adt tests", "QUALCOMM"])  # of the latter, images are parts of buffers
def test_every_call_may_fail(
    built: Built, textured: ModelPackage, driver: Path, tmp_path: Path, vendor: str
) -> None:
    lib, program = built.installed / "lib", tmp_path / "program"
    words = ["gcc", "-std=gnu99", "-Wall", "-Wextra", "-Werror", f"-I{built.installed / 'include'}"]
    link = [f"-L{lib}", "-ladt_runner", "-ldl", f"-Wl,-rpath,{lib}", f"-Wl,-rpath-link,{lib}"]
    run_program(*words, SUPPORT / "codegen/gpu_faults.c", "-o", program, *link)

    environment = {"LD_LIBRARY_PATH": str(driver), "STANDIN_VENDOR": vendor}
    done = try_program(program, textured.path, tmp_path, **environment)

    assert done.returncode == 0, done.stderr[-2000:]
    for line in done.stdout.splitlines():
        _kind, lives, failed = line.rsplit(maxsplit=2)
        assert int(lives) > 100 and int(failed) > 50, line
    assert len(done.stdout.splitlines()) == 3


@pytest.mark.parametrize("step", of_each_run(1, 7, 1))
def test_a_gpu_that_is_lost_while_it_is_profiled(
    built: Built, textured: ModelPackage, driver: Path, step: int
) -> None:
    """Lose it from each *step*-th of the OpenCL calls on, until the process ends before that call."""
    words = ["--model", textured.path, "--profile", "1", "--program-cache", "off", "--build-threads", "1"]
    failures = 0
    for call in range(1, 5000, step):
        environment = {"LD_LIBRARY_PATH": str(driver), "STANDIN_LOST": str(call)}
        done = built.run(*words, "--run-count", "1", "--dry-run", "0", env=environment)
        if done.code == 0:
            break
        failures += 1
        assert done.code > 0 and "rtvm: error: " in done.err, (call, done.code, done.err)
    assert 100 < failures * step < 4000
