"""adt: get a model to run fast and right on an Android phone or an arm64 board with Apache TVM.

Every verb of the command line is a function here with the same name
(``adt.build_target(...)``, ``adt.compile(...)``); see :mod:`adt.api`.
Nothing is imported until a verb is used, and then only what it needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the same names as in VERBS, for type checkers and editors
    from adt.api.build import (
        build_abis,
        build_target,
        explain_build,
        ndk_env,
        ndk_list,
        presets,
        settings,
        source,
    )
    from adt.api.deploy import deploy, run
    from adt.api.device import devices, emulator_list, emulator_start, emulator_stop
    from adt.api.inspect import doctor, elf
    from adt.api.model import compile
    from adt.api.up import up
    from adt.api.verify import verify

__version__ = "0.1.0"

VERBS = {
    "build_abis": "build",
    "build_target": "build",
    "compile": "model",
    "deploy": "deploy",
    "devices": "device",
    "doctor": "inspect",
    "elf": "inspect",
    "emulator_list": "device",
    "emulator_start": "device",
    "emulator_stop": "device",
    "explain_build": "build",
    "ndk_env": "build",
    "ndk_list": "build",
    "presets": "build",
    "run": "deploy",
    "settings": "build",
    "source": "build",
    "up": "up",
    "verify": "verify",
}
"""Each verb and the module of :mod:`adt.api` that has it."""

__all__ = [
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
]


def __getattr__(name: str) -> Any:
    """Find ``adt.VERB`` on first use (PEP 562)."""
    if name in VERBS:
        return getattr(import_module(f"adt.api.{VERBS[name]}"), name)
    raise AttributeError(f"module 'adt' has no attribute {name!r}")
