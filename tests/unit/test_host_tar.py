"""Archives may write plain files below one directory alone, on every Python that adt supports."""

import io
import tarfile
from pathlib import Path

import pytest

from adt.host.contained import write_file
from support.standins.archives import tar_bytes, tar_entry


def tar(*members: tuple[str, bytes, dict[str, object]]) -> tarfile.TarFile:
    packed = tar_bytes(*((tar_entry(name, **facts), data) for name, data, facts in members))
    return tarfile.open(fileobj=io.BytesIO(packed))


def test_a_file_keeps_contents_time_and_the_right_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use nothing of Python 3.11.4 for it: no TarInfo.replace, no extraction filters."""
    monkeypatch.delattr(tarfile.TarInfo, "replace", raising=False)
    monkeypatch.delattr(tarfile.TarFile, "extract")
    with tar(("a/b", b"text", {"mtime": 5}), ("run", b"#!", {"mode": 0o4755, "mtime": 7})) as packed:
        for member in packed:
            write_file(packed, member, tmp_path, f"below/{member.name}")
    plain, program = tmp_path / "below/a/b", tmp_path / "below/run"
    assert (plain.read_bytes(), plain.stat().st_mtime) == (b"text", 5)
    assert (plain.stat().st_mode & 0o7777, program.stat().st_mode & 0o7777) == (0o644, 0o755)


@pytest.mark.parametrize("name", ["/etc/adt-owned", "../owned", "a/../../owned", "", "a\0b"])
def test_no_name_leads_outside(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "inside"
    with tar(("x", b"x", {})) as packed, pytest.raises(tarfile.ExtractError, match="outside"):
        write_file(packed, packed.getmember("x"), directory, name)
    assert not list(tmp_path.rglob("owned")) and not directory.exists()


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE],
)
def test_only_plain_files(tmp_path: Path, kind: bytes) -> None:
    with tar(("x", b"", {"type": kind, "linkname": "/etc"})) as packed:
        (member,) = packed.getmembers()
        with pytest.raises(tarfile.ExtractError, match="no plain file"):
            write_file(packed, member, tmp_path, "x")
    assert not list(tmp_path.iterdir())


def test_no_file_takes_anothers_place_or_goes_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with tar(("a", b"1", {})) as packed:
        write_file(packed, packed.getmember("a"), tmp_path, "a")
        for name in ("a", "a/b", "link"):
            with pytest.raises(tarfile.ExtractError, match="there twice"):
                write_file(packed, packed.getmember("a"), tmp_path, name)
    assert not (tmp_path / "elsewhere").exists()
