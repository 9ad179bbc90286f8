"""Observers of files that travel and of silence, where no caller passes a function: the command line's.

Threads have none of both, unless whoever starts them sets some.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

observer: ContextVar[Callable[[str, int, int], None] | None] = ContextVar("observer", default=None)
"""Called with a file's name, the bytes that went or came, and those of the whole."""

silence: ContextVar[Callable[[str, float], None] | None] = ContextVar("silence", default=None)
"""Called with a wait in words and the seconds that it has been silent, about every second from the fifth on;
with what is being done and 0 once a byte comes."""
