"""All verbs, registered with the application."""

from __future__ import annotations

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
from adt.cli.app import app as app
