"""The runner's own tests once more, on programs that the address and undefined-behaviour sanitizers watch.

Left out is what runs on OpenCL: drivers, PoCL among them, are not built for the sanitizers' memory.
Input files that are damaged are seeds of the fuzz targets (test_fuzz.py), which the same sanitizers watch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_cpp_runner import (  # noqa: F401  # pytest runs the tests with this module's own `built`
    Built,
    Package,
    arrays,
    compile_commands,
    echo,
    mixed,
    symbolic,
    test_archive_written_to_a_pipe,
    test_arguments_that_mod_json_does_not_describe,
    test_context_symbols,
    test_file_in_file_out,
    test_files_of_no_use,
    test_hash,
    test_inputs_that_do_not_fit,
    test_machine,
    test_made_up_inputs_are_pythons,
    test_manifest_that_is_no_json_object,
    test_npz_round_trip,
    test_one_symbol_is_one_length,
    test_outputs_that_mod_json_does_not_describe,
    test_parameter_that_is_missing,
)
from test_runner_abi import declared

from support.codegen import sanitized
from support.devices.programs import Finished

__all__ = ["arrays", "echo", "mixed", "symbolic"]


class Watched(Built):
    """The sanitized programs in the place of the bundle's."""

    def run(self, *arguments: Any, env: dict[str, str] | None = None) -> Finished:
        done = sanitized.run(self.rtvm, *arguments, **(env or {}))
        for word in ("AddressSanitizer", "LeakSanitizer", "runtime error:"):
            assert word not in done.stderr, done.stderr
        return Finished(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def built() -> Built:
    place = sanitized.build()
    return Watched(place, place)


def test_c_interface(built: Built, mixed: Package) -> None:
    done = sanitized.run(built.build / "bin/c_program", mixed.path)
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
    source = (sanitized.RUNNER / "tests/c_program.c").read_text()
    assert [name for name in declared() if f"{name}(" not in source] == []


def test_clang_has_compiled_all_of_our_code_without_a_warning() -> None:
    """Fail on warnings in the build of the sanitized programs."""
    ours = compile_commands(sanitized.build())
    targets = {Path(output).parts[2].removesuffix(".dir") for output in ours}
    assert targets >= {
        "adt_probe",
        "adt_rpc_functions",
        "adt_runner",
        "adt_runner_core",
        "adt_timed_runs",
        "rtvm",
    }
    assert all("clang++" in command and "-Werror" in command for command in ours.values())


def test_sanitizers_watch(tmp_path: Path) -> None:
    """Fail a program on purpose: a build without sanitizers would pass everything here."""
    for name in ("bin/rtvm", "lib/libadt_runner.so"):
        code = (sanitized.build() / name).read_bytes()
        assert b"__asan_report_load8" in code
        assert b"__ubsan_handle_" in code
