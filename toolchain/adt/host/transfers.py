"""Observers of files that travel and of silence, where no caller passes a function: the command line's.

Threads have none of both, unless whoever starts them sets some.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

observer: ContextVar[Callable[[str, int, int], None] | None] = ContextVar("observer", default=None)
"""Called with a file's name, the bytes that went or came, and those of the whole."""

silence: ContextVar[Callable[[str, float], None] | None] = ContextVar("silence", default=None)
"""Called with what is being done and for how many seconds no byte came, about every second from the fifth
on, and with 0 once one comes."""
