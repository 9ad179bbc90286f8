"""``adt ndk list`` and ``adt ndk env``."""

from __future__ import annotations

import typer

from adt.api.requests import NdkEnvRequest, NdkRequest
from adt.cli.app import Commands, app, emit_json
from adt.cli.command import Given, command

ndk = typer.Typer(cls=Commands, help="The Android NDKs of this machine.")
app.add_typer(ndk, name="ndk", no_args_is_help=True)


@command("adt ndk list", NdkRequest, group=ndk, name="list")
def ndk_list(given: Given, as_json: bool) -> None:
    """List every place that could hold an NDK, what is there, and which one is taken."""
    import adt

    found = adt.ndk_list(**given)
    if as_json:
        rows = [
            {
                "path": row.path,
                "origin": row.origin,
                "chosen": row.chosen,
                "problem": row.problem,
                "revision": row.ndk.revision if row.ndk else None,
                "verdict": row.ndk.known.verdict if row.ndk else None,
                "reason": row.ndk.known.reason if row.ndk else None,
                "api_levels": row.ndk.api_levels() if row.ndk else None,
            }
            for row in found
        ]
        emit_json("ndk-list", {"ndks": rows})
        return
    if not found:
        typer.echo("no NDK: install one and pass --ndk DIR, or set ANDROID_NDK_HOME")
    for row in found:
        typer.echo(f"{'→' if row.chosen else ' '} {row.path}  (from {row.origin})")
        if row.ndk:
            levels = row.ndk.api_levels()
            span = f", API levels {levels[0]} to {levels[1]}" if levels else ""
            typer.echo(f"    {row.ndk.revision}{span}; {row.ndk.known.verdict}: {row.ndk.known.reason}")
        else:
            typer.echo(f"    ✗ {row.problem}")


@command("adt ndk env --api-level 30", NdkEnvRequest, group=ndk, name="env")
def ndk_env(given: Given, as_json: bool) -> None:
    """Print the variables with which other build tools use the same NDK."""
    import shlex

    import adt

    variables = adt.ndk_env(**given)
    if as_json:
        emit_json("ndk-env", {"variables": variables})
        return
    for name, value in variables.items():
        typer.echo(f"export {name}={shlex.quote(value)}")
