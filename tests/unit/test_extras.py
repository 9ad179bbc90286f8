"""Commands that install Python packages name adt's own requirements, never the stranger's package ``adt``."""

import re
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

import adt
from adt.host import extras
from adt.host.extras import DISTRIBUTION, install_command

ROOT = Path(__file__).parents[2]


def test_an_extra_is_installed_by_its_pinned_requirements() -> None:
    command = install_command(extra="tflite")
    assert command.startswith(f"{sys.executable} -m pip install tflite==")
    assert "flatbuffers>=" in command and "ai-edge-litert==" in command
    assert "torch" not in command


def test_a_requirement_of_adt_has_its_version_and_another_name_stands_as_it_is() -> None:
    command = install_command("cmake", "numpy", "psutil")
    assert "'cmake>=" in command and "'numpy>=1" in command and command.endswith(" psutil")


def test_every_extra_of_the_project_has_a_command() -> None:
    named = set(re.findall(r"extra\s*==\s*['\"](\w+)", "\n".join(requires(DISTRIBUTION) or [])))
    assert {"tflite", "torch", "keras", "tune", "dask", "cuda", "image"} <= named
    for extra in named:
        assert "[" not in install_command(extra=extra)


def test_without_metadata_the_checkout_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_requirements", list)
    assert install_command(extra="tune").endswith(f"'{Path(adt.__file__).parents[2]}[tune]'")


def test_nothing_tells_to_install_adt_from_the_index() -> None:
    """Read all texts for the package index's ``adt``, which is another project."""
    texts = [
        path
        for top in ("toolchain", "docs", "examples", "templates", "scripts")
        for path in (ROOT / top).rglob("*")
    ]
    for path in [*texts, *ROOT.glob("*.md"), *ROOT.glob("*.sh"), ROOT / "tests" / "seeds.md"]:
        if path.is_file() and path.suffix in (".py", ".md", ".sh", ".j2", ".toml"):
            assert not re.search(
                r"\b(pip3?|pipx|uv tool) install\b[^\n#;]*?[ '\"]adt(\[|[\s'\"`]|$)", path.read_text()
            ), path
