"""``adt generate``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adt.cli.app import Json, Verbose, app, emit_json

if TYPE_CHECKING:
    from adt.api.generate import Generated
    from adt.model.inputs.pictures import PictureOptions

EXAMPLE = "adt generate android-app detector-pkg --bundle bundle-arm64 --out app --package com.example.vision"


class Kind(StrEnum):
    """What is generated."""

    CPP = "cpp"
    JNI = "jni"
    ANDROID_APP = "android-app"
    AAR = "aar"


@app.command(epilog=f"Example: {EXAMPLE}")
def generate(
    kind: Annotated[
        Kind,
        typer.Argument(
            help="A C++ project; Java and Kotlin with their C++ part; an Android app; an Android library."
        ),
    ],
    packages: Annotated[
        list[Path],
        typer.Argument(help="Packages that `adt compile` made, for each platform.", metavar="PACKAGE..."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The project's directory.", metavar="DIR")],
    java_package: Annotated[
        str,
        typer.Option(
            "--package", help="The code's package; its last part is the C++ namespace.", metavar="com.a.b"
        ),
    ],
    bundles: Annotated[
        list[Path] | None,
        typer.Option("--bundle", help="Each platform's bundle; else the newest built here.", metavar="DIR"),
    ] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option(
            "--class", help="Class of a package; for one package Detector is enough.", metavar="NAME=Detector"
        ),
    ] = None,
    scale: Annotated[
        list[str] | None,
        typer.Option(help="Pixels are divided by it; default for floats: 255.", metavar="[NAME=]255"),
    ] = None,
    mean: Annotated[
        list[str] | None,
        typer.Option(help="Then subtracted, for each channel.", metavar="[NAME=]0.485,0.456,0.406"),
    ] = None,
    std: Annotated[
        list[str] | None,
        typer.Option(help="Then divided by, for each channel.", metavar="[NAME=]0.229,0.224,0.225"),
    ] = None,
    layout: Annotated[
        list[str] | None,
        typer.Option(help="Of pictures, if the shape does not say.", metavar="[NAME=]NCHW|NHWC"),
    ] = None,
    color: Annotated[
        list[str] | None,
        typer.Option(help="Channels of pictures, if not RGB.", metavar="[NAME=]RGB|BGR|GRAY"),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Names of a classifier's classes, one on each line, or JSON.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing; show what would change as a diff.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace generated files even if they were edited.")
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Write code and a project that put packages into an app; again, to bring them up to date."""
    import adt
    from adt.model.classes import read_labels

    result = adt.generate(
        kind.value,
        packages,
        out=out,
        java_package=java_package,
        bundles=bundles or (),
        classes=_by_package(classes, "--class"),
        images=_images(scale, mean, std, layout, color),
        labels=read_labels(labels) if labels else (),
        dry_run=dry_run,
        force=force,
    )
    if as_json:
        emit_json("generate", _fields(result))
    elif dry_run:
        from adt.integrate.output import diff

        typer.echo(diff(result.plan), nl=False)
        _summary(result)
    else:
        _show(result)


def _by_package(given: list[str] | None, option: str) -> dict[str, str]:
    """``NAME=VALUE`` by the package's name; empty where there is only a value."""
    from adt.errors import ConfigError

    found: dict[str, str] = {}
    for text in given or ():
        name, _, value = text.rpartition("=")
        if name in found:
            raise ConfigError(
                f"{option} is given twice{f' for {name}' * bool(name)}",
                remedy=f"Give it once for each package: {option} NAME=VALUE.",
            )
        found[name] = value
    return found


def _images(
    scale: list[str] | None,
    mean: list[str] | None,
    std: list[str] | None,
    layout: list[str] | None,
    color: list[str] | None,
) -> dict[str, PictureOptions]:
    """How pictures are prepared, by package; what is said without a name holds for those with a name, too."""
    from adt.errors import InputError
    from adt.model.inputs.pictures import PictureOptions, parse_numbers

    said: dict[str, dict[str, Any]] = {}
    for option, values in (
        ("scale", scale),
        ("mean", mean),
        ("std", std),
        ("layout", layout),
        ("color", color),
    ):
        for name, text in _by_package(values, f"--{option}").items():
            words = option in ("layout", "color")
            said.setdefault(name, {})[option] = text.upper() if words else parse_numbers(text, f"--{option}")
    for options in said.values():
        if len(options.get("scale", (1,))) != 1:
            raise InputError("--scale takes one number", remedy="Give it for all channels: --scale 255")
        options |= {"scale": options["scale"][0]} if "scale" in options else {}
    return {name: PictureOptions(**(said.get("", {}) | options)) for name, options in said.items()}


def _fields(result: Generated) -> dict[str, Any]:
    from adt.integrate.output import FileStep, diff

    return {
        "kind": result.kind,
        "out": result.out,
        "package": result.project.java_package,
        "written": result.written,
        "models": [
            {
                "name": model.api.name,
                "class": model.api.cls,
                "abis": [variant.abi for variant in model.variants],
            }
            for model in result.project.models
        ],
        "files": {step.value: result.plan.paths(step) for step in FileStep},
        "diff": None if result.written else diff(result.plan),
    }


def _summary(result: Generated) -> None:
    """Say on stderr what a diff does not: which files are in the way."""
    from adt.integrate.output import FileStep

    for step, said in (
        (FileStep.EDITED, "was edited, and is replaced only with --force"),
        (FileStep.FOREIGN, "was not written by adt, and is replaced only with --force"),
        (FileStep.LEAVE, "is no longer generated and was edited: it stays"),
    ):
        for path in result.plan.paths(step):
            typer.echo(f"{path} {said}", err=True)
    if not result.plan.changes:
        typer.echo("nothing would change", err=True)


def _show(result: Generated) -> None:
    from adt.integrate.output import FileStep

    for model in result.project.models:
        abis = ", ".join(variant.abi for variant in model.variants)
        name = f"{result.project.java_package}.{model.api.cls}"
        typer.echo(f"{'class':<11} {name}, of {model.api.name!r} for {abis}")
    for said, steps in (
        ("wrote", (FileStep.CREATE, FileStep.UPDATE, FileStep.EDITED, FileStep.FOREIGN)),
        ("unchanged", (FileStep.SAME,)),
        ("yours", (FileStep.KEEP,)),
        ("removed", (FileStep.REMOVE,)),
        ("left", (FileStep.LEAVE,)),
    ):
        paths = result.plan.paths(*steps)
        if paths:
            names = f": {', '.join(paths)}" if said in ("yours", "removed", "left") else ""
            typer.echo(f"{said:<11} {len(paths)} file{'s' * (len(paths) > 1)}{names}")
    typer.echo(f"{'in':<11} {result.out}")
