"""The typer application, the options every verb has, and what happens to errors.

Only typer is imported here: `adt --help`, `adt --version` and shell completion
must not wait for TVM.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from adt import __version__
from adt.cli import completions
from adt.cli.endings import command_with, document, error_document, interrupted
from adt.cli.progress import erase, transfer_line
from adt.cli.wrapping import visible
from adt.errors import INTERNAL, AdtError
from adt.host.transfers import observer

HABITS = {
    "build": "adt build-target builds what runs on a device, adt compile the model",
    "push": "adt deploy sends a package and its bundle",
    "shell": "that is adb's: adb shell",
    "version": "adt --version",
}
"""Commands that people type from habit, and what they are here."""


class Commands(TyperGroup):
    """Runs a verb and turns what it raises into a message and an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the chosen verb and exit; never a traceback unless -v asks for one."""
        options = {"prog_name": prog_name, "complete_var": complete_var} | extra
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **options)
        arguments = sys.argv[1:] if args is None else list(args)
        sys.exit(self._exit_code(arguments, options))

    def _exit_code(self, arguments: list[str], options: dict[str, Any]) -> int:
        try:
            code = super().main(arguments, standalone_mode=False, **options)
        except AdtError as error:
            return _report(arguments, error, type(error).__name__, error.exit_code)
        except typer.Abort:  # also at a question
            erase()
            return interrupted(arguments)
        except BrokenPipeError:
            raise
        except Exception as bug:
            if _is_usage_error(bug):
                return _report_usage(arguments, bug)
            remedy = "This is a bug in adt: please report it with the output of the same command and -v."
            wrapped = AdtError(f"internal error: {type(bug).__name__}: {bug}", remedy=remedy)
            if logging.getLogger("adt").isEnabledFor(logging.DEBUG):
                wrapped.details = traceback.format_exc()
            return _report(arguments, wrapped, "InternalError", INTERNAL)
        return code if isinstance(code, int) else 0

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen verb; ctrl-C is an Abort, which a verb that exits with 130 by itself is not."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise typer.Abort from error

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that was asked for, with a hint where other programs call it something else."""
        if args[0] in HABITS and args[0] not in self.commands:
            ctx.fail(f"No such command {args[0]!r}: {HABITS[args[0]]}")
        return super().resolve_command(ctx, args)


def _is_usage_error(error: Exception) -> bool:
    """Whether this is the parser's own error (typer brings its own copy of click, or uses the package)."""
    return any(base.__name__ == "ClickException" for base in type(error).__mro__)


def _report_usage(arguments: list[str], error: Any) -> int:
    error.show()
    context = getattr(error, "ctx", None)
    remedy = f"See: {context.command_path if context else 'adt'} --help"
    error_document(arguments, "UsageError", error.exit_code, error.format_message(), remedy)
    return int(error.exit_code)


def _report(arguments: list[str], error: AdtError, kind: str, exit_code: int) -> int:
    erase()
    remedy = error.remedy
    if error.options:
        remedy += f"\n  {command_with(error.options)}"
    if error.details:
        typer.echo(error.details.rstrip(), err=True)
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    typer.echo(error.what, err=True)
    typer.secho("remedy: ", fg="yellow", nl=False, err=True)
    typer.echo(remedy, err=True)
    error_document(arguments, kind, exit_code, error.what, remedy, error.details)
    return exit_code


def emit_json(verb: str, fields: dict[str, Any]) -> None:
    """Print one JSON document: ``schema`` is ``adt.<verb>``, ``schema_version`` 1, then *fields*."""
    typer.echo(document(verb, fields))


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


def _set_verbose(wanted: bool) -> bool:
    if wanted:
        logging.getLogger("adt").setLevel(logging.DEBUG)
    return wanted


Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", callback=_set_verbose, help="Show every command that is run.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
Serial = Annotated[
    str | None,
    typer.Option(
        "--serial",
        "-s",
        help="The device; else ANDROID_SERIAL, else the only one.",
        autocompletion=completions.serial,
    ),
]


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print adt's version.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Options before the verb."""
    observer.set(transfer_line())
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
        return visible(prefix + record.getMessage())  # a table on the terminal writes past Output
