"""Who is told how files travel, where no caller passes a function of its own: the command line, once."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

observer: ContextVar[Callable[[str, int, int], None] | None] = ContextVar("observer", default=None)
"""Called with a file's name, the bytes that went or came, and those of the whole. Threads have none."""
