"""The runner's programs with the address and undefined-behaviour sanitizers, and its fuzz targets, built by clang.

Only adt's own code is compiled (half a minute once); TVM's libraries are those of the host bundle.
"""

import functools
import hashlib
import os
import subprocess
from pathlib import Path

import adt
from adt.host import cache
from adt.host.process import cmake, ninja
from support.devices.programs import run_program

RUNNER = Path(__file__).parents[3] / "cpp_runner"
ENVIRONMENT = {
    # A hostile file may not make the runner ask for more memory than any test's model needs.
    "ASAN_OPTIONS": "detect_leaks=1:max_allocation_size_mb=1024:allocator_may_return_null=0:"
    "detect_stack_use_after_return=1:strict_string_checks=1:exitcode=99",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    # TVM's libraries are not compiled with it: it does not see them count references, so not why they may free.
    "TSAN_OPTIONS": "exitcode=99:ignore_noninstrumented_modules=1",
}
"""Whatever a sanitizer finds ends the process with 99, or by a signal: no exit code of the runner's own."""


@functools.cache
def build(sanitizers: str = "address,undefined", *targets: str) -> Path:
    """Build the programs, all or *targets*, in ``bin/`` when one of their sources has changed."""
    bundle, tree = adt.build_target(platform="host").bundle, adt.source().path
    checkout = hashlib.sha256(str(RUNNER).encode()).hexdigest()[:8]  # a build directory has one source
    place = cache.cache_dir() / f"tests/sanitized-{sanitizers.replace(',', '-')}-{checkout}"
    with cache.lock(place):
        configure = [
            cmake().path, "-S", RUNNER / "tests", "-B", place, "-G", "Ninja",
            f"-DCMAKE_MAKE_PROGRAM={ninja().path}", "-DCMAKE_C_COMPILER=clang", "-DCMAKE_CXX_COMPILER=clang++",
            f"-DADT_TVM_SOURCE={tree}", f"-DADT_RUNTIME={bundle.path}",
            f"-DADT_SANITIZERS={sanitizers}", "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON",
        ]  # fmt: skip
        run_program(*configure)
        run_program(ninja().path, "-C", place, *targets)
    return place


def run(program: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run *program* and return its end, with its whole output."""
    return subprocess.run(
        [str(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, **ENVIRONMENT, **environment},
    )
