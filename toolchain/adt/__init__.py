"""Get a model to run fast and right on an Android phone or an arm64 board with Apache TVM.

Every verb of the command line is a function here with the same name
(``adt.build_target(...)``, ``adt.compile(...)``); see :mod:`adt.verbs`.
Nothing is imported until a verb is used, and then only what it needs.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"
SILENT = {
    "ADB_MDNS": "0",
    "ORT_DISABLE_TELEMETRY": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}
"""Variables that keep dependencies from contacting anybody unasked: adb looks for devices in the network,
onnxruntime reports events and writes a device's number below the home directory, pip asks for its newest
version. They are set before any of them is imported, and children inherit them; what is set already stays."""
for _name, _value in SILENT.items():
    os.environ.setdefault(_name, _value)

_STUB = Path(__file__).with_suffix(".pyi").read_text()
NAMES = {
    name: module
    for module, names in re.findall(r"^from (\S+) import ((?:\\\n|.)*)", _STUB, re.M)
    for name in re.findall(r" as (\w+)", names)
}
"""Each verb, and what goes with them, and the module that has it; the stub beside this file says it."""
__all__ = sorted(NAMES)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    """Find ``adt.VERB`` on first use (PEP 562)."""
    if name == "errors":
        return import_module("adt.errors")
    if name in NAMES:
        from adt.options.request import with_types

        return with_types(getattr(import_module(NAMES[name]), name))
    from difflib import get_close_matches

    close = "".join(f". Did you mean {each!r}?" for each in get_close_matches(name, __all__, n=1))
    raise AttributeError(f"module 'adt' has no attribute {name!r}{close}")
