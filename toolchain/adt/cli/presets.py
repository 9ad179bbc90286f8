"""``adt presets``."""

from __future__ import annotations

import typer

from adt.api.requests import PresetsRequest
from adt.cli.app import emit_json
from adt.cli.command import Given, command


@command("adt presets --ndk $NDK", PresetsRequest)
def presets(given: Given, as_json: bool) -> None:
    """List the presets: what each of them switches on, and whether this machine can build it."""
    import adt

    found = adt.presets(**given)
    if as_json:
        emit_json("presets", {"presets": [vars(preset) for preset in found]})
        return
    missing: dict[str, str] = {}
    typer.echo(f"{'preset':<28} {'OpenCL':<7} {'CLML':<5} {'RPC':<4} {'align':>5}  buildable here")
    for preset in found:
        opencl, with_clml, rpc = ("yes" if on else "-" for on in (preset.opencl, preset.clml, preset.rpc))
        verdict = f"yes: {preset.reason}" if preset.buildable else "no"
        typer.echo(f"{preset.name:<28} {opencl:<7} {with_clml:<5} {rpc:<4} {preset.alignment:>5}  {verdict}")
        if not preset.buildable:
            missing.setdefault(preset.reason, preset.remedy)
    for reason, remedy in missing.items():
        typer.echo(f"\nno: {reason}\n    {remedy}")
