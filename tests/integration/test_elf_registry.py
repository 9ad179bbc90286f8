"""`adt elf` on libraries and programs that real NDKs built, compared with binutils' readelf.

The files are those of packages in the Python package index; those of npm
packages (32-bit ABIs, older and newer NDKs, no note at all) are marked nightly.
"""

import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import adt
from adt.bundle.audit.report import OK, REFUSED, WARNING, FileAudit
from adt.host.contained import write_file
from adt.host.download import RegistryFile, fetch
from support.codegen.npm import npm_archive
from support.devices.programs import adt as run_adt
from support.devices.programs import program_output
from support.standins.elf import Toolbox, stub_libraries

WHEELS = {
    "aiohttp": RegistryFile(
        "aiohttp",
        "aiohttp-3.14.5-cp314-cp314-android_24_arm64_v8a.whl",
        "939042d5cda21d41a6f512e7cc8b8e33a2aebff863352251da495fbd91b673b5",
    ),
    "markupsafe": RegistryFile(
        "markupsafe",
        "markupsafe-3.0.4-cp314-cp314-android_24_arm64_v8a.whl",
        "4ed644d75aa94a2baf7ec3a96eaa160ea58c742eb9d27c6506053c5c40fc84ed",
    ),
    "pyzmq": RegistryFile(
        "pyzmq",
        "pyzmq-27.3.0-cp314-cp314-android_24_arm64_v8a.whl",
        "fca5c2352c499e8355b581ddecfe52538984131b7efc052a30e2d32426baf637",
    ),
    "deltachat": RegistryFile(
        "deltachat-rpc-server",
        "deltachat_rpc_server-2.65.0-py3-none-android_21_arm64_v8a.whl",
        "ce778737defa28cb679dcd3cb8b7c97c63b6c6fe516630130f8dac77af19a657",
    ),
}
NPM = {
    "@esbuild/android-arm64@0.28.2": "faf07e1f4ffd327051edaa982cceacff8a15138d4b7cdaa91064a1f0fe6f0943",
    "hermes-engine@0.11.0": "be46cc8cfcdd8376472f4ecf0e4a2548bb3986525559b1580494afc40e20ec2c",
    "@napi-rs/canvas-android-arm64@1.0.11": "5575b8d5c8f70f53a92cbdd45751088a615334b52e93e8d9de9f206b89a1cccd",
    "@nativescript/android@9.1.1": "f80e15056336240a22325ef7f16046712d82a64bad751bc3107bdfbc3eb8d10f",
}
"""Package and version to the sha256 of its archive."""


@dataclass(frozen=True)
class Said:
    """The output of readelf about a file."""

    needed: list[str]
    alignments: list[int]
    api_level: int | None
    ndk: str | None
    build_id: str | None
    soname: str | None
    runpath: str | None
    flags_1: list[str]
    text_relocations: bool


def readelf(file: Path) -> Said:
    """Run readelf and read its words, not the file."""
    text = program_output("readelf", "-dlnW", file)

    def first(pattern: str) -> str | None:
        match = re.search(pattern, text, re.MULTILINE)
        return match[1] if match else None

    content = first(r"^  Android\s+0x00000084.*description data: ([0-9a-f ]+)$")
    note = bytes.fromhex(content) if content else b""
    return Said(
        needed=re.findall(r"\(NEEDED\)\s+Shared library: \[(.*)\]", text),
        alignments=[int(row.split()[-1], 16) for row in text.splitlines() if row.startswith("  LOAD ")],
        api_level=int.from_bytes(note[:4], "little") if note else None,
        ndk=note[4:68].rstrip(b"\0").decode() if note else None,
        build_id=first(r"Build ID: ([0-9a-f]+)"),
        soname=first(r"Library soname: \[(.*)\]"),
        runpath=first(r"Library (?:run|r)path: \[(.*)\]"),
        flags_1=(first(r"\(FLAGS_1\)\s+Flags: (.*)$") or "").split(),
        text_relocations="(TEXTREL)" in text,
    )


def unpacked(archive: Path, directory: Path) -> Path:
    if archive.suffix == ".tgz":
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.isreg():
                    write_file(tar, member, directory, member.name)
    else:
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(directory)
    return directory


def compare(files: dict[str, Path], audits: dict[str, FileAudit]) -> list[str]:
    """Assert that adt and readelf say the same of each file; return the rows of a table."""
    rows = []
    assert files.keys() == audits.keys()
    for name, path in files.items():
        reference, audit = readelf(path), audits[name]
        facts = audit.facts
        assert facts is not None
        note = facts.android
        assert list(facts.needed) == [need.name for need in audit.needs] == reference.needed, name
        assert [segment.align for segment in facts.loads] == reference.alignments, name
        assert (note.api_level if note else None, note.ndk if note else None) == (
            reference.api_level,
            reference.ndk,
        )
        assert (facts.build_id or None) == reference.build_id, name
        assert (facts.soname or None) == reference.soname, name
        assert (facts.runpath or None) == reference.runpath, name
        assert sorted(facts.flags_1) == sorted(reference.flags_1), name
        assert facts.text_relocations == reference.text_relocations, name
        alignments = "+".join(f"{align:#x}" for align in sorted(set(reference.alignments)))
        rows.append(
            f"{name:<78} {facts.machine:<8} API {reference.api_level!s:<5} {reference.ndk or '–':<10} {alignments:<16} "
            f"NEEDED {len(reference.needed)}  {audit.verdict}"
        )
    return rows


@pytest.fixture(scope="session")
def show(pytestconfig: pytest.Config) -> Iterator[Callable[[list[str]], None]]:
    """Print a table in spite of pytest's capturing."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    rows: list[str] = []
    yield rows.extend
    with capture.global_and_fixture_disabled():
        sys.stdout.write("\n" + "\n".join(("adt elf and readelf agree on:", *rows)) + "\n")


@pytest.mark.parametrize("package", WHEELS)
def test_wheels(package: str, tmp_path: Path, show: Callable[[list[str]], None]) -> None:
    wheel = fetch(WHEELS[package])
    audits = {file.name: file for file in adt.elf(wheel).files}
    top = unpacked(wheel, tmp_path)
    show(compare({name: top / name for name in audits}, audits))
    linked = [p for p in top.rglob("*") if p.is_file() and p.read_bytes()[:4] == b"\x7fELF"]
    assert {p.relative_to(top).as_posix() for p in linked} == audits.keys()
    assert {file.system for file in audits.values()} == {"android"}
    apis = {file.facts.android.api_level for file in audits.values() if file.facts and file.facts.android}
    ndks = {file.facts.android.ndk for file in audits.values() if file.facts and file.facts.android}
    if package == "deltachat":
        (program,) = audits.values()
        assert (apis, ndks) == ({21}, {"r27c"}) and program.facts and program.facts.program
        assert program.verdict == WARNING and program.page_sizes == (4096,)
        assert [finding.code for finding in program.findings] == ["16-kb-pages"]
        assert set(program.symbols.weak_missing) == {"copy_file_range", "getrandom", "getentropy"}
        return
    assert all(16384 in file.page_sizes for file in audits.values())
    modules = [file for file in audits.values() if "libpython3.14.so" in file.facts.needed]  # type: ignore[union-attr]
    for module in modules:
        assert module.verdict == REFUSED, "on its own: libpython comes with the app"
        assert [(finding.code, "libpython3.14.so" in finding.what) for finding in module.findings] == [
            ("missing-library", True)
        ]
        assert module.facts and module.facts.android and module.facts.android.ndk == "r27d"
    assert len(modules) == {"aiohttp": 4, "markupsafe": 1, "pyzmq": 1}[package]
    if package == "pyzmq":
        cxx = audits["pyzmq.libs/libc++_shared-d523468d.so"]
        assert cxx.verdict == OK and cxx.facts and cxx.facts.android
        assert cxx.facts.android.ndk == "r27-beta1"
        assert {segment.align for segment in cxx.facts.loads} == {0x4000, 0x10000}
        needs = {need.name: need.provider for need in modules[0].needs}
        assert needs["libc++_shared-d523468d.so"] == "file" and needs["libpython3.14.so"] == "missing"


@pytest.fixture(scope="module")
def toolbox(tmp_path_factory: pytest.TempPathFactory) -> Toolbox:
    directory = tmp_path_factory.mktemp("elf")
    return Toolbox(directory / "made", stub_libraries(directory / "stubs", newer=False))


@pytest.mark.parametrize("package", ["aiohttp", "markupsafe", "pyzmq"])
def test_modules_load_beside_a_libpython(package: str, toolbox: Toolbox) -> None:
    """Link a stand-in for libpython with every symbol that they import; with one less, one is missing."""
    wheel = fetch(WHEELS[package])
    symbols: set[str] = set()
    for file in adt.elf(wheel).files:
        assert file.facts
        names = {symbol.name for symbol in file.facts.imports if not symbol.version and not symbol.weak}
        symbols |= {name for name in names if re.match("_?Py", name)}
    assert symbols
    for left_out in ("", sorted(symbols)[0]):
        source = "".join(f"int {name} = 1;\n" for name in symbols - {left_out})
        python = toolbox.link("libpython3.14.so", source, api_level=24)
        report = adt.elf([wheel, python], api_level=24)
        assert (report.verdict == OK) == (not left_out)
        missing = {name for file in report.files for name in file.symbols.missing}
        assert missing == ({left_out} if left_out else set())


def test_the_command(tmp_path: Path) -> None:
    wheel = fetch(WHEELS["deltachat"])
    done = run_adt("elf", wheel, "--json")
    assert done.returncode == 0, done.stderr
    (file,) = json.loads(done.stdout)["files"]
    assert file["program"] and file["interpreter"] == "/system/bin/linker64"
    assert run_adt("elf", fetch(WHEELS["markupsafe"])).returncode == 7
    done = run_adt("elf", wheel, "--for", "linux-aarch64")
    assert done.returncode == 7 and "built for Android" in done.stderr


def npm_package(name: str, directory: Path) -> Path:
    return unpacked(npm_archive(name, NPM[name], directory), directory) / "package"


@pytest.mark.nightly
def test_a_program_without_a_note(tmp_path: Path, show: Callable[[list[str]], None]) -> None:
    """Go's own linker made it: no NDK, no DT_NEEDED, pages of 64 KB."""
    program = npm_package("@esbuild/android-arm64@0.28.2", tmp_path) / "bin/esbuild"
    (file,) = adt.elf(program).files
    show(compare({"esbuild": program}, {"esbuild": file}))
    assert file.verdict == OK and file.system == "android"
    assert file.facts and file.facts.android is None and file.facts.program
    assert file.page_sizes == (4096, 16384, 65536)


@pytest.mark.nightly
def test_libraries_of_an_old_ndk_for_four_abis(tmp_path: Path, show: Callable[[list[str]], None]) -> None:
    directory = npm_package("hermes-engine@0.11.0", tmp_path) / "android"
    engine, cxx = directory / "hermes-release.aar", directory / "hermes-cppruntime-release.aar"
    report = adt.elf([engine, cxx])
    audits = {file.name: file for file in report.files}
    on_disk = {}
    for archive in (engine, cxx):
        top = unpacked(archive, tmp_path / archive.stem)
        on_disk |= {name: top / name.split("!")[1] for name in audits if name.startswith(archive.name)}
    show(compare(on_disk, audits))
    assert {file.facts.android.ndk for file in report.files if file.facts and file.facts.android} == {"r21b"}
    assert len(report.files) == 8
    for name, file in audits.items():
        wide = "arm64" in name or "x86_64" in name
        assert ("16-kb-pages" in {finding.code for finding in file.findings}) == wide
        if "libc++" in name:
            assert file.verdict == (WARNING if wide else OK)
            continue
        providers = {need.name: need.provider for need in file.needs}
        assert file.verdict == REFUSED
        assert [lib for lib, who in providers.items() if who == "missing"] == ["libjsi.so", "libfbjni.so"]
        assert providers["libc++_shared.so"] == "file"
    alone = adt.elf(engine)
    assert {row.name for row in alone.deploy} == {"libjsi.so", "libfbjni.so", "libc++_shared.so"}


@pytest.mark.nightly
def test_a_plugin_of_a_new_ndk(tmp_path: Path, show: Callable[[list[str]], None]) -> None:
    """Check a Node.js addon, whose napi_ symbols come from the program that loads it, not from a library."""
    addon = npm_package("@napi-rs/canvas-android-arm64@1.0.11", tmp_path) / "skia.android-arm64.node"
    (file,) = adt.elf(addon).files
    show(compare({"skia.android-arm64.node": addon}, {"skia.android-arm64.node": file}))
    assert file.facts and file.facts.android and file.facts.android.ndk == "r30"
    assert file.verdict == REFUSED and [finding.code for finding in file.findings] == ["symbol-missing"]
    assert {name.partition("_")[0] for name in file.symbols.missing} == {"napi"}
    assert 16384 in file.page_sizes


@pytest.mark.nightly
def test_libraries_of_a_new_ndk_for_four_abis(tmp_path: Path, show: Callable[[list[str]], None]) -> None:
    libraries = npm_package("@nativescript/android@9.1.1", tmp_path) / "framework/app/libs/runtime-libs"
    archive = libraries / "nativescript-optimized.aar"
    report = adt.elf(archive)
    top = unpacked(archive, tmp_path / "aar")
    audits = {file.name: file for file in report.files}
    show(compare({name: top / name for name in audits}, audits))
    assert report.verdict == OK and len(audits) == 4
    for name, file in audits.items():
        assert file.facts and file.facts.android and file.facts.android.ndk == "r29"
        assert (16384 in file.page_sizes) == ("arm64" in name or "x86_64" in name)
