"""adt: get a model to run fast and right on an Android phone or an arm64 board with Apache TVM.

Every verb of the command line is a function here with the same name
(``adt.build_target(...)``, ``adt.compile(...)``); see :mod:`adt.api`.
Nothing heavy is imported until a verb runs.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


VERBS = (
    "build_abis",
    "build_target",
    "compile",
    "deploy",
    "devices",
    "doctor",
    "elf",
    "emulator_list",
    "emulator_start",
    "emulator_stop",
    "explain_build",
    "ndk_env",
    "ndk_list",
    "presets",
    "run",
    "settings",
    "source",
    "up",
    "verify",
)
"""What :mod:`adt.api` offers here under the same names."""


def __getattr__(name: str) -> Any:
    """Forward ``adt.VERB`` to :mod:`adt.api`, imported on first use (PEP 562)."""
    if name in VERBS:
        from importlib import import_module

        return getattr(import_module("adt.api"), name)
    raise AttributeError(f"module 'adt' has no attribute {name!r}")
