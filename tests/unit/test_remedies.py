"""Each remedy that prints a command is followed by tests/integration/test_remedies.py, or says why not."""

import re
import sys
from pathlib import Path

import pytest

from support.remedies import EXEMPT, PLACEHOLDER, TABLE, commands

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from messages import messages


def test_each_remedy_with_a_command_is_followed_or_has_a_reason() -> None:
    followed = {case.message for case in TABLE}
    others = [
        f"{message.area} {message.kind} {message.what}"
        for message in messages()
        if commands(message.remedy) and message.what not in followed
    ]
    assert len(TABLE) >= 25
    assert [text for text in others if not any(re.match(pattern, text) for pattern in EXEMPT)] == []
    assert [pattern for pattern in EXEMPT if not any(re.match(pattern, text) for text in others)] == []


@pytest.mark.parametrize(
    ("remedy", "expected"),
    [
        ("Fix them:\n  adt compile m.onnx --shape h=2", ["adt compile m.onnx --shape h=2"]),
        ("Check the path; `adt tune MODEL --db d` makes one.", ["adt tune MODEL --db d"]),
        (
            "adt verify p --layers names the kernel; adt verify p --reference host tells more; to pass:\n  adt verify p",
            ["adt verify p", "adt verify p --layers", "adt verify p --reference host"],
        ),
        (
            "Build it with RPC: adt build-target --for host --rpc; or do without.",
            ["adt build-target --for host --rpc"],
        ),
        ("mkdir -p 'a b/c'", ["mkdir -p 'a b/c'"]),
        ("Use the adt that wrote it, or a newer one.", []),
    ],
)
def test_commands_of_a_remedy(remedy: str, expected: list[str]) -> None:
    assert commands(remedy) == expected


@pytest.mark.parametrize("word", ["MODEL", "HOST:PORT", "DIR", "S"])
def test_placeholders_are_seen(word: str) -> None:
    assert PLACEHOLDER.findall(f"adt x {word} -o out") == [word]
    assert not PLACEHOLDER.search("adt compile /tmp/A/m.onnx --shape N=2")
