"""One self-contained HTML page that draws itself from data it carries; it asks for no address."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from pathlib import Path
from typing import Any


def web_page(title: str, *, style: Path, script: Path, data: Any) -> str:
    """Render the page as HTML, UTF-8.

    *data* is in one JSON element, ``#data``, where nothing in a string can end it; the page's
    policy lets no other script, style or address in. What the pages share goes before their own:
    web_page.css and web_page.js beside this file.
    """
    style_text, script_text = (_with_shared(path) for path in (style, script))
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":  # nothing in a string may end the element
        text = text.replace(character, f"\\u{ord(character):04x}")
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    policy = (
        f"default-src 'none'; style-src '{_source(style_text)}'; script-src '{_source(script_text)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n"
        f"<style>{style_text}</style></head>\n"
        "<body><noscript>This page draws itself with JavaScript, from data that it carries.</noscript>\n"
        f'<script type="application/json" id="data">{text}</script>\n'
        f"<script>{script_text}</script></body></html>\n"
    )


def _with_shared(path: Path) -> str:
    return Path(__file__).with_suffix(path.suffix).read_text() + path.read_text()


def _source(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
