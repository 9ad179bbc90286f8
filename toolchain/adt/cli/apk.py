"""``adt apk`` and ``adt install``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adt.api.requests import ApkRequest, InstallRequest
from adt.cli.command import Rendering, command
from adt.options.option import option

if TYPE_CHECKING:
    from adt.api.apk import Apk, Installed

STORE_PASSWORD, KEY_PASSWORD = "ADT_KEYSTORE_PASSWORD", "ADT_KEY_PASSWORD"


@command("adt apk detector-pkg --bundle bundle-arm64 --package com.example.vision")
def apk(
    request: ApkRequest,
    password_file: Annotated[
        Path | None,
        option(
            f"Its password is the first line; else {STORE_PASSWORD}, else it is asked for.",
            "--keystore-password-file",
            default=None,
            metavar="FILE",
        ),
    ],
) -> Rendering:
    """Make a signed APK that measures packages on a phone, or serves RPC: no Gradle, no Java code."""
    from adt.api.apk import apk

    password = _password(request.keystore, password_file) if request.keystore else ""
    key_password = os.environ.get(KEY_PASSWORD, "")
    result = apk(request.but(keystore_password=password, key_password=key_password))
    return Rendering("apk", lambda: _fields(result), _lines(result))


def _password(keystore: Path, file: Path | None) -> str:
    """Return the keystore's password; empty if there is nobody to ask."""
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


def _lines(result: Apk) -> Iterator[str]:
    abis = ", ".join(bundle.manifest.abi for bundle in result.project.bundles)
    yield f"{'app':<11} {result.project.java_package} for {abis}, API level {result.min_sdk} and newer"
    for model in result.project.models:
        yield f"{'model':<11} {model.api.name}"
    key = "a debug key: not for release" if result.debug_key else str(result.keystore)
    yield f"{'signed':<11} {' and '.join(result.schemes)}, with {key}"
    yield f"{'made with':<11} {result.tools}"
    for report in result.elf.values():
        for file in report.files:
            for finding in file.findings:
                yield f"{'!':<11} {file.name}: {finding.what}"
    yield f"{'wrote':<11} {result.path} ({result.size:,} bytes)"


@command("adt install app.apk --serial 0123456789ABCDEF --run")
def install(request: InstallRequest) -> Rendering:
    """Install an APK on a phone; with --run, have it measure there, or serve RPC."""
    from adt.api.apk import install
    from adt.cli.terminal import status_line
    from adt.host.disk import size_text

    with status_line("adt install") as say:

        def progress(_name: str, sent: int, total: int) -> None:
            say(f"sent {size_text(sent)} of {size_text(total)}" if sent < total else "installing")

        result = install(request.but(progress=progress))
    return Rendering("install", lambda: _installed_fields(result), _installed_lines(result))


def _installed_fields(result: Installed) -> dict[str, Any]:
    from adt.cli.rpc import server_fields
    from adt.host.manifest import bare_fields

    records = [bare_fields(record) for record in result.records]
    fields = vars(result) | {"app": result.app or None, "records": records}
    return fields | {"server": server_fields(result.server) if result.server else None}


def _installed_lines(result: Installed) -> Iterator[str]:
    from adt.cli.bench import speed_lines

    yield f"{'device':<11} {result.serial}"
    yield f"{'installed':<11} {result.app or result.apk}"
    for record in result.records:
        yield f"{'package':<11} {record.subject.package}"
        yield f"{'outputs':<11} not compared with the reference: `adt verify` does that"
        yield from speed_lines(record)
    for file in result.files:
        yield f"{'kept':<11} {file}"
    if result.server:
        yield result.server.ready_line
