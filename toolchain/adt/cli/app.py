"""The typer application, the options every verb has, and what happens to errors.

Only typer is imported here: `adt --help`, `adt --version` and shell completion
must not wait for TVM.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from adt import __version__
from adt.errors import INTERNAL, INTERRUPTED, AdtError

JSON_KEY = "adt.json"
VERBOSE_KEY = "adt.verbose"


class Commands(TyperGroup):
    """Runs a verb and turns what it raises into a message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen verb; never a traceback unless -v asks for one."""
        try:
            return super().invoke(ctx)
        except AdtError as error:
            _report(ctx, error, type(error).__name__, error.exit_code)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            typer.echo("interrupted: what was complete before is still there", err=True)
            ctx.exit(INTERRUPTED)
        except (typer.Exit, typer.Abort, SystemExit, BrokenPipeError):
            raise
        except Exception as bug:
            if _is_usage_error(bug):
                raise
            remedy = "This is a bug in adt: please report it with the output of the same command and -v."
            wrapped = AdtError(f"internal error: {type(bug).__name__}: {bug}", remedy=remedy)
            if ctx.find_root().meta.get(VERBOSE_KEY):
                wrapped.details = traceback.format_exc()
            _report(ctx, wrapped, "InternalError", INTERNAL)
            ctx.exit(INTERNAL)


def _is_usage_error(error: Exception) -> bool:
    """Whether this is the parser's own error (typer brings its own copy of click, or uses the package)."""
    return any(base.__name__ == "ClickException" for base in type(error).__mro__)


def _report(ctx: Any, error: AdtError, kind: str, exit_code: int) -> None:
    if error.details:
        typer.echo(error.details.rstrip(), err=True)
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    typer.echo(error.what, err=True)
    typer.secho("remedy: ", fg="yellow", nl=False, err=True)
    typer.echo(error.remedy, err=True)
    if ctx.find_root().meta.get(JSON_KEY):
        fields = {"error": kind, "exit_code": exit_code, "what": error.what, "remedy": error.remedy}
        emit_json("error", fields | {"details": error.details})


def emit_json(verb: str, fields: dict[str, Any]) -> None:
    """Print one JSON document: ``schema`` is ``adt.<verb>``, ``schema_version`` 1, then *fields*."""
    document = {"schema": f"adt.{verb}", "schema_version": 1} | fields
    typer.echo(json.dumps(document, indent=2, default=str))


app = typer.Typer(
    cls=Commands,
    name="adt",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Get a model to run fast and right on an Android phone or an arm64 board, with Apache TVM.",
    epilog="Start with: adt up MODEL.onnx",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"adt {__version__}")
        raise typer.Exit


def _set_json(ctx: typer.Context, wanted: bool) -> bool:
    if wanted:
        ctx.find_root().meta[JSON_KEY] = True
    return wanted


def _set_verbose(ctx: typer.Context, wanted: bool) -> bool:
    if wanted:
        ctx.find_root().meta[VERBOSE_KEY] = True
        logging.getLogger("adt").setLevel(logging.DEBUG)
    return wanted


Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", callback=_set_verbose, help="Show every command that is run.")
]
Json = Annotated[bool, typer.Option("--json", callback=_set_json, help="Print one JSON document instead.")]
Serial = Annotated[
    str | None, typer.Option("--serial", "-s", help="The device; else ANDROID_SERIAL, else the only one.")
]


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print adt's version.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Options before the verb."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Plain())
    logger = logging.getLogger("adt")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)


class _Plain(logging.Formatter):
    """The message alone; warnings say that they are."""

    def format(self, record: logging.LogRecord) -> str:
        """One line for people."""
        prefix = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return prefix + record.getMessage()
