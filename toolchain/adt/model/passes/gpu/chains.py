"""Which measured convolutions are blocked, so that the whole model takes least.

A form that its neighbours do not have costs a kernel that packs or unpacks a tensor: a chain may be faster
in one form though each of its convolutions alone is not. All ways to give tensors forms are the cuts of
a graph that part its source, blocked, from its sink, plain: a convolution hangs on the one by its time in
the other form, and a tensor on those that read it by the time of packing or unpacking it once. The least
cut is the fastest way (D. Greig, B. Porteous, A. Seheult 1989, on labels of two kinds).
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict, deque
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from adt.model.passes.gpu.choice import CLEARLY, SLOWEST, MeasuredTimes, TextureChooser
from adt.model.passes.layout.blocks import TEXELS
from adt.model.passes.layout.convolutions import FUSED_WITH_PACKING
from adt.model.passes.layout.operators import RULES
from adt.model.passes.layout.rewriter import bindings_of, is_flat, readers_of
from adt.model.passes.layout.signature import Signature
from adt.model.passes.layout.walk import Choice, Moves, Walk, size_of
from adt.model.passes.normalizations import Rows

BLOCKED, PLAIN = "blocked", "plain"
"""Source and sink."""


def in_chains(module: Any, chooser: TextureChooser, rows: Rows | None = None) -> TextureChooser:
    """*chooser* with forms of the convolutions and products of *module* that it has times of.

    Args:
        module: ``main`` as the layout walk takes it; with control flow it gets no forms.
        chooser: what was not measured in both forms is as its model says.
        rows: see :func:`~adt.model.passes.layout.operators.block_channels`.
    """
    if chooser.times is None or not is_flat(module):
        return chooser
    survey = _Survey(chooser)
    walk = Walk(module, survey, RULES, TEXELS, rows)
    walk.run()
    graph = _graph(module, walk, survey, chooser.times)
    blocked = graph.side_of_source()
    return replace(chooser, forms={variable: variable in blocked for variable in survey.measured})


class _Survey:
    """Blocks all that can be, and notes what could have either form."""

    def __init__(self, chooser: TextureChooser) -> None:
        self.chooser = chooser
        self.measured: dict[Any, tuple[float, float]] = {}
        """Variable to its time blocked and plain."""
        self.by_model: dict[Any, bool] = {}
        """Variable of what was not measured to whether the model blocks it where its neighbours allow it."""

    def choose(self, computes: Signature, channels: int, _moves: Moves, variable: Any) -> Choice:
        """All is blocked, to see what can be."""
        if (times := self.chooser.times_of(computes)) is not None:
            self.measured[variable] = times
        else:
            self.by_model[variable] = self.chooser.choose(computes, channels, Moves(), variable).blocked
        return Choice(True, "")


def _graph(module: Any, walk: Walk, survey: _Survey, times: MeasuredTimes) -> Cut:
    graph = Cut()
    for variable in (binding.var for binding in bindings_of(module)):
        if variable in survey.measured:
            blocked, plain = survey.measured[variable]
            graph.add(BLOCKED, variable, plain * CLEARLY)
            graph.add(variable, PLAIN, blocked if blocked <= SLOWEST * plain else math.inf)
        elif survey.by_model.get(variable):
            graph.add(BLOCKED, variable, math.inf)
        elif variable in walk.made_by or variable in survey.by_model or not _has_blocks(walk, variable):
            graph.add(variable, PLAIN, math.inf)
    for param in module["main"].params:
        graph.add(param, PLAIN, math.inf)
    for source, readers in readers_of(module).items():
        free = source in walk.rows and walk.in_whole_rows(source)  # a change of shape
        moving = 0 if free else times.moving(_bytes(source))
        fused = walk.made_by.get(source) in FUSED_WITH_PACKING
        graph.add(source, ("unpacked", source), moving)
        graph.add(("packed", source), source, 0 if fused else moving)
        for user in (reader.var if reader else PLAIN for reader in readers):
            graph.add(("unpacked", source), user, math.inf)
            graph.add(user, ("packed", source), math.inf)
    return graph


def _has_blocks(walk: Walk, variable: Any) -> bool:
    return variable in walk.blocked or variable in walk.rows or variable in walk.tuples


def _bytes(variable: Any) -> int:
    from tvm import relax

    info = variable.struct_info
    if isinstance(info, relax.TupleStructInfo):
        return sum(size_of(relax.Var("field", field)) for field in info.fields)
    return size_of(variable) if isinstance(info, relax.TensorStructInfo) else 0


class Cut:
    """A graph between BLOCKED and PLAIN whose least cut is looked for."""

    def __init__(self) -> None:
        self.room: defaultdict[Hashable, dict[Hashable, float]] = defaultdict(dict)
        """What may still flow from a node to its neighbours."""

    def add(self, tail: Hashable, head: Hashable, cost: float) -> None:
        """*cost*, if *tail* is on the side of the source and *head* is not."""
        self.room[tail][head] = self.room[tail].get(head, 0) + cost
        self.room[head].setdefault(tail, 0)

    def side_of_source(self) -> set[Hashable]:
        """The nodes that a least cut leaves with the source: flow is sent along shortest paths until none
        is left (Edmonds and Karp)."""
        while PLAIN in (before := self._reached()):
            path = [PLAIN]
            while path[-1] != BLOCKED:
                path.append(before[path[-1]])
            steps = [(tail, head) for head, tail in itertools.pairwise(path)]
            flow = min(self.room[tail][head] for tail, head in steps)
            for tail, head in steps:
                self.room[tail][head] -= flow
                self.room[head][tail] += flow
        return set(before)

    def _reached(self) -> dict[Any, Any]:
        """Each node that the source has a way to, to the one before it."""
        before: dict[Any, Any] = {BLOCKED: None}
        waiting: deque[Hashable] = deque([BLOCKED])
        while waiting:
            node = waiting.popleft()
            for head, room in self.room[node].items():
                if room > 0 and head not in before:
                    before[head] = node
                    waiting.append(head)
        return before
