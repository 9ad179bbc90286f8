"""What is said of a package's textures: what is in them, what is not, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from adt.model.package.manifest import PackageManifest
    from adt.model.passes.reports import TextureReport


def show_textures(facts: PackageManifest) -> None:
    """Print how much is in textures, and why convolutions are not."""
    found = facts.made.textures
    if found is None:
        return
    typer.echo(f"textures {summary(found)}")
    for operator in found.convolutions:
        if operator.reason:
            typer.echo(f"         {operator.name} stays in buffers: {operator.reason}")


def summary(found: TextureReport) -> str:
    """``27 of 29 kernels use them, 100% of the arithmetic; 21 of 21 weights are images``."""
    textured = sum(kernel.textured for kernel in found.kernels)
    return (
        f"{textured} of {len(found.kernels)} kernels use them, {found.share:.0%} of the arithmetic; "
        f"{len(found.images)} of {len(found.weights)} weights are images"
    )


def show_choices(found: TextureReport) -> None:
    """Print a row for each convolution, matrix product, kernel and weight, with what decided about it."""
    from adt.host.columns import aligned

    typer.echo(summary(found))
    operators = [
        (
            operator.name,
            operator.kind,
            "x".join(map(str, operator.weight)) + f", {operator.groups} groups" * (operator.groups > 1),
            f"{operator.macs:,}",
            "buffers" if operator.reason else "textures",
            operator.reason or operator.grounds,
        )
        for operator in found.convolutions
    ]
    kernels = [
        (kernel.kernel, f"reads {kernel.reads}", f"writes {kernel.writes}", kernel.reason)
        for kernel in found.kernels
    ]
    weights = [
        (one.name, "x".join(map(str, one.shape)), "buffer" if one.reason else "image", one.reason)
        for one in found.weights
    ]
    for title, rows in (
        ("operators: weight, multiplications, where, why", operators),
        ("kernels: images, why the output is none", kernels),
        ("weights: layers x height x width x lanes", weights),
    ):
        if rows:
            typer.echo(f"\n{title}")
            for line in aligned(rows):
                typer.echo(f"  {line}")


def choices(found: TextureReport) -> dict[str, Any]:
    """The same as JSON."""
    from dataclasses import asdict

    return {"share": found.share, **asdict(found)}
