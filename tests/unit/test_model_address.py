"""A model that an address names, from a server on this machine."""

import contextlib
import hashlib
import http.server
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import adt
from adt.errors import ConfigError, DownloadError
from adt.host import download
from adt.verbs.compile import CompileRequest
from adt.verbs.verify import VerifyRequest
from support.models.small import small_model
from support.site import served


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with served(tmp_path, monkeypatch) as (root, server):
        small_model(root / "small.onnx")
        yield f"{server}/small.onnx"


def test_with_its_digest_it_is_downloaded_once(address: str, tmp_path: Path) -> None:
    file = tmp_path / "site/small.onnx"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert adt.explain(f"{address}#sha256={digest}").exit_code == 0
    file.unlink()
    for place in (f"{address}#sha256={digest}", Path(f"{address}#sha256={digest.upper()}")):
        local = CompileRequest(place).model
        assert local.name == "small.onnx" and local.is_relative_to(tmp_path / "cache")
    assert VerifyRequest(package="p", model=f"{address}#sha256={digest}").model == local
    assert VerifyRequest(package="p", reference=f"{address}#sha256={digest}").reference == str(local)


def test_without_it_only_when_told(address: str, caplog: pytest.LogCaptureFixture) -> None:
    for ask in (CompileRequest, lambda place: VerifyRequest(package="p", reference=place)):
        with pytest.raises(ConfigError, match="its sha256 is missing") as refused:
            ask(address)
        assert "--insecure-no-digest" in refused.value.remedy
    with caplog.at_level(logging.WARNING, "adt"):
        local = CompileRequest(address, insecure_no_digest=True).model
    digest = hashlib.sha256(local.read_bytes()).hexdigest()
    assert f"{address}#sha256={digest}" in caplog.text
    assert CompileRequest(f"{address}#sha256={digest}").model == local


def test_what_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="expected 1111"):
        CompileRequest(f"{address}#sha256={'1' * 64}")
    with pytest.raises(ConfigError, match="is no sha256"):
        CompileRequest(f"{address}#sha256=123")
    with pytest.raises(DownloadError, match="could not download"):
        CompileRequest(f"{address}x", insecure_no_digest=True)
    assert not [*(tmp_path / "cache/downloads").iterdir()]


class Elsewhere(http.server.SimpleHTTPRequestHandler):
    """A proxy of the public network (it is asked for whole addresses), which leads to a neighbour."""

    neighbour = ""

    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", self.neighbour)
        self.end_headers()


class Trickle(http.server.SimpleHTTPRequestHandler):
    """One byte now and then, for ever, of the headers or of the file."""

    in_headers = False

    def do_GET(self) -> None:
        self.send_response(200)
        with contextlib.suppress(OSError):
            if not self.in_headers:
                self.end_headers()
            self.flush_headers()
            while not self.server._BaseServer__shutdown_request:  # type: ignore[attr-defined]
                self.wfile.write(b"X")
                self.wfile.flush()
                time.sleep(0.05)


def test_a_public_server_does_not_lead_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inside").mkdir()
    with served(tmp_path / "inside", monkeypatch) as (root, neighbour):
        (root / "secret").write_text("secret")
        monkeypatch.setattr(Elsewhere, "neighbour", f"{neighbour}/secret")
        with served(tmp_path, monkeypatch, Elsewhere) as (_, proxy):
            monkeypatch.setenv("http_proxy", proxy)
            with pytest.raises(DownloadError, match="no public address"):
                CompileRequest("http://8.8.8.8/model.onnx", insecure_no_digest=True)
            # who names the inside means it
            assert CompileRequest(f"{proxy}/m", insecure_no_digest=True).model.read_text() == "secret"


@pytest.mark.parametrize("in_headers", [False, True])
def test_a_download_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_headers: bool) -> None:
    monkeypatch.setattr(download, "PATIENCE", 1.0)
    monkeypatch.setattr(Trickle, "in_headers", in_headers)
    with served(tmp_path, monkeypatch, Trickle) as (_, server):
        with pytest.raises(DownloadError, match=r"sent \d+ bytes in \d+ s"):
            CompileRequest(f"{server}/m#sha256={'1' * 64}")
        assert not [*(tmp_path / "cache/downloads").iterdir()]
