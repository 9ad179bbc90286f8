"""The lowest API level that adt offers has every function of bionic that adt's code calls, Android-only parts too."""

import re
from pathlib import Path

import pytest

from adt.host.directories import resource
from adt.host.ndk import LOWEST_API_LEVEL, find_ndk
from support.codegen.bionic_levels import LEVELS
from support.standins.ndk import fake_ndk

SOURCES = [
    *sorted((resource("cpp_runner") / "src").rglob("*.*")),
    *sorted((resource("cpp_runner") / "include").rglob("*.h")),
    *sorted((resource("cmake_presets") / "src").glob("*.cc")),
    *sorted(resource("templates").rglob("*.cc.j2")),
]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_no_later_function_is_called(source: Path) -> None:
    code = re.sub(r"//.*", "", source.read_text())
    called = set(re.findall(r"(?<![\w.>])(\w+)\s*\(", code))
    later = {name: LEVELS[name] for name in called & LEVELS.keys() if LEVELS[name] > LOWEST_API_LEVEL}
    assert not later, f"not in bionic at API level {LOWEST_API_LEVEL}"


def test_the_table_knows_what_was_wrong_once() -> None:
    assert LEVELS["mkostemp"] == 23 and LEVELS["aligned_alloc"] == 28


def test_no_lower_level_is_offered(tmp_path: Path) -> None:
    """Offer no level below adt's own, even of NDKs up to r25, which go down to 16 or 19 for 32-bit ARM."""
    ndk = fake_ndk(tmp_path / "ndk")
    for level in (16, 35):
        (ndk / f"toolchains/llvm/prebuilt/linux-x86_64/bin/aarch64-linux-android{level}-clang++").touch()
    assert find_ndk(str(ndk), environ={}).api_levels() == (LOWEST_API_LEVEL, 35)
