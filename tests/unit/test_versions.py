"""The guard of TVM's versions: pairs that break are refused before anything is imported."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

import adt
from adt.errors import ToolNotFound
from adt.host import extras
from adt.host.extras import FFI, PAIRINGS, TVM, require_tvm, texture_codegen_trusted


@pytest.fixture(autouse=True)
def fresh() -> None:
    extras._judged.cache_clear()


def pretend(monkeypatch: pytest.MonkeyPatch, tvm: str | None, ffi: str | None) -> None:
    monkeypatch.setattr(extras, "installed_version", {TVM: tvm, FFI: ffi}.get)


def test_what_is_installed_here_works() -> None:
    assert require_tvm() == "0.25.0.post1"


@pytest.mark.parametrize(
    ("tvm", "ffi"), [(tvm, ffi) for tvm, pairing in PAIRINGS.items() for ffi in pairing.breaks]
)
def test_pairs_that_break_are_refused(monkeypatch: pytest.MonkeyPatch, tvm: str, ffi: str) -> None:
    pretend(monkeypatch, tvm, ffi)
    with pytest.raises(ToolNotFound, match=ffi) as caught:
        require_tvm()
    assert f"{TVM}=={tvm} {FFI}=={PAIRINGS[tvm].works[-1]}" in caught.value.remedy
    assert "apache-tvm==0.25.0.post1 apache-tvm-ffi==0.1.12" in caught.value.remedy


@pytest.mark.parametrize(("tvm", "ffi"), [(None, None), (None, "0.1.12"), ("0.25.0.post1", None)])
def test_what_is_not_installed(monkeypatch: pytest.MonkeyPatch, tvm: str | None, ffi: str | None) -> None:
    pretend(monkeypatch, tvm, ffi)
    with pytest.raises(ToolNotFound, match="not installed") as caught:
        require_tvm()
    assert caught.value.remedy.startswith(f"{sys.executable} -m pip install")


def test_what_is_not_known_is_warned_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for tvm, ffi, said in (("0.31.0", "0.9", "has not been tried with apache-tvm 0.31.0"),
                           ("0.25.0.post1", "0.1.99", "has not been tried with apache-tvm-ffi 0.1.99")):  # fmt: skip
        pretend(monkeypatch, tvm, ffi)
        assert require_tvm() == require_tvm() == tvm
        assert [said.split(" with ")[1] in message for message in caplog.messages] == [True]
        caplog.clear()


def test_known_pairs_pass_in_silence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for tvm, pairing in PAIRINGS.items():
        for ffi in pairing.works:
            pretend(monkeypatch, tvm, ffi)
            assert require_tvm() == tvm
    assert caplog.messages == []


def test_textures_are_trusted_where_they_were_right() -> None:
    assert texture_codegen_trusted("0.25.0") is None
    assert texture_codegen_trusted("0.25.0.post1") is None
    for version in ("0.26.0", "0.27.0.post1"):
        assert f"apache-tvm {version}" in str(texture_codegen_trusted(version))
        assert "without an error" in str(texture_codegen_trusted(version))
    assert "not been tried" in str(texture_codegen_trusted("0.31.0"))


@pytest.mark.parametrize("verb", ["compile", "compile_kernel"])
def test_compiling_asks_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: str) -> None:
    """Ask before the model is read, and without TVM, whose import is what fails."""
    pretend(monkeypatch, "0.25.0.post1", "0.1.15.post2")
    for name in [name for name in sys.modules if name.split(".")[0] in ("tvm", "tvm_ffi")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tvm", None)  # importing it raises
    with pytest.raises(ToolNotFound, match="is a pair that breaks"):
        getattr(adt, verb)(tmp_path / "absent.onnx", platform="host")
