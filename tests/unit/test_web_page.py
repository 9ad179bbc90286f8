"""The pages that draw themselves share one kit."""

import re
from pathlib import Path

import pytest

import adt
from adt.host import document

ROOT = Path(adt.__file__).parent
KIT = Path(document.__file__).with_name("web_page.js")
SCRIPTS = sorted(path for path in ROOT.rglob("*.js") if path != KIT and "apk" not in path.parts)


def names(script: str) -> set[str]:
    """Return the names that *script* defines, at its beginning or in its one function."""
    return set(re.findall(r"^ {0,2}(?:const|let|function) (\w+)", script, re.MULTILINE))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_page_writes_nothing_again_that_the_kit_has(script: Path) -> None:
    style = script.with_suffix(".css")
    page = document.web_page("t", style=style, script=script, data={})
    for file in (script, style, KIT, KIT.with_suffix(".css")):
        assert page.count(file.read_text()) == 1
    assert names(KIT.read_text()) >= {"data", "make", "draw", "fill", "size", "time", "fit"}
    assert not names(KIT.read_text()) & names(script.read_text())
