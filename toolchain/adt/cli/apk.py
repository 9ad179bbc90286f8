"""``adt apk`` and ``adt install``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adt.api.requests import Measuring
from adt.cli.app import Json, Verbose, app, emit_json
from adt.cli.options import Ndk, Seed, Serial, Timeout, flag

if TYPE_CHECKING:
    from adt.api.apk import Apk, Installed

STORE_PASSWORD, KEY_PASSWORD = "ADT_KEYSTORE_PASSWORD", "ADT_KEY_PASSWORD"


@app.command(epilog="Example: adt apk detector-pkg --bundle bundle-arm64 --package com.example.vision")
def apk(
    packages: Annotated[
        list[Path],
        typer.Argument(help="Packages that `adt compile` made, for each ABI.", metavar="PACKAGE..."),
    ],
    bundles: Annotated[
        list[Path] | None,
        typer.Option("--bundle", help="Each ABI's bundle; else the newest built here.", metavar="DIR"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The APK; else NAME.apk here.", metavar="FILE")
    ] = None,
    java_package: Annotated[
        str | None,
        typer.Option("--package", help="The app's id; else com.example.MODEL_bench.", metavar="com.a.b"),
    ] = None,
    sdk: Annotated[
        str | None,
        typer.Option(help="Android SDK; else ANDROID_HOME, else Debian's programs.", metavar="DIR"),
    ] = None,
    ndk: Ndk = None,
    keystore: Annotated[
        Path | None, typer.Option(help="Sign with a key of this; else with a debug key.", metavar="FILE")
    ] = None,
    key_alias: Annotated[str, typer.Option(help="Which key of it, when it has several.")] = "",
    password_file: Annotated[
        Path | None,
        typer.Option(
            "--keystore-password-file",
            help=f"Its password is the first line; else {STORE_PASSWORD}, else it is asked for.",
            metavar="FILE",
        ),
    ] = None,
    debuggable: Annotated[
        bool, typer.Option("--debuggable", help="Let debuggers, and all who have adb, look into the app.")
    ] = False,
    protocol: Annotated[str, flag(Measuring, "protocol")] = "default",
    runs: Annotated[int | None, flag(Measuring, "runs")] = None,
    seconds: Annotated[float | None, flag(Measuring, "seconds")] = None,
    warmup_runs: Annotated[int | None, flag(Measuring, "warmup_runs")] = None,
    warmup_ms: Annotated[float | None, flag(Measuring, "warmup_ms")] = None,
    threads: Annotated[int | None, flag(Measuring, "threads")] = None,
    affinity: Annotated[str, flag(Measuring, "affinity")] = "",
    end_to_end: Annotated[bool, flag(Measuring, "end_to_end")] = False,
    seed: Seed = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Make a signed APK that measures packages on a phone: no Gradle, no Java code."""
    import adt
    from adt.measure.protocol import protocol_named

    result = adt.apk(
        packages,
        out=out,
        bundles=bundles or (),
        java_package=java_package,
        sdk=sdk or "",
        ndk=ndk,
        keystore=keystore,
        key_alias=key_alias,
        keystore_password=_password(keystore, password_file) if keystore else "",
        key_password=os.environ.get(KEY_PASSWORD, ""),
        debuggable=debuggable,
        protocol=protocol_named(
            protocol, runs=runs, seconds=seconds, warmup_runs=warmup_runs, warmup_ms=warmup_ms
        ),
        seed=seed,
        threads=threads,
        affinity=affinity,
        end_to_end=end_to_end,
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
        except (OSError, UnicodeDecodeError) as why:
            raise ConfigError(
                f"{file} cannot be read: {why}", remedy="Name a text file with --keystore-password-file."
            ) from why
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


@app.command(epilog="Example: adt install app.apk --serial 0123456789ABCDEF --run")
def install(
    apk: Annotated[Path, typer.Argument(help="An APK; `adt apk` makes them.", metavar="APK")],
    serial: Serial = None,
    run: Annotated[
        bool, typer.Option("--run", help="Start it, wait until it has measured, and keep the results.")
    ] = False,
    timeout: Timeout = None,
    record: Annotated[bool, typer.Option(help="Keep the results for `adt report`.")] = True,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Install an APK on a phone; with --run, have it measure there."""
    import adt
    from adt.cli.progress import status_line
    from adt.host.disk import size_text

    with status_line("adt install") as say:

        def progress(_name: str, sent: int, total: int) -> None:
            say(f"sent {size_text(sent)} of {size_text(total)}" if sent < total else "installing")

        result = adt.install(apk, serial=serial, run=run, timeout=timeout, record=record, progress=progress)
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
