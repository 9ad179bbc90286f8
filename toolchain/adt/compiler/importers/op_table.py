"""Result of an import for each operator of a model: supported, rewritten, or unsupported and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

SUPPORTED = "supported"
REWRITTEN = "rewritten"
UNSUPPORTED = "unsupported"
UNTRIED = "untried"

NO_CONVERTER = "no converter in this TVM"
RANDOM = "random, and a package's numbers would be the same in every run: make them an input of the model"
TRAINING = "it drops values at random, for training: export the model for inference (model.eval())"
BATCH = "it normalizes by a batch's statistics, for training: export the model for inference (model.eval())"

MOST_NAMES = 3  # nodes that a note names; the others are counted


@dataclass(frozen=True)
class OpRow:
    """One operator of a model."""

    op: str
    """Name as its format spells it, with its domain where that is not the format's own."""
    count: int
    """Nodes with it."""
    status: str
    """``supported``, ``rewritten`` (before TVM converts it), ``unsupported``, or ``untried`` (the import
    ends before that is known)."""
    note: str = ""
    """Into what and why it is rewritten, or why it is unsupported; with the names of its nodes."""


def op_rows(
    ops: Iterable[str],
    rewritten: Mapping[str, str],
    unsupported: Mapping[str, str],
    supported: Mapping[str, str],
) -> tuple[OpRow, ...]:
    """Return the table of *ops*, one for each node, with notes; *unsupported* wins over *rewritten*."""
    notes = {op: (SUPPORTED, note) for op, note in supported.items()}
    notes |= {op: (REWRITTEN, note) for op, note in rewritten.items()}
    notes |= {op: (UNSUPPORTED, note) for op, note in unsupported.items()}
    return _sorted(OpRow(op, count, *notes.get(op, (SUPPORTED, ""))) for op, count in Counter(ops).items())


def after_trial(
    rows: Iterable[OpRow], failures: Mapping[str, str], untried: Collection[str]
) -> tuple[OpRow, ...]:
    """Return *rows* after a trial: what failed is unsupported, what it did not reach untried."""
    changed = []
    for row in rows:
        if row.op in failures and row.status != UNSUPPORTED:
            changed.append(replace(row, status=UNSUPPORTED, note=failures[row.op]))
        elif row.op in untried and row.status == SUPPORTED:
            changed.append(replace(row, status=UNTRIED, note=""))
        else:
            changed.append(row)
    known = {row.op for row in changed}  # others are only in what an operator was rewritten to
    changed += [OpRow(op, 1, UNSUPPORTED, note) for op, note in failures.items() if op not in known]
    return _sorted(changed)


def _sorted(rows: Iterable[OpRow]) -> tuple[OpRow, ...]:
    order = (UNSUPPORTED, UNTRIED, REWRITTEN, SUPPORTED)
    return tuple(sorted(rows, key=lambda row: (order.index(row.status), -row.count, row.op)))


def refusal(rows: Iterable[OpRow]) -> str:
    """List the unsupported operators of *rows* with reasons and nodes; empty when there are none."""
    return ", ".join(f"{row.op} ({row.note})" for row in rows if row.status == UNSUPPORTED)


def refusal_notes(refused: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Return the first reason of an operator's refusals (operator, node, reason), with all its nodes."""
    notes: dict[str, tuple[str, list[str]]] = {}
    for op, name, reason in refused:
        notes.setdefault(op, (reason, []))[1].append(name)
    return {op: f"{reason}; {named_nodes(names)}" for op, (reason, names) in notes.items()}


def named_nodes(names: Iterable[str]) -> str:
    """List nodes as ``node a, b, c and 4 more``; a node without a name is ``(unnamed)``."""
    listed = [name or "(unnamed)" for name in names]
    shown = ", ".join(listed[:MOST_NAMES])
    more = f" and {len(listed) - MOST_NAMES} more" if len(listed) > MOST_NAMES else ""
    return f"{'node' if len(listed) == 1 else 'nodes'} {shown}{more}" if listed else ""
