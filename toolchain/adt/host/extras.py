"""Python packages that adt needs: imported when they are used, and named by the command that installs them.

The commands name the requirements themselves, from adt's own metadata: ``adt`` is somebody else's name on
the package index, and the interpreter that runs adt need not be the ``python`` on PATH.
"""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from adt.errors import ToolNotFound

DISTRIBUTION = "adt-toolchain"
"""Name of adt on the package index."""
EXTRAS = {
    "tflite": ("tflite", "flatbuffers"),
    "torch": ("torch",),
    "keras": ("keras", "torch", "onnxscript"),
    "image": ("PIL",),
}
_EXTRA = re.compile(r"""extra\s*==\s*['"](.*)['"]""")


def install_command(*names: str, extra: str = "") -> str:
    """Return the command that installs *names*, as adt asks for them, and the requirements of *extra*."""
    pinned, of_extra = {}, []
    for requirement in _requirements():
        text, _, marker = (part.strip() for part in requirement.partition(";"))
        match = _EXTRA.fullmatch(marker)
        if not marker:
            pinned[re.split(r"[^A-Za-z0-9._-]", text)[0]] = text
        elif match and match[1] == extra:
            of_extra.append(text)
    listed = [pinned.get(name, name) for name in names] + of_extra
    if extra and not of_extra:  # adt runs from its sources
        listed.append(f"{Path(__file__).parents[3]}[{extra}]")
    return shlex.join([sys.executable, "-m", "pip", "install", *listed])


def _requirements() -> list[str]:
    import importlib.metadata  # slow, and only errors need it

    try:
        return importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return []


def need(extra: str, purpose: str) -> None:
    """Check that the packages of *extra* can be imported, for a *purpose* ("importing a .tflite file")."""
    for module in EXTRAS[extra]:
        load(module, extra, purpose)


def load(module: str, extra: str, purpose: str) -> Any:
    """Import *module*, or name the command that installs *extra*."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")
        raise ToolNotFound(
            f"{purpose} needs the Python package {package}, which is not usable here ({error})",
            remedy=install_command(extra=extra),
        ) from error
