"""Entry point of the ``adt`` program. Only what takes no time is imported here: ctrl-C may come at once."""

from __future__ import annotations

import atexit
import gc
import os
import sys
from typing import NoReturn

from adt.cli.endings import has_flag, interrupted
from adt.host import interrupts


def _end() -> NoReturn:
    """End in the midst of native code; what is temporary is removed, as after kill -9."""
    os._exit(interrupted(sys.argv[1:]))


def main() -> None:
    """Run the command line of this process."""
    gc.set_threshold(50_000)  # what is imported is no garbage: the usual 700 look through it again and again
    atexit.register(gc.freeze)  # all that is left goes with the process; Python would look for cycles in it
    interrupts.handle(interrupts.interrupt)
    interrupts.watch(_end)
    try:
        from adt.cli.app import app
        from adt.cli.terminal import protect_output

        words = sys.argv[1:]
        protect_output(wraps=not has_flag(words, "--json"), verbose=has_flag(words, "-v", "-vv", "--verbose"))
        app()
    except KeyboardInterrupt:
        sys.exit(interrupted(sys.argv[1:]))
