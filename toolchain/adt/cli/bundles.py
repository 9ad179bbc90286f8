"""``adt bundles``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import typer

from adt.cli.app import emit_json
from adt.cli.command import command
from adt.options.option import Options, Texts, option

if TYPE_CHECKING:
    from adt.bundle.bundle import TargetBundle


class BundlesFlags(Options):
    """What is removed."""

    remove: Texts = option(
        "Remove this one, and what it was built in.", default=(), metavar="NAME", offers="bundle"
    )
    remove_superseded: bool = option(
        "Remove those that a newer one of equal options replaces.", default=False
    )


@command("adt bundles --remove linux-aarch64-0123456789ab", flags=BundlesFlags)
def bundles(flags: BundlesFlags, as_json: bool) -> None:
    """List the bundles that were built on this machine, newest first, or remove some."""
    import adt

    removed: tuple[TargetBundle, ...] = ()
    if flags.remove or flags.remove_superseded:
        removed = adt.bundles_remove(flags.remove, superseded=flags.remove_superseded)
    left = adt.bundles()
    if as_json:
        rows = [_fields(bundle) for bundle in left]
        emit_json("bundles", {"bundles": rows, "removed": [bundle.path for bundle in removed]})
        return
    for bundle in removed:
        typer.echo(f"removed  {bundle.path}")
    if removed or flags.remove_superseded:
        typer.echo(f"left     {len(left)} bundles")
        return
    if not left:
        typer.echo("no bundle was built here: adt build-target --for PLATFORM")
    for bundle in left:
        typer.echo(f"{bundle.path.name}  {_local_time(bundle)}  {bundle.size / 1e6:,.1f} MB")
        typer.echo(f"    {bundle.manifest.summary}")
        typer.echo(f"    {bundle.path}")


def _local_time(bundle: TargetBundle) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(bundle.built))


def _fields(bundle: TargetBundle) -> dict[str, Any]:
    from adt.host.manifest import fields_of

    about = fields_of(bundle.manifest)
    names = ("platform", "preset", "abi", "api_level", "ndk_revision", "compiler", "tvm", "options")
    return {
        "name": bundle.path.name,
        "path": bundle.path,
        "summary": bundle.manifest.summary,
        "built": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(bundle.built)),
        "size": bundle.size,
        **{name: about[name] for name in names},
    }
