"""One self-contained HTML page that draws itself from data it carries; it asks for no address."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from typing import Any


def web_page(title: str, *, style: str, script: str, data: Any) -> str:
    """The page as HTML, UTF-8.

    *data* is in one JSON element, ``#data``, where nothing in a string can end it; the page's
    policy lets no other script, style or address in.

    Args:
        style: CSS; script: JavaScript: our own, not made of data.
        data: what JSON is made of.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":  # nothing in a string may end the element
        text = text.replace(character, f"\\u{ord(character):04x}")
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    policy = (
        f"default-src 'none'; style-src '{_source(style)}'; script-src '{_source(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n"
        f"<style>{style}</style></head>\n"
        "<body><noscript>This page draws itself with JavaScript, from data that it carries.</noscript>\n"
        f'<script type="application/json" id="data">{text}</script>\n'
        f"<script>{script}</script></body></html>\n"
    )


def _source(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
