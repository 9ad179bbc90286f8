"""Run a package on a device, or on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from adt.api.place import open_place
from adt.config.load import load_settings
from adt.device.rtvm import RtvmOptions, RtvmRun

if TYPE_CHECKING:
    from adt.measure.reference import Array


def run(
    package: Path,
    *,
    serial: str | None = None,
    bundle: Path | None = None,
    inputs: Mapping[str, Array] | None = None,
    seed: int | None = None,
    entry: str = "main",
    run_count: int = 1,
    dry_run: int = 0,
    timeout: float | None = None,
) -> RtvmRun:
    """Run the package where it belongs and return its outputs.

    Args:
        inputs: name to array; made up from *seed* when None.
        run_count: timed runs; dry_run: untimed ones before them.

    Raises:
        RunError, InputError: the runner refused or failed; its own message is passed on.
    """
    resolved = load_settings({"verify.seed": seed, "device.timeout": timeout}).settings
    opened = open_place(package, serial=serial, bundle=bundle)
    options = RtvmOptions(
        entry=entry,
        device=opened.package.manifest.target.device,
        seed=resolved.verify.seed,
        dry_run=dry_run,
        run_count=run_count,
    )
    return opened.place.run(options, inputs, timeout=resolved.device.timeout)
