"""Downloads by sha256, from an index on the loopback."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from adt.errors import DownloadError
from adt.host import download
from support.site import served

CONTENT = b"the pinned file"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Serve a package index (stand-in: static pages) on 127.0.0.1 with the project `thing`."""
    with served(tmp_path, monkeypatch) as (site, address):
        (site / "simple/thing").mkdir(parents=True)
        (site / "simple/thing/index.html").write_text('<a href="/files/thing-1.tar.gz">thing-1.tar.gz</a>')
        (site / "files").mkdir()
        (site / "files/thing-1.tar.gz").write_bytes(CONTENT)
        monkeypatch.setenv("PIP_INDEX_URL", f"{address}/simple/")
        yield site


def pinned(
    sha256: str = hashlib.sha256(CONTENT).hexdigest(), name: str = "thing-1.tar.gz"
) -> download.RegistryFile:
    return download.RegistryFile("thing", name, sha256)


def test_fetched_once_and_again_when_damaged(index: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = download.fetch(pinned())
    assert path.read_bytes() == CONTENT
    (index / "files/thing-1.tar.gz").rename(index / "gone")
    assert download.fetch(pinned()) == path
    path.write_bytes(b"damage")
    (index / "gone").rename(index / "files/thing-1.tar.gz")
    assert download.fetch(pinned()).read_bytes() == CONTENT
    assert "damaged" in caplog.text


def test_other_contents_are_refused_and_not_kept(index: Path, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="expected"):
        download.fetch(pinned(sha256="0" * 64))
    assert not [*(tmp_path / "cache/downloads").iterdir()]


def test_settings_are_those_of_pip_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read all of its files, not only the one that `pip config set` would write to; variables come first."""
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = http://127.0.0.1:9/file\ncert = /file\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.setenv("PIP_CERT", "/variable")
    assert download.pip_settings() == {"index-url": "http://127.0.0.1:9/file", "cert": "/variable"}


def test_not_listed_and_not_reachable(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DownloadError, match="does not list"):
        download.fetch(pinned(name="thing-2.tar.gz"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")  # nothing listens on the discard port
    with pytest.raises(DownloadError, match="could not download"):
        download.fetch(pinned())
