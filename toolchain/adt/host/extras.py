"""The packages that some formats need: asked for when they are missing, by the exact pip command."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from adt.errors import ToolNotFound

EXTRAS = {
    "tflite": ("tflite", "flatbuffers"),
    "torch": ("torch",),
    "keras": ("keras", "torch", "onnxscript"),
    "image": ("PIL",),
}
"""Modules by extra of the project."""


def need(extra: str, what: str) -> None:
    """Check that what the extra installs is there.

    Args:
        what: what it is needed for: "importing a .tflite file".

    Raises:
        ToolNotFound: a module of it is missing, or does not load.
    """
    for module in EXTRAS[extra]:
        load(module, extra, what)


def load(module: str, extra: str, what: str) -> Any:
    """Import *module*, or say with which command it is installed.

    Raises:
        ToolNotFound: it is missing, or does not load.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")
        raise ToolNotFound(
            f"{what} needs the Python package {package}, which is not usable here ({error})",
            remedy=f'{sys.executable} -m pip install "adt[{extra}]"',
        ) from error
