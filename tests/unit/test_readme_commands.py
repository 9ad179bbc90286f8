"""The two commands of the README name files that are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("script", ["demo.sh", "test.sh", ".ci/run"])
def test_a_script_names_files_that_exist(script: str) -> None:
    text = (ROOT / script).read_text()

    named = re.findall(r"\$(?:\{)?root(?:\})?/([\w./-]+)", text)

    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_demo_has_a_file_to_look_at() -> None:
    (default,) = re.findall(r"\$\{1:-\$root/([^}]+)\}", (ROOT / "demo.sh").read_text())

    assert (ROOT / default).is_file()
    assert f"`{default}`" in (ROOT / "README.md").read_text()
