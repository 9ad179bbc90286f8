"""Answers of a workspace's holder, without a device."""

from typing import Any, cast

import pytest

from adt.device.deploy.workspace import Agent
from adt.device.device import Device
from adt.device.transport.shell import STDOUT, RemoteCommand
from adt.errors import DeviceError


class StandInHolder:
    """Takes what is written and answers nothing; the events are prepared."""

    def __init__(self) -> None:
        self.written = b""

    def set_deadline(self, _deadline: object) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.written += data


def agent(*pieces: bytes) -> tuple[Agent, StandInHolder]:
    holder = StandInHolder()
    events: Any = iter([(STDOUT, piece) for piece in pieces])
    return Agent(Device("S"), "/there", "adt7", cast(RemoteCommand, holder), events), holder


def test_an_answer_comes_in_pieces_and_without_what_the_linker_says() -> None:
    asked, holder = agent(b"WARNING: linker: no configu", b"ration\nfile 1\nad", b"t7 0", b"\n")
    answer = asked.ask("look", "/base", lines=["a", "b c"])
    assert (answer.code, answer.text) == (0, "file 1\n")
    assert holder.written == b"look /base 2\na\nb c\n"


def test_a_shell_that_ends_is_no_answer() -> None:
    asked, _ = agent(b"file 1\n")
    with pytest.raises(DeviceError, match="ended while looking") as caught:
        asked.ask("look", doing="looking")
    assert "file 1" in caught.value.details
