"""``adt apk`` and ``adt install``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from adt.api.requests import ApkRequest, InstallRequest
from adt.cli.app import emit_json
from adt.cli.command import Keywords, command
from adt.options.option import MaybePath, Options, option

if TYPE_CHECKING:
    from adt.api.apk import Apk, Installed

STORE_PASSWORD, KEY_PASSWORD = "ADT_KEYSTORE_PASSWORD", "ADT_KEY_PASSWORD"


class ApkFlags(Options):
    """What the password is read from."""

    password_file: MaybePath = option(
        f"Its password is the first line; else {STORE_PASSWORD}, else it is asked for.",
        "--keystore-password-file",
        default=None,
        metavar="FILE",
    )


@command("adt apk detector-pkg --bundle bundle-arm64 --package com.example.vision", ApkRequest, ApkFlags)
def apk(keywords: Keywords, flags: ApkFlags, as_json: bool) -> None:
    """Make a signed APK that measures packages on a phone: no Gradle, no Java code."""
    import adt

    keystore = keywords["keystore"]
    result = adt.apk(
        **keywords,
        keystore_password=_password(keystore, flags.password_file) if keystore else "",
        key_password=os.environ.get(KEY_PASSWORD, ""),
    )
    if as_json:
        emit_json("apk", _fields(result))
    else:
        _show(result)


def _password(keystore: Path, file: Path | None) -> str:
    """The keystore's password; empty when there is nobody to ask.

    Raises:
        ConfigError: the file with it cannot be read.
    """
    from adt.errors import ConfigError

    if file is not None:
        try:
            return file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{file} cannot be read: {error}", remedy="Name a text file with --keystore-password-file."
            ) from error
    if (known := os.environ.get(STORE_PASSWORD)) is not None or not sys.stdin.isatty():
        return known or ""
    return str(typer.prompt(f"Password of {keystore}", hide_input=True, err=True))


def _fields(result: Apk) -> dict[str, Any]:
    from adt.cli.elf import report_fields

    return {
        "path": result.path,
        "size": result.size,
        "app": result.project.java_package,
        "abis": [bundle.manifest.abi for bundle in result.project.bundles],
        "min_sdk": result.min_sdk,
        "models": [
            {"name": model.api.name, "stem": model.api.stem, "abis": [v.abi for v in model.variants]}
            for model in result.project.models
        ],
        "signatures": result.schemes,
        "debug_key": result.debug_key,
        "keystore": result.keystore,
        "tools": result.tools,
        "elf": {abi: report_fields(report) for abi, report in result.elf.items()},
    }


def _show(result: Apk) -> None:
    abis = ", ".join(bundle.manifest.abi for bundle in result.project.bundles)
    typer.echo(f"{'app':<11} {result.project.java_package} for {abis}, API level {result.min_sdk} and newer")
    for model in result.project.models:
        typer.echo(f"{'model':<11} {model.api.name}")
    key = "a debug key: not for release" if result.debug_key else str(result.keystore)
    typer.echo(f"{'signed':<11} {' and '.join(result.schemes)}, with {key}")
    typer.echo(f"{'made with':<11} {result.tools}")
    for report in result.elf.values():
        for file in report.files:
            for finding in file.findings:
                typer.echo(f"{'!':<11} {file.name}: {finding.what}")
    typer.echo(f"{'wrote':<11} {result.path} ({result.size:,} bytes)")


@command("adt install app.apk --serial 0123456789ABCDEF --run", InstallRequest)
def install(keywords: Keywords, as_json: bool) -> None:
    """Install an APK on a phone; with --run, have it measure there."""
    import adt
    from adt.cli.terminal import status_line
    from adt.host.disk import size_text

    with status_line("adt install") as say:

        def progress(_name: str, sent: int, total: int) -> None:
            say(f"sent {size_text(sent)} of {size_text(total)}" if sent < total else "installing")

        result = adt.install(**keywords, progress=progress)
    if as_json:
        emit_json("install", _installed(result))
    else:
        _show_installed(result)


def _installed(result: Installed) -> dict[str, Any]:
    from adt.measure.record import document

    return {
        "serial": result.serial,
        "apk": result.apk,
        "app": result.app or None,
        "records": [document(record) for record in result.records],
        "files": result.files,
    }


def _show_installed(result: Installed) -> None:
    from adt.cli.bench import show_speed

    typer.echo(f"{'device':<11} {result.serial}")
    typer.echo(f"{'installed':<11} {result.app or result.apk}")
    for record in result.records:
        typer.echo(f"{'package':<11} {record.subject.package}")
        typer.echo(f"{'outputs':<11} not compared with the reference: `adt verify` does that")
        show_speed(record)
    for file in result.files:
        typer.echo(f"{'kept':<11} {file}")
