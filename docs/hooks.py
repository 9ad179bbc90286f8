"""Pages of the site besides the files of docs/: those from the code, and its contents from index.md."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

DOCS = Path(__file__).parent
TUTORIALS = {
    f"../examples/{path.name}": f"tutorial-{path.stem}.md" for path in (DOCS.parent / "examples").iterdir()
}
ELSEWHERE = {
    "../CHANGELOG.md": "changes.md",
    "../tests/seeds.md": "seeds.md",
    "../toolchain/adt/package/schemas/": "schemas/",
    **TUTORIALS,
}
"""Files of the repository that pages link to, and what the site calls them."""
SECTION = re.compile(r"^## (.+)$|^- \[(.+?)\]\(([^)]+)\)", re.M)

WORDS_FOR_TESTS = re.compile(r"^(```\w+) .+$", re.M)
"""```` ```sh no-run ````: what a test makes of the block."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the contents from index.md: a section for each heading, a page for each item that begins with a link.

    What is not in docs/ goes to the last section.
    """
    contents: list[dict[str, Any]] = [{"adt": "index.md"}]
    pages: list[dict[str, str]] = []
    for heading, title, path in SECTION.findall((DOCS / "index.md").read_text()):
        if heading:
            pages = []
            contents.append({heading: pages})
        else:
            pages.append({title.replace("`", ""): ELSEWHERE.get(path, path)})
    pages += [{"Command line": "cli.md"}, {"Settings": "configuration.md"}]
    pages += [
        {"Chips and boards": "chips.md"},
        {"ONNX's cases": "onnx-cases.md"},
        {"Every message": "messages.md"},
    ]
    config.nav = contents
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are not kept in docs/."""
    sys.path.insert(0, str(DOCS))  # mkdocs loads this file by its path alone
    from cells import page
    from generate import SITE_PAGES

    texts = {name: make() for name, make in SITE_PAGES.items()}
    for path in ("../CHANGELOG.md", "../tests/seeds.md"):
        texts[ELSEWHERE[path]] = (DOCS / path).read_text()
    for schema in (DOCS.parent / "toolchain/adt/package/schemas").glob("*.json"):
        texts[f"schemas/{schema.name}"] = schema.read_text()
    texts |= {
        name: page(DOCS / path) for path, name in TUTORIALS.items() if path in (DOCS / "index.md").read_text()
    }
    for name, text in texts.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Have links that leave docs/ in the repository stay in the site, and blocks of code have a language only."""
    markdown = WORDS_FOR_TESTS.sub(r"\1", markdown)
    for path, name in ELSEWHERE.items():
        markdown = markdown.replace(f"]({path}", f"]({name}")
    return markdown
