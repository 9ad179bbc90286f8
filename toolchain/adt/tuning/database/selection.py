"""Selection of contexts of a database."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from adt.errors import ConfigError
from adt.tuning.records import Context


@dataclass(frozen=True)
class Selection:
    """Words that a context must have, in any case; empty: any."""

    device: str = ""
    """Part of the device's name."""
    driver: str = ""
    target: str = ""
    """Part of the target's key, or of the words that people read for it."""
    tvm: str = ""
    """The version, or its start."""

    @property
    def everything(self) -> bool:
        """Nothing was chosen."""
        return self == Selection()


def select(contexts: Iterable[Context], selection: Selection) -> tuple[Context, ...]:
    """Return the contexts that *selection* matches."""
    from adt.compiler.passes.records.key import key_words

    return tuple(
        context
        for context in contexts
        if selection.device.lower() in context.device.lower()
        and selection.driver.lower() in context.driver.lower()
        and selection.target.lower() in f"{context.target} {key_words(context.target)}".lower()
        and context.tvm.startswith(selection.tvm)
    )


def select_one(contexts: Iterable[Context], selection: Selection) -> Context:
    """Return the one context that *selection* means, or refuse with a list."""
    available = tuple(contexts)
    matches = select(available, selection)
    if len(matches) == 1:
        return matches[0]
    if not matches:
        raise ConfigError(
            "the tuning database has no records of what was asked for"
            if available
            else "the tuning database has no records",
            remedy="Look at what is there: adt db stats DB",
            details="\n".join(map(describe, available)),
        )
    raise ConfigError(
        f"the tuning database has records of {len(matches)} devices, drivers, targets or versions of TVM",
        remedy="Choose with --device, --driver, --target and --tvm (parts of them are enough).",
        details="\n".join(map(describe, matches)),
    )


def describe(context: Context) -> str:
    """The context in one line, for people."""
    from adt.compiler.passes.records.key import key_words

    driver = f", driver {context.driver}" if context.driver else ""
    return f"{context.device}{driver}, {key_words(context.target)}, TVM {context.tvm}"
