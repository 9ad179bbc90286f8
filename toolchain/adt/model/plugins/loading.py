"""Load plugins into this process, each once."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from pathlib import Path

from adt.errors import SourceError

ATTRIBUTES = "relax.attrs."
"""Types of operators' attributes: where tree and wheel disagree, those operators are passed over."""


@dataclass(frozen=True)
class LoadedPlugin:
    """A plugin in this process."""

    library: ctypes.CDLL
    foreign: frozenset[str]
    """Types of operators' attributes that the plugin, compiled from its source tree, would misread."""


_LOADED: dict[Path, LoadedPlugin] = {}
_LOCK = threading.Lock()


def load_plugin(library: Path) -> LoadedPlugin:
    """Load *library*, whose functions TVM then has, into this process; a second time nothing happens.

    Raises:
        SourceError: it does not fit the TVM that this process has loaded.
    """
    import tvm

    path = library.resolve()
    with _LOCK:
        if path in _LOADED:
            return _LOADED[path]
        remedy = f"Remove {library.parent} to build it again for the installed TVM."
        try:
            handle = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as why:
            raise SourceError(f"the plugin {library.name} cannot be loaded: {why}", remedy=remedy) from why
        compare = tvm.get_global_func(layout_function(library), allow_missing=True)
        foreign = foreign_types(library.name, [str(text) for text in compare()] if compare else [])
        _LOADED[path] = LoadedPlugin(handle, foreign)
        return _LOADED[path]


def layout_function(library: Path) -> str:
    """The function of the code generator *library* that compares its tree's headers with the wheel."""
    return f"adt.layout_differences.{library.stem.rpartition('_')[2]}"


def foreign_types(name: str, differences: list[str]) -> frozenset[str]:
    """Types that the plugin *name* must not read, from what it found: ``type.field: how`` each.

    Raises:
        SourceError: one of them is no operator's attributes, so that nothing can be read.
    """
    types = {text.partition(":")[0].rpartition(".")[0] for text in differences}
    if any(not kind.startswith(ATTRIBUTES) for kind in types):
        raise SourceError(
            f"the plugin {name} was built from a TVM source tree that does not fit the installed TVM",
            remedy="Build it from the installed version's source: ADT_TVM_PROVIDER=git, or TVM_HOME.",
            details="\n".join(differences),
        )
    return frozenset(types)
