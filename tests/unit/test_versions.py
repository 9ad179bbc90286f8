"""The guard of TVM's versions: others than adt's are refused before anything is imported."""

import sys
from pathlib import Path

import pytest

import adt
from adt.checkup import host
from adt.checkup.check import Status
from adt.errors import ToolNotFound
from adt.host import extras
from adt.host.extras import FFI, OURS, TVM, require_tvm


def pretend(monkeypatch: pytest.MonkeyPatch, tvm: str | None, ffi: str | None) -> None:
    monkeypatch.setattr(extras, "installed_version", {TVM: tvm, FFI: ffi}.get)


def test_what_is_installed_here_works() -> None:
    assert require_tvm() == "0.25.0.post1"
    assert host.check_pair().status is Status.OK


def test_the_pair_is_the_one_that_adt_is_installed_with() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'"{TVM}=={OURS[0]}"' in text and f'"{FFI}=={OURS[1]}"' in text


@pytest.mark.parametrize(
    ("tvm", "ffi", "reason"),
    [
        (None, None, "apache-tvm and apache-tvm-ffi not installed"),
        (None, "0.1.12", "apache-tvm not installed"),
        ("0.25.0.post1", None, "apache-tvm-ffi not installed"),
        ("0.25.0.post1", "0.1.11", "apache-tvm 0.25.0.post1 with apache-tvm-ffi 0.1.11 is installed"),
        ("0.27.0.post1", "0.1.12", "apache-tvm 0.27.0.post1 with apache-tvm-ffi 0.1.12 is installed"),
    ],
)
def test_other_pairs_are_refused(
    monkeypatch: pytest.MonkeyPatch, tvm: str | None, ffi: str | None, reason: str
) -> None:
    pretend(monkeypatch, tvm, ffi)
    with pytest.raises(ToolNotFound, match=reason) as caught:
        require_tvm()
    check = host.check_pair()
    assert check.status is Status.FAILED and reason in check.found
    for remedy in (caught.value.remedy, check.remedy):
        assert remedy.startswith(f"{sys.executable} -m pip install")
        assert "apache-tvm==0.25.0.post1 apache-tvm-ffi==0.1.12" in remedy


@pytest.mark.parametrize("verb", ["compile", "compile_kernel"])
def test_compiling_asks_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verb: str) -> None:
    """Ask before the model is read, and without TVM, whose import is what fails."""
    pretend(monkeypatch, "0.25.0.post1", "0.1.15.post2")
    for name in [name for name in sys.modules if name.split(".")[0] in ("tvm", "tvm_ffi")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tvm", None)  # importing it raises
    with pytest.raises(ToolNotFound, match="is installed, and adt is made for"):
        getattr(adt, verb)(tmp_path / "absent.onnx", platform="host")
