"""Entry point of the ``adt`` program: registers the verbs and runs the one that was asked for."""

from __future__ import annotations

import signal
from typing import NoReturn

from adt.cli import (  # noqa: F401  (each registers its verbs)
    apk,
    bench,
    build,
    bundles,
    clean,
    configuration,
    db,
    db_exchange,
    deploy,
    device,
    doctor,
    elf,
    emulator,
    generate,
    inspect,
    model,
    ndk,
    package,
    presets,
    probe,
    profile,
    report,
    rpc,
    run,
    tune,
    up,
    verify,
)
from adt.cli.app import app


def _terminated(_signal: int, _frame: object) -> NoReturn:
    """Let TERM clean up as ctrl-C does."""
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line of this process."""
    signal.signal(signal.SIGTERM, _terminated)
    app()
