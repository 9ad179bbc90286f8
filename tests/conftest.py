"""For all tests."""

from __future__ import annotations

import signal

# Whoever runs the tests in the background of a script has them ignore ctrl-C; several tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)
