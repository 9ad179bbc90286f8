"""A model that an address names, from a server on this machine."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import adt
from adt.api.requests import CompileRequest, VerifyRequest
from adt.errors import ConfigError, DownloadError
from support.devices.programs import adt as adt_program
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
    done = adt_program("compile", address, "--explain", "--insecure-no-digest")
    assert done.returncode == 0 and digest in done.stderr and "can be imported" in done.stdout


def test_what_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="expected 1111"):
        CompileRequest(f"{address}#sha256={'1' * 64}")
    with pytest.raises(ConfigError, match="is no sha256"):
        CompileRequest(f"{address}#sha256=123")
    with pytest.raises(DownloadError, match="could not download"):
        CompileRequest(f"{address}x", insecure_no_digest=True)
    assert not list((tmp_path / "cache").rglob("*.part"))
