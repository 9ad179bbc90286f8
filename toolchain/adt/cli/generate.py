"""``adt generate``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import typer

from adt.api.requests import GenerateRequest
from adt.cli.command import Rendering, command
from adt.options.option import MaybePath, Options, Texts, option

if TYPE_CHECKING:
    from adt.api.generate import Generated
    from adt.package.inputs.pictures import PictureOptions

EXAMPLE = "adt generate android-app detector-pkg --bundle bundle-arm64 --out app --package com.example.vision"


TODAYS = "for adt's of today: another --out"


class GenerateFlags(Options):
    """Classes and pictures of each package."""

    classes: Texts = option(
        "Class of a package; for one package Detector is enough.",
        "--class",
        default=(),
        metavar="NAME=Detector",
    )
    scale: Texts = option(
        "Pixels are divided by it; default for floats: 255.", default=(), metavar="[NAME=]255"
    )
    mean: Texts = option("Then subtracted, for each channel.", default=(), metavar="[NAME=]0.485,0.456,0.406")
    std: Texts = option("Then divided by, for each channel.", default=(), metavar="[NAME=]0.229,0.224,0.225")
    layout: Texts = option("Of pictures, if the shape does not say.", default=(), metavar="[NAME=]NCHW|NHWC")
    color: Texts = option("Channels of pictures, if not RGB.", default=(), metavar="[NAME=]RGB|BGR|GRAY")
    labels: MaybePath = option("Names of a classifier's classes, one on each line, or JSON.", default=None)


@command(EXAMPLE)
def generate(request: GenerateRequest, flags: GenerateFlags) -> Rendering:
    """Write code and a project that put packages into an app; again, to bring them up to date."""
    from adt.api.generate import generate
    from adt.package.classes import read_labels

    classes, images = _by_package(flags.classes, "--class"), _images(flags)
    labels = read_labels(flags.labels) if flags.labels else ()
    result = generate(request.but(classes=classes, images=images, labels=labels))
    return Rendering(
        "generate", lambda: _fields(result), _lines(result) if result.written else _changes(result)
    )


def _by_package(texts: Sequence[str], flag: str) -> dict[str, str]:
    """``NAME=VALUE`` by the package's name; empty where there is only a value."""
    from adt.errors import ConfigError

    values: dict[str, str] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        if name in values:
            raise ConfigError(
                f"{flag} is given twice{f' for {name}' * bool(name)}",
                remedy=f"Give it once for each package: {flag} NAME=VALUE.",
            )
        values[name] = value
    return values


def _images(flags: GenerateFlags) -> dict[str, PictureOptions]:
    """Return how pictures are prepared, by package; an option without a name holds for those with a name,
    too."""
    from adt.errors import InputError
    from adt.package.inputs.pictures import PictureOptions, parse_numbers

    options_of: dict[str, dict[str, Any]] = {}
    for name in ("scale", "mean", "std", "layout", "color"):
        for package, text in _by_package(getattr(flags, name), f"--{name}").items():
            words = name in ("layout", "color")
            options_of.setdefault(package, {})[name] = (
                text.upper() if words else parse_numbers(text, f"--{name}")
            )
    for options in options_of.values():
        if len(options.get("scale", (1,))) != 1:
            raise InputError("--scale takes one number", remedy="Give it for all channels: --scale 255")
        options |= {"scale": options["scale"][0]} if "scale" in options else {}
    return {
        name: PictureOptions(**(options_of.get("", {}) | options)) for name, options in options_of.items()
    }


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


def _changes(result: Generated) -> Iterator[str]:
    """The diff; on stderr what it does not say: which files are in the way."""
    from adt.integrate.output import FileStep, diff

    if text := diff(result.plan):
        yield text.removesuffix("\n")
    for step, note in (
        (FileStep.EDITED, "was edited, and is replaced only with --force"),
        (FileStep.FOREIGN, "was not written by adt, and is replaced only with --force"),
        (FileStep.LEAVE, "is no longer generated and was edited: it stays"),
        (FileStep.KEEP, f"is yours: it stays ({TODAYS})"),
    ):
        for path in result.plan.paths(step):
            typer.echo(f"{path} {note}", err=True)
    if not result.plan.changes:
        typer.echo("nothing would change", err=True)


def _lines(result: Generated) -> Iterator[str]:
    from adt.integrate.output import FileStep

    for model in result.project.models:
        abis = ", ".join(variant.abi for variant in model.variants)
        name = f"{result.project.java_package}.{model.api.cls}"
        yield f"{'class':<11} {name}, of {model.api.name!r} for {abis}"
    for outcome, steps in (
        ("wrote", (FileStep.CREATE, FileStep.UPDATE, FileStep.EDITED, FileStep.FOREIGN)),
        ("unchanged", (FileStep.SAME,)),
        ("yours", (FileStep.KEEP,)),
        ("removed", (FileStep.REMOVE,)),
        ("left", (FileStep.LEAVE,)),
    ):
        paths = result.plan.paths(*steps)
        if paths:
            names = f": {', '.join(paths)}" if outcome in ("yours", "removed", "left") else ""
            how = f" ({TODAYS})" if outcome == "yours" else ""
            yield f"{outcome:<11} {len(paths)} file{'s' * (len(paths) > 1)}{names}{how}"
    yield f"{'in':<11} {result.out}"
