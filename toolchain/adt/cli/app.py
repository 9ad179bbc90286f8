"""The typer application, its help pages, the options every verb has, and what happens to errors.

Only typer is imported here: `adt --help`, `adt --version` and shell completion
must not wait for TVM. Of the verbs only the one that was asked for is imported
and built: building all of them takes longer than everything else at the start.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import traceback
from collections import UserDict
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info, get_command_name, get_group_from_info
from typer.models import CommandInfo

from adt import __version__
from adt.cli.endings import command_with, error_document, interrupted
from adt.cli.terminal import colours, erase, silence_line, transfer_line, visible
from adt.errors import TRACE, AdtError, OutOfMemory
from adt.host.interrupts import pending
from adt.host.transfers import observer, silence
from adt.options.option import Option

PURPOSES = {
    "Start": ("up", "doctor", "devices", "emulator", "init"),
    "Build": ("build-target", "bundles", "presets", "source", "ndk"),
    "Compile": ("compile", "quantize", "networks", "compare-offload", "package"),
    "Run": ("run", "deploy", "clean", "adb", "tracker", "rpc"),
    "Measure": ("verify", "bench", "profile", "report"),
    "Tune": ("tune", "db"),
    "Apps": ("generate", "apk", "install"),
    "Look up": ("inspect", "probe", "elf", "config"),
}
"""Commands by what they are for, in the order of use."""
MOST_UNGROUPED = 16
"""Options of a command that are one list."""
ENDS = ("Model and target", "Security and caches")
"""First and last ones of such a list."""
UNBROKEN = "\u2011"
"""A hyphen at which no line ends."""
_SUBJECTS = {
    "Arguments": "",
    "Model and target": "model build.platform like compile.target compile.cpu compile db compile.db "
    "compile.tuned_on build.api_level bundle bundles",
    "Options": "",
    "Device": "device.serial serial serials everyone key tracker device device.timeout rpc via",
    "Inputs": "files inputs images verify.seed seeds verify.fill_mode accuracy_inputs",
    "Pictures": "resize crop resample scale value_range mean std layout color",
    "Comparison": "verify",
    "Kernel by kernel": "layers calls all everything chunk_bytes",
    "Measurement": "threads affinity protocol runs run_count seconds warmup_runs warmup_ms end_to_end "
    "cool_down cold_start ab rounds record label",
    "Search": "tune compare fit",
    "Build": "build tvm",
    "Security and caches": "trust insecure_no_digest use_cache program_cache pre_compiled keystore "
    "password_file key_alias debuggable",
    "General": "",
}
"""Options of each subject, in the order of help pages: settings, their sections, and names of others."""
SUBJECTS = [*_SUBJECTS]
OWN, GENERAL = SUBJECTS.index("Options"), SUBJECTS.index("General")
_PLACES = {
    name: (subject, place)
    for subject, names in enumerate(_SUBJECTS.values())
    for place, name in enumerate(names.split())
}


class Command(TyperCommand):
    """A verb whose options are grouped where they are many, with the names that each takes from a table."""

    options: Mapping[str, Option] = {}
    examples: Sequence[str] = ()
    phone: bool = False

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line; an argument stands without typer's braces."""
        return [re.sub(r"^\{(.*)\}$", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options: by subject or, where they are few, as one list."""
        few = len(self.params) <= MOST_UNGROUPED
        sections: dict[int, list[tuple[str, str]]] = {}
        for parameter in sorted(self.get_params(ctx), key=self._place):
            subject, _ = self._place(parameter)
            flags, text = parameter.get_help_record(ctx)[0], parameter.help or ""  # type: ignore[index, attr-defined]
            text += _notes(parameter, self.options.get(parameter.name or ""))
            rows = sections.setdefault(OWN if few and subject else subject, [])
            rows.append((flags, text.replace("-", UNBROKEN)))
        for subject, rows in sections.items():
            with formatter.section(SUBJECTS[subject]):
                formatter.write_dl(rows)
        formatter.buffer[:] = [text.replace(UNBROKEN, "-") for text in formatter.buffer]

    def _place(self, parameter: Any) -> tuple[int, int]:
        """Return the place of an option: that of its subject, and in it, where there are many."""
        about = self.options.get(parameter.name)
        if about is None or parameter.param_type_name == "argument":
            return (GENERAL if about is None else 0), 0
        names = (about.key or parameter.name, about.key.partition(".")[0])
        place = next((_PLACES[name] for name in names if name in _PLACES), (OWN, 0))
        grouped = len(self.params) > MOST_UNGROUPED or SUBJECTS[place[0]] in ENDS
        return place if grouped else (OWN, 0)

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return the title for the page of a group, whole."""
        return (self.help or "").partition("\n\n")[0]

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, ready to be pasted, each below what it needs."""
        titles = ["Without a phone", "With a phone (needs the Android NDK)"][: len(self.examples)]
        if self.phone:
            package = " (needs a package for Android)" * bool({"package", "packages"} & self.options.keys())
            titles = ["Without a phone (needs `adt emulator start`)", f"With a phone{package}"]
        for title, example in zip(titles if len(titles) > 1 else ["Example"], self.examples, strict=True):
            lines = wrap(example, formatter.width - 6, break_long_words=False, break_on_hyphens=False)
            formatter.write(f"\n{title}:\n  " + " \\\n    ".join(lines) + "\n")


def _notes(parameter: Any, about: Option | None) -> str:
    """Return the end of an option's help: its lowest value, the default, and the names that it takes."""
    from adt.cli.completions import TABLES  # only a help page needs them

    if about is None:
        return ""
    one_way = getattr(parameter, "is_flag", False) and not parameter.secondary_opts
    notes = [f"at least {about.least:g}"] if about.least and about.most is None else []
    notes += [f"default: {about.default_text}"] if about.default_text and not one_way else []
    notes += ["required"] if parameter.required and parameter.param_type_name == "option" else []
    names = TABLES[about.offers]() if about.offers in TABLES else ()
    return "".join(f"  [{text}]" for text in ("; ".join(notes), ", ".join(names)) if text)


HABITS = {
    "build": "adt build-target builds what runs on a device, adt compile the model",
    "push": "adt deploy sends a package and its bundle, adt adb -- push any file",
    "version": "adt --version",
    **{
        verb: f"that is adb's: adt adb -- {verb}"
        for verb in ("connect", "disconnect", "logcat", "pair", "pull", "shell", "uninstall")
    },
}
"""Commands that people type from habit, and what they are here."""


VERBS: dict[str, Any] = json.loads(Path(__file__).with_name("verbs.json").read_text())
"""The commands and groups after ``adt``: the modules that register each, and its title (docs/generate.py)."""


class Commands(TyperGroup):
    """Runs a verb and turns what it raises into a message and an exit code."""

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **options: Any
    ) -> Any:
        """Run the chosen verb and exit; never a traceback unless -v asks for one."""
        options = {"color": colours()} | options
        if not standalone_mode:
            return super().main(args, standalone_mode=False, **options)
        sys.exit(self._exit_code(sys.argv[1:] if args is None else list(args), options))

    def _exit_code(self, arguments: list[str], options: dict[str, Any]) -> int:
        try:
            code = super().main(arguments, standalone_mode=False, **options)
            sys.stdout.flush()
        except typer.Abort:  # also at a question
            erase()
            return interrupted(arguments)
        except BrokenPipeError:
            raise
        except Exception as error:
            if _is_usage_error(error):
                return _report_usage(arguments, error)
            explained = _explained(error)
            kind = "InternalError" if type(explained) is AdtError else type(explained).__name__
            return _report(arguments, explained, kind, explained.exit_code)
        return code if isinstance(code, int) else 0

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen verb; ctrl-C is an Abort, also where TVM or another library made an error of it."""
        try:
            return super().invoke(ctx)
        except (KeyboardInterrupt, Exception) as error:
            if isinstance(error, KeyboardInterrupt) or pending():
                raise typer.Abort from error
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the verb that was asked for; fail with a hint where others call it something else."""
        if args[0] in HABITS and args[0] not in self.commands:
            ctx.fail(f"No such command {args[0]!r}: {HABITS[args[0]]}")
        return super().resolve_command(ctx, args)


class Verbs(Commands):
    """The program's own commands: each is imported and built when it is asked for."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Built(self.commands)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of use."""
        return [*(name for names in PURPOSES.values() for name in names)]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the name and title of each command under its purpose."""
        width = max(map(len, VERBS))
        for purpose, names in PURPOSES.items():
            with formatter.section(purpose):
                formatter.write_dl([(name.ljust(width), VERBS[name]["title"]) for name in names])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the page, the command to begin with first."""
        formatter.write("Start with: adt up MODEL.onnx\n\n")
        super().format_help(ctx, formatter)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return what a list shows of a command: its name and title."""
        if cmd_name in VERBS:
            return TyperCommand(cmd_name, help=VERBS[cmd_name]["title"])
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is to run or complete, whole."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and self.commands[name], rest


class _Built(UserDict[str, Any]):
    """The commands by name: those that are built, and those that VERBS knows."""

    def __missing__(self, name: str) -> Any:
        for module in VERBS[name]["modules"]:
            import_module(f"adt.verbs.{module}")
        self.data[name] = _build(name)
        return self.data[name]

    def __contains__(self, name: object) -> bool:
        return name in self.data or name in VERBS

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS | self.data)

    def __len__(self) -> int:
        return len(VERBS | self.data)


def _build(name: str) -> Any:
    """Return the command or group that a module has registered as *name*."""
    for group in app.registered_groups:
        if group.name == name:
            return get_group_from_info(
                group, pretty_exceptions_short=False, suggest_commands=True, rich_markup_mode=None
            )
    for command in app.registered_commands:
        if command_name(command) == name:
            return get_command_from_info(command, pretty_exceptions_short=False, rich_markup_mode=None)
    raise KeyError(name)


def command_name(command: CommandInfo) -> str:
    """Return the name of a command that typer knows."""
    return command.name or get_command_name(getattr(command.callback, "__name__", ""))


def _explained(error: Exception) -> AdtError:
    """Return what is the matter, as an error of adt's; of none of its classes if that is a bug."""
    if isinstance(error, AdtError):
        return error
    if isinstance(error, MemoryError):
        needed = f": {error}" if str(error) else ""  # numpy says for what
        return OutOfMemory(
            f"this machine has not enough memory{needed}",
            remedy="End other programs or allow this one more (`ulimit -v`, the container's limit), or do "
            "less at once: smaller inputs (--shape), fewer processes (--jobs, --builders).",
        )
    if isinstance(error, OSError):
        from adt.host.disk import explain, output_error

        if known := explain(error) or output_error(error):
            return known
    return AdtError(
        f"internal error: {type(error).__name__}: {error}",
        remedy="This is a bug in adt: please report it with the output of the same command and -v.",
        details=traceback.format_exc() if logging.getLogger("adt").isEnabledFor(logging.DEBUG) else "",
    )


def _is_usage_error(error: Exception) -> bool:
    """Return True if this is the parser's own error; typer brings a copy of click, or uses the package."""
    return any(base.__name__ == "ClickException" for base in type(error).__mro__)


def _report_usage(arguments: list[str], error: Any) -> int:
    """Report a mistake of usage as other errors are, then the usage; of a group without a verb the help."""
    context = getattr(error, "ctx", None)
    remedy = f"See: {context.command_path if context else 'adt'} --help"
    what = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        error_document(arguments, "UsageError", error.exit_code, what, remedy)
    else:
        _report(arguments, AdtError(what, remedy=remedy), "UsageError", error.exit_code)
        typer.echo(context.get_usage() if context else "Usage: adt COMMAND", err=True)
    return int(error.exit_code)


def _report(arguments: list[str], error: AdtError, kind: str, exit_code: int) -> int:
    erase()
    remedy = error.remedy
    if error.options:
        remedy += f"\n  {command_with(error.options)}"
    if error.details:
        typer.echo(error.details.rstrip(), err=True)
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True, color=colours())
    typer.echo(error.what, err=True)
    typer.secho("remedy: ", fg="yellow", nl=False, err=True, color=colours())
    typer.echo(remedy, err=True)
    error_document(arguments, kind, exit_code, error.what, remedy, error.details)
    return exit_code


app: typer.Typer = typer.Typer(
    cls=Verbs,
    name="adt",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Get a model to run fast and right on an Android phone or an arm64 board, with Apache TVM.",
)


def _show_version(show: bool) -> None:
    if show:
        typer.echo(f"adt {__version__}")
        raise typer.Exit


def _set_verbose(verbose: int) -> int:
    if verbose:
        logging.getLogger("adt").setLevel(logging.DEBUG if verbose == 1 else TRACE)
    return verbose


_HELP = "Show every command with its seconds, and what libraries print; -vv: all."
Verbose = Annotated[
    int, typer.Option("--verbose", "-v", count=True, show_default=False, callback=_set_verbose, help=_HELP)
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print adt's version.")
    ] = False,
    verbose: Verbose = 0,
) -> None:
    """Take the options before the verb: log to stderr, and show what travels."""
    observer.set(transfer_line())
    silence.set(silence_line())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Plain())
    logger = logging.getLogger("adt")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(logging.INFO)
    _set_verbose(verbose)


class _Plain(logging.Formatter):
    """The message alone; warnings say that they are."""

    def format(self, record: logging.LogRecord) -> str:
        """Format *record* as one line for people."""
        prefix = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return visible(prefix + record.getMessage())  # a table on the terminal writes past Output
