"""Wheels, AARs and APKs: read with limits, never unpacked."""

import struct
import zipfile
from pathlib import Path

import pytest

from adt.bundle.audit import binaries
from adt.bundle.audit.auditing import audit, audit_paths
from adt.bundle.audit.binaries import Binary, collect
from adt.bundle.audit.destination import Destination
from adt.bundle.audit.report import OK, REFUSED, WARNING
from adt.errors import PackageError
from adt.options.resolve import load_settings
from support.standins.elf import Toolbox, stub_libraries


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    directory = tmp_path_factory.mktemp("elf")
    return (
        Toolbox(directory, stub_libraries(directory / "stubs", newer=False)).link("libgood.so").read_bytes()
    )


def archive(path: Path, members: dict[str, bytes], *, stored: bool = False, padding: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED) as file:
        for name, contents in members.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
            info.extra = struct.pack("<HH", 0xD935, padding) + bytes(padding) if padding else b""
            file.writestr(info, contents)
    return path


def padding_for(name: str, alignment: int) -> int:
    """Return the bytes of an extra field that put a first member at a multiple of *alignment*."""
    return -(30 + len(name) + 4) % alignment


def test_only_linked_elf_files_count(library: bytes, tmp_path: Path) -> None:
    members = {
        "classes.dex": b"dex\n" * 100,
        "jni/arm64-v8a/libgood.so": library,
        "short": b"\x7fELF",
        "damaged.so": library[:5000],
        "object.o": library[:16] + b"\x01\0" + library[18:],
    }
    report = audit(collect(archive(tmp_path / "x.aar", members)), Destination())
    assert [(f.name, f.verdict) for f in report.files] == [
        ("jni/arm64-v8a/libgood.so", OK),
        ("damaged.so", REFUSED),
    ]
    assert list(tmp_path.iterdir()) == [tmp_path / "x.aar"], "nothing is unpacked"


@pytest.mark.parametrize(("alignment", "verdict"), [(16384, OK), (4096, WARNING)])
def test_where_an_apk_stores_its_libraries(
    library: bytes, tmp_path: Path, alignment: int, verdict: str
) -> None:
    name = "lib/arm64-v8a/libgood.so"
    apk = archive(tmp_path / "a.apk", {name: library}, stored=True, padding=padding_for(name, alignment))
    (binary,) = collect(apk)
    assert isinstance(binary, Binary) and binary.stored_at is not None
    assert binary.stored_at % alignment == 0
    assert apk.read_bytes()[binary.stored_at :].startswith(b"\x7fELF")
    (file,) = audit([binary], Destination()).files
    assert file.verdict == verdict
    assert {f.code for f in file.findings} == ({"apk-alignment"} if verdict == WARNING else set())
    compressed = archive(tmp_path / "b.apk", {name: library})
    assert audit(collect(compressed), Destination()).verdict == OK
    wheel = archive(tmp_path / "c.whl", {name: library}, stored=True, padding=7)
    assert audit(collect(wheel), Destination()).verdict == OK, "a wheel is always unpacked"


def test_what_is_no_archive(library: bytes, tmp_path: Path) -> None:
    whole = archive(tmp_path / "x.aar", {"libgood.so": library}).read_bytes()
    for number, contents in enumerate(
        (b"", b"text", whole[:-30], whole[:200] + bytes(300) + whole[500:], b"\x7fELF")
    ):
        (tmp_path / f"{number}.aar").write_bytes(contents)
        with pytest.raises(PackageError, match="cannot be read as a zip archive"):
            collect(tmp_path / f"{number}.aar")
    with pytest.raises(PackageError, match="no ELF file"):
        collect(archive(tmp_path / "text.jar", {"readme": b"text" * 100}))


def test_an_encrypted_archive(library: bytes, tmp_path: Path) -> None:
    contents = bytearray(archive(tmp_path / "x.zip", {"libgood.so": library}).read_bytes())
    contents[6] |= 1  # the flag in the local header …
    contents[contents.index(b"PK\x01\x02") + 8] |= 1  # … and in the directory
    (tmp_path / "x.zip").write_bytes(contents)
    with pytest.raises(PackageError, match="encrypted"):
        collect(tmp_path / "x.zip")


def test_archives_that_grow(library: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "LARGEST_MEMBER", 100_000)
    bomb = archive(tmp_path / "bomb.zip", {"lib.so": b"\x7fELF" + bytes(10_000_000)})
    with pytest.raises(PackageError, match="larger than adt reads"):
        collect(bomb)
    monkeypatch.setattr(binaries, "LARGEST_TOTAL", 2 * len(library))
    with pytest.raises(PackageError, match="larger than adt reads"):
        collect(archive(tmp_path / "many.zip", {f"{n}.so": library for n in range(3)}))
    monkeypatch.setattr(binaries, "MOST_MEMBERS", 10)
    with pytest.raises(PackageError, match="11 members"):
        collect(archive(tmp_path / "files.zip", {str(n): b"" for n in range(11)}))


def test_a_size_in_the_directory_that_lies(library: bytes, tmp_path: Path) -> None:
    """Read only the 100 bytes that a member claims, of more, and find them damaged."""
    contents = bytearray(archive(tmp_path / "x.zip", {"libgood.so": library}).read_bytes())
    at = contents.index(b"PK\x01\x02") + 24
    contents[at : at + 4] = struct.pack("<I", 100)
    (tmp_path / "x.zip").write_bytes(contents)
    try:
        (member,) = collect(tmp_path / "x.zip")
    except PackageError as error:
        assert "zip archive" in error.what
    else:
        assert not isinstance(member, Binary)


def test_names_in_archives_stay_names(library: bytes, tmp_path: Path) -> None:
    members = {"../../etc/\x1b[2Jlib.so": library, "/absolute.so": library}
    report = audit(collect(archive(tmp_path / "x.zip", members)), Destination())
    assert all(file.name.isprintable() for file in report.files) and len(report.files) == 2
    assert list(tmp_path.iterdir()) == [tmp_path / "x.zip"]


def test_what_an_app_carries_is_for_android_whatever_it_was_built_for(tmp_path: Path) -> None:
    import numpy

    built_for_glibc = next(Path(numpy.__file__).parent.glob("random/_common*.so")).read_bytes()
    build = load_settings(environ={}).settings.build
    systems = {}
    for name in ("a.apk", "b.aar", "c.zip"):
        path = archive(tmp_path / name, {"lib/x86_64/libx.so": built_for_glibc})
        (audited,) = audit_paths([path], platform=None, api_level=None, settings=build).files
        systems[name] = audited.system
        refused = [finding.what for finding in audited.findings if finding.verdict == REFUSED]
        assert any("not for Android" in text for text in refused) is (name != "c.zip")
    assert systems == {"a.apk": "android", "b.aar": "android", "c.zip": "glibc"}
