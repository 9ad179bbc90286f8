"""The pages of docs/ name files that there are."""

import re
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
DOCS = TOP / "docs"
PAGES = sorted(DOCS.glob("*.md"))


def test_contributing_names_files_that_exist() -> None:
    paths = set(re.findall(r"`([\w.-]+/[\w./-]*|[\w-]+\.pyi?)`", (DOCS / "contributing.md").read_text()))
    missing = {
        path for path in paths if not (TOP / path).exists() and not (TOP / "toolchain/adt" / path).exists()
    }
    assert len(paths) > 50 and not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_of_the_repository(page: Path) -> None:
    """Link to files of the repository alone: its readers would not find what only the site has."""
    text = re.sub(r"```.*?```|`[^`]*`", "`", page.read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)", text)
    assert not [link for link in links if "://" not in link and not (DOCS / link).exists()]


def test_the_index_starts_with_the_first_hour_and_has_every_example() -> None:
    index = (DOCS / "index.md").read_text()
    assert re.findall(r"\]\(([^)]+)\)", index)[0] == "start.md"
    assert index.rindex("\n## ") == index.index("\n## Coming from TVM")
    for example in (TOP / "examples").iterdir():
        if example.is_file():
            tutorial = "# %%" in example.read_text()
            assert (f"](../examples/{example.name})" if tutorial else f"`{example.name}`") in index, (
                example.name
            )
