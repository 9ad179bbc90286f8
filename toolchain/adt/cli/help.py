"""Help pages: verbs by purpose, in the order of use, and options of long verbs by subject."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand

from adt.options.option import Option

PURPOSES = {
    "All in one": ("up",),
    "Build": ("build-target", "bundles", "presets", "source", "ndk"),
    "Compile": ("networks", "quantize", "compile", "compare-offload", "package"),
    "Run": ("devices", "emulator", "deploy", "run", "clean", "adb", "tracker", "rpc"),
    "Measure": ("verify", "bench", "profile", "report"),
    "Tune": ("tune", "db"),
    "Apps": ("generate", "apk", "install"),
    "Look": ("doctor", "probe", "inspect", "elf", "config", "init"),
}
"""Commands by what they are for, in the order of use."""
MOST_UNGROUPED = 16
"""Options of a command that are one list."""
OWN = "Options"
UNBROKEN = "\u2011"
"""A hyphen at which no line ends."""
_SUBJECTS = {
    "Arguments": "",
    "Model and target": "compile build.platform build.api_level model bundle like db",
    OWN: "",
    "Device": "device rpc serials key tracker via",
    "Inputs": "verify.seed verify.fill_mode inputs files images seeds accuracy_inputs",
    "Pictures": "resize crop resample scale value_range mean std layout color",
    "Comparison": "verify",
    "Measurement": "threads affinity protocol runs run_count seconds warmup_runs warmup_ms end_to_end "
    "cool_down cold_start rounds record label",
    "Search": "tune compare fit",
    "Build": "build tvm",
    "Security and caches": "trust insecure_no_digest use_cache program_cache pre_compiled keystore key_alias "
    "password_file debuggable",
}
"""Each subject's options: settings, sections of settings, and names of other options."""
_SUBJECT_OF = {name: subject for subject, names in _SUBJECTS.items() for name in names.split()}


class Command(TyperCommand):
    """A verb whose options are grouped where they are many, with the names that each takes from a table."""

    options: Mapping[str, Option] = {}

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments, then the options."""
        sections: dict[str, list[tuple[str, str]]] = {subject: [] for subject in _SUBJECTS}
        for parameter in self.get_params(ctx):
            about = self.options.get(parameter.name or "")
            if record := parameter.get_help_record(ctx):
                sections[self._subject(parameter, about)].append((record[0], record[1] + _names(about)))
        for subject, rows in sections.items():
            if rows:
                with formatter.section(subject):
                    formatter.write_dl([(flags, text.replace("-", UNBROKEN)) for flags, text in rows])
        formatter.buffer[:] = [text.replace(UNBROKEN, "-") for text in formatter.buffer]

    def _subject(self, parameter: Any, about: Option | None) -> str:
        if parameter.param_type_name == "argument":
            return "Arguments"
        if about is None or len(self.params) <= MOST_UNGROUPED:
            return OWN
        section = about.key.partition(".")[0]
        return _SUBJECT_OF.get(about.key or parameter.name) or _SUBJECT_OF.get(section, OWN)


def _names(about: Option | None) -> str:
    """Return the names from a table that an option takes, for the end of its help."""
    from adt.cli.completions import TABLES  # only a help page needs them

    names = TABLES[about.offers]() if about and about.offers in TABLES else ()
    return f"  [{', '.join(names)}]" if names else ""
