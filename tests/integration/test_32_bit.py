"""Sizes in the runner, on a machine with 32-bit addresses, which qemu emulates."""

import subprocess
from pathlib import Path

from adt.host.directories import resource
from support.devices.emulated import EMULATORS

PROGRAM = """
#include <cstdio>

#include "dtype.h"

int main() {
  const std::int64_t sizes[][2] = {{2, 3}, {0, 7}, {(1LL << 32) + 1, 1}, {1, 1LL << 32}, {1 << 16, 1 << 16},
                                   {0, 1LL << 32}, {-1, 1}, {536870911, 1}, {536870912, 1}};
  for (const auto& size : sizes) {
    const auto bytes = adt::ByteSize(4, size, 2);
    bytes ? std::printf("%zu ", *bytes) : std::printf("none ");
  }
}
"""


def test_no_extent_is_cut_to_32_bits(tmp_path: Path) -> None:
    source, (compiler, *arguments) = resource("cpp_runner") / "src", ["arm-linux-gnueabihf-g++", "-static"]
    (tmp_path / "main.cc").write_text(PROGRAM)
    files = [tmp_path / "main.cc", source / "dtype.cc", source / "error.cc"]
    program = tmp_path / "program"
    subprocess.run([compiler, *arguments, "-std=c++17", f"-I{source}", *files, "-o", program], check=True)

    done = subprocess.run([*EMULATORS["linux-armhf"], program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == [
        "24", "0", "none", "none", "none", "none", "none", "2147483644", "none"
    ]  # fmt: skip
