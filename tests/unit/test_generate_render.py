"""Filters that make one thing of any text, in the languages that read it."""

import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adt import __version__
from adt.integrate import templates as rendering
from adt.integrate.templates import (
    GENERATED,
    android_string,
    comment,
    cpp_string,
    java_string,
    kotlin_string,
    render,
    toml_string,
    wrap,
    xml,
)
from support.codegen.skeleton import Unclosed, c_like, cmake, java_escapes

NASTY = [
    '"; system("rm -rf /"); "', "\\", '\\"', "\\\\u0022", "\\u0022); x();", "\\u000a x();", "*/ x(); /*",
    "/*/", "*", "/", "??/", "??/\n", "${x}", "$x", "@x@", "a;b", "a\nb", "a\r\nb", "a\u2028b\u2029c",
    "\0\x01\x7f\x85", "\u202e\u2066", "日本", "\U0001f600", "\ud800", "]]>", "-->", "--", "<!--", "@string/x",
    "'", "", " ", "x\\",
]  # fmt: skip
few = settings(max_examples=40, deadline=None)  # of each property; NASTY is in all of them
TEXT = st.text() | st.sampled_from(NASTY) | st.lists(st.sampled_from(NASTY)).map("".join)
whole = rendering._whole


def c_value(literal: str) -> str:
    """Return the text of a literal of C, by its own rules."""
    assert re.fullmatch(r'"(?:[^"\\\n\r]|\\.)*"', literal), literal
    simple = {"n": 10, "r": 13, "t": 9, '"': 34, "\\": 92, "?": 63}
    data = bytearray()
    for octal, escaped, plain in re.findall(r"\\([0-7]{1,3})|\\(.)|([^\\])", literal[1:-1]):
        data += bytes([int(octal, 8)]) if octal else bytes([simple[escaped]]) if escaped else plain.encode()
    return data.decode()


def java_value(literal: str) -> str:
    """Return the text of a literal of Java: javac replaces its universal escapes first."""
    seen = java_escapes(literal)
    assert re.fullmatch(r'"(?:[^"\\\n\r]|\\.)*"', seen), seen
    simple = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\"}
    decoded = "".join(
        chr(int(octal, 8)) if octal else simple[escaped] if escaped else plain
        for octal, escaped, plain in re.findall(r"\\([0-7]{1,3})|\\(.)|([^\\])", seen[1:-1])
    )
    return decoded.encode("utf-16", "surrogatepass").decode("utf-16")


def kotlin_value(literal: str) -> str:
    """Return the text of a literal of Kotlin, which has no template in it."""
    assert re.fullmatch(r'"(?:[^"\\\n\r$]|\\.)*"', literal), literal
    simple = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}
    decoded = "".join(
        chr(int(code, 16)) if code else simple[escaped] if escaped else plain
        for code, escaped, plain in re.findall(r"\\u([0-9a-f]{4})|\\(.)|([^\\])", literal[1:-1])
    )
    return decoded.encode("utf-16", "surrogatepass").decode("utf-16")


@few
@given(TEXT)
def test_literals_have_the_text(text: str) -> None:
    assert c_value(cpp_string(text)) == whole(text)
    assert java_value(java_string(text)) == whole(text)
    assert kotlin_value(kotlin_string(text)) == whole(text)
    assert tomllib.loads(f"x = {toml_string(text)}") == {"x": whole(text)}
    for literal in (cpp_string(text), java_string(text), kotlin_string(text), toml_string(text)):
        literal.encode()
        assert literal.isprintable()  # nothing that a reader or an editor takes for something else


@few
@given(TEXT)
def test_xml_has_the_text_as_content_and_as_attribute(text: str) -> None:
    escaped = xml(text)
    element = ElementTree.fromstring(f"<a b=\"{escaped}\" c='{escaped}'>{escaped}</a>")
    expected = re.sub("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "\ufffd", whole(text))
    assert (element.text or "", element.get("b"), element.get("c")) == (expected, expected, expected)


@few
@given(TEXT)
def test_android_strings_are_no_references(text: str) -> None:
    element = ElementTree.fromstring(f"<string>{android_string(text)}</string>")
    assert not (element.text or "").startswith(("@", "?"))
    assert not re.search(r"(?<!\\)(?:\\\\)*['\"]", element.text or "")


@few
@given(TEXT)
def test_comments_stay_comments(text: str) -> None:
    escaped = comment(text)
    for before, after, nested in (("/*", "*/", False), ("/* ", " */", True), ("/**", "*/", True)):
        assert c_like(java_escapes(f"{before}{escaped}{after} x"), nested=nested) == ["x"]
    assert c_like(f"// {escaped}\nx", nested=False) == ["x"]
    assert cmake(f"# {escaped}\nx") == ["x"]
    assert tomllib.loads(f"# {escaped}\nx = 1") == {"x": 1}
    ElementTree.fromstring(f"<a><!-- {escaped} --></a>")
    assert escaped.isprintable() and "\\" not in escaped and "??/" not in escaped


def test_a_comment_says_what_can_be_said() -> None:
    assert comment("日本 (fp16) a-b 1.0") == "日本 (fp16) a-b 1.0"
    assert comment("two\nlines") == "two lines"


def test_the_skeleton_finds_what_gets_out() -> None:
    with pytest.raises(Unclosed):
        c_like('x = "a\nb";', nested=False)
    with pytest.raises(Unclosed):
        c_like("/* /* */", nested=True)
    assert c_like(java_escapes("// \\u000a x"), nested=False) == ["x"]
    assert c_like('f("$x ${y()} \\$z")', nested=True, templates=True) == ["f", "(", '""x{y()}', ")"]
    assert c_like('f("a" + g())', nested=False) != c_like('f("a")', nested=False)


@pytest.fixture
def templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(rendering, "resource", lambda _name: tmp_path)
    rendering._environment.cache_clear()
    monkeypatch.setattr(rendering, "_environment", rendering._environment.__wrapped__)
    return tmp_path


def test_a_template_gets_its_values_and_the_notice(templates: Path) -> None:
    (templates / "x.j2").write_text(
        "// {{ generated }}\n{% for x in xs %}\n  {{ x }}   \n{% endfor %}\nend\n"
    )
    assert render("x.j2", xs=[1, 2]) == f"// {GENERATED}\n  1\n  2\nend\n"
    assert GENERATED.startswith(f"Generated by adt {__version__}.")


def test_a_value_that_is_missing_is_an_error(templates: Path) -> None:
    (templates / "x.j2").write_text("{{ present.absent }}")
    with pytest.raises(jinja2.UndefinedError):
        render("x.j2")
    with pytest.raises(jinja2.UndefinedError):
        render("x.j2", present=object())


def test_values_are_not_templates(templates: Path) -> None:
    (templates / "x.j2").write_text("{{ x }}")
    assert render("x.j2", x="{{ generated }}{% include 'y' %}") == "{{ generated }}{% include 'y' %}"


def test_lines_are_wrapped_behind_their_prefix() -> None:
    text = "a word and another word and a longer-one-that-stays-together"
    assert wrap(text, 30, " * ") == "a word and another word and\n * a\n * longer-one-that-stays-together"
    assert wrap("", 30, " * ") == ""
