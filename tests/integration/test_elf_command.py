"""`adt elf`: what it prints and how it ends."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import adt
from support.standins.elf import Toolbox, stub_libraries

SOURCE = "int nobody(void); void *malloc(long); int f(void) { malloc(1); return nobody(); }"
START = 'import sys; sys.argv[0] = "adt"; from adt.cli.main import main; main()'


@pytest.fixture(scope="module")
def toolbox(tmp_path_factory: pytest.TempPathFactory) -> Toolbox:
    directory = tmp_path_factory.mktemp("elf")
    return Toolbox(directory, stub_libraries(directory / "stubs", newer=False))


def elf(tmp_path: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("ANDROID_", "NDK_"))}
    return subprocess.run(
        [sys.executable, "-c", START, "elf", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**keep, "HOME": str(tmp_path)},
        check=False,
        timeout=300,
        cwd=tmp_path,
    )


def test_a_file_that_loads(toolbox: Toolbox, tmp_path: Path) -> None:
    library = toolbox.link("libgood.so", needs=("libc.so", "libm.so"))
    done = elf(tmp_path, library)
    assert done.returncode == 0, done.stderr
    assert "libgood.so" in done.stdout and "r27d" in done.stdout and "needs libc.so, libm.so" in done.stdout
    document = json.loads(elf(tmp_path, library, "--for", "android-arm64-v8a", "--json").stdout)
    assert (document["schema"], document["schema_version"], document["verdict"]) == ("adt.elf", 1, "ok")
    (file,) = document["files"]
    assert file["machine"] == "AARCH64" and file["android"]["ndk"] == "r27d"
    assert set(file["load_alignments"]) == {16384} and file["page_sizes"] == [4096, 16384]
    assert [need["provider"] for need in file["needed"]] == ["android", "android"]


def test_a_file_that_does_not(toolbox: Toolbox, tmp_path: Path) -> None:
    bad = toolbox.link("libbad.so", SOURCE, "-Wl,-z,execstack")
    done = elf(tmp_path, bad, "--api-level", "30")
    assert done.returncode == 7
    assert "1 of 1 files would not load" in done.stderr and "remedy: " in done.stderr
    assert "✗" in done.stdout and "! it asks for an executable stack" in done.stdout
    done = elf(tmp_path, bad, "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 7 and document["verdict"] == "would not load"
    assert {finding["code"] for finding in document["files"][0]["findings"]} == {
        "executable-stack",
        "symbol-missing",
    }


def test_warnings_end_well(toolbox: Toolbox, tmp_path: Path) -> None:
    old = toolbox.link("libold.so", pages="-Wl,-z,max-page-size=4096")
    assert elf(tmp_path, old).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "Missing"),
        (["absent.so"], 11, "does not exist"),
        (["."], 11, "no ELF file"),
        ([__file__], 7, "not a whole ELF file"),
        (["absent.so", "--for", "andorid"], 3, "unknown platform"),
        ([__file__, "--ndk", "/absent"], 5, "not a directory"),
        ([__file__, "--bundle", "/absent"], 11, "does not exist"),
    ],
)
def test_errors(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    done = elf(tmp_path, *arguments)
    assert done.returncode == code and message in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_the_function_gives_the_report(toolbox: Toolbox) -> None:
    library = toolbox.link("libapi.so")
    report = adt.elf(library, platform="android-x86_64")
    assert report.verdict == "would not load" and report.refused[0].findings[0].code == "machine"
