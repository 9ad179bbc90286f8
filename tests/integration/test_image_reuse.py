"""Images between kernels are kept from run to run: the bundle's functions in place of OpenCL's, alone."""

from pathlib import Path

import adt
from adt.host.directories import resource
from support.devices.programs import run_program

PROGRAM = Path(__file__).parents[1] / "support/codegen/image_reuse.cc"
"""Its own OpenCL functions count what is made and released."""


def test_images_are_given_out_again_and_released_in_time(tmp_path: Path) -> None:
    headers = adt.source().path / "3rdparty/OpenCL-Headers"
    ours = resource("cmake_presets") / "src/opencl_image_reuse.cc"
    options = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined"]
    words = ["clang++", *options, "-fno-sanitize-recover=all", "-isystem", headers, ours, PROGRAM, "-o"]
    run_program(*words, tmp_path / "program")

    assert run_program(tmp_path / "program").stderr == ""
