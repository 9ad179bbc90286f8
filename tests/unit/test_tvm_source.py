"""The provider chain: whose tree, why, and what is refused. Nothing here reaches a network."""

import shutil
import tarfile
from pathlib import Path

import pytest

from adt.errors import ConfigError, SourceError
from adt.host import contained, download, sources
from adt.options.resolve import load_settings
from adt.options.sections import TvmSettings
from support.standins.archives import tar_bytes, tar_entry
from support.standins.tvm_tree import make_tvm_tree

AUTO = TvmSettings()


def archive(path: Path, members: dict[str, str], *, link: tuple[str, str] | None = None) -> Path:
    entries = [(tar_entry(sources.SDIST_PREFIX + name), text.encode()) for name, text in members.items()]
    if link:
        entries.append(
            (tar_entry(sources.SDIST_PREFIX + link[0], type=tarfile.SYMTYPE, linkname=link[1]), b"")
        )
    path.write_bytes(tar_bytes(*entries, mode="w:gz"))
    return path


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "git_reaches", lambda _tag: False)


@pytest.fixture
def sdist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a small archive of the pinned package's shape, in place of the download."""
    members = dict.fromkeys(sources.NEEDED, "") | {
        "src/a.cc": "int a;",
        "python/tvm/x.py": "",
        "docs/y": "",
    }
    path = archive(tmp_path / "sdist.tar.gz", members)
    monkeypatch.setattr(download, "fetch", lambda _file: path)
    return path


def test_a_named_tree_wins_and_says_why(tmp_path: Path) -> None:
    flag, home = make_tvm_tree(tmp_path / "flag"), make_tvm_tree(tmp_path / "home")
    source = sources.find_source(
        TvmSettings(tvm_source=str(flag), provider="auto"), environ={"TVM_HOME": str(home)}
    )
    assert (source.path, source.provider) == (flag, "path") and "--tvm-source" in source.reason
    assert (source.version, source.ffi_version) == ("0.25.0", "0.1.2")
    source = sources.find_source(AUTO, environ={"TVM_HOME": str(home)})
    assert (source.path, source.provider) == (home, "path") and "TVM_HOME" in source.reason


def test_the_digest_of_a_named_tree_follows_its_files(tmp_path: Path) -> None:
    path = make_tvm_tree(tmp_path / "tvm")
    settings = TvmSettings(tvm_source=str(path), provider="auto")
    before = sources.find_source(settings, environ={}).digest
    assert sources.find_source(settings, environ={}).digest == before
    copy = shutil.copytree(path, tmp_path / "copy")
    (copy / "docs").mkdir()
    (copy / "docs/unread.rst").write_text("a build does not read this")
    assert sources.find_source(settings.but(tvm_source=str(copy)), environ={}).digest == before
    (path / "CMakeLists.txt").write_text("changed")
    assert sources.find_source(settings, environ={}).digest != before


def test_an_incomplete_tree_names_what_is_missing(tmp_path: Path) -> None:
    path = make_tvm_tree(tmp_path / "tvm")
    (path / "3rdparty/tvm-ffi/CMakeLists.txt").unlink()
    with pytest.raises(SourceError, match=r"3rdparty/tvm-ffi.*git submodule"):
        sources.find_source(TvmSettings(tvm_source=str(path), provider="auto"), environ={})
    with pytest.raises(SourceError, match="not a directory"):
        sources.find_source(TvmSettings(tvm_source=str(tmp_path / "absent")), environ={})
    with pytest.raises(ConfigError, match="svn"):
        load_settings(environ={"ADT_TVM_PROVIDER": "svn"})


def test_registry_then_cache(sdist: Path) -> None:
    first = sources.find_source(AUTO, environ={})
    assert first.provider == "registry" and "git does not reach" in first.reason
    assert (first.path / "src/a.cc").is_file()
    assert not (first.path / "python").exists() and not (first.path / "docs").exists()
    sdist.unlink()
    again = sources.find_source(AUTO, environ={})
    assert (again.provider, again.path, again.digest) == ("cache", first.path, first.digest)


def test_a_damaged_cached_tree_is_obtained_again(sdist: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = sources.find_source(AUTO, environ={})
    (first.path / "src/a.cc").write_text("int b; // damage")
    again = sources.find_source(AUTO, environ={})
    assert again.provider == "registry" and "damaged" in caplog.text
    assert (again.path / "src/a.cc").read_text() == "int a;"


@pytest.mark.parametrize("name", ["src/../../../escaped", "src/link"])
def test_an_archive_cannot_write_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    link = (name, "/etc") if name == "src/link" else None
    path = archive(tmp_path / "bad.tar.gz", {} if link else {name: "x"}, link=link)
    monkeypatch.setattr(download, "fetch", lambda _file: path)
    with pytest.raises(SourceError, match="cannot be unpacked"):
        sources.find_source(AUTO, environ={})
    assert not (tmp_path / "escaped").exists()


def test_an_archive_that_is_too_large_is_refused(sdist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contained, "MOST_FILES", 3)
    with pytest.raises(SourceError, match="more than 3 files"):
        sources.find_source(AUTO, environ={})


def test_a_truncated_archive_is_named(sdist: Path) -> None:
    sdist.write_bytes(sdist.read_bytes()[:-60])
    with pytest.raises(SourceError, match="cannot be unpacked"):
        sources.find_source(AUTO, environ={})
