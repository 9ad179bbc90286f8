"""Place a graph on a plane, in layers from top to bottom.

Layers come from the longest path; edges that pass layers get a place of their own
in each, so that they go round the boxes. The order within a layer follows the
neighbours' mean place, and so do the coordinates, as far as boxes may not overlap.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 232.0, 46.0  # size of a box, in pixels
GAP_X, GAP_Y = 26.0, 34.0  # between boxes
LANE = 10.0  # width of the place that a passing edge has in a layer
SWEEPS = 6
MOST_PASSING = 40_000  # passing edges times layers; beyond it they are drawn straight


@dataclass(frozen=True)
class Layout:
    """Positions of all parts, in pixels."""

    places: tuple[tuple[float, float], ...]
    """Upper left corner of each node's box."""
    paths: Mapping[tuple[int, int], tuple[tuple[float, float], ...]]
    """Points of each edge, from the lower side of one box to the upper side of the other."""
    width: float
    height: float


def place(count: int, edges: Sequence[tuple[int, int]]) -> Layout:
    """Lay out nodes 0 (the top) … *count*-1 with *edges* from earlier to later ones."""
    unique = list(dict.fromkeys(edge for edge in edges if edge[0] < edge[1]))
    layer = _layers(count, unique)
    chains = _chains(count, unique, layer)
    depth = max(layer, default=0) + 1
    rows: list[list[int]] = [[] for _ in range(depth)]
    level = list(layer)
    for (start, _), passing in chains.items():
        level += [layer[start] + 1 + step for step in range(len(passing))]
    for node, at in enumerate(level):
        rows[at].append(node)
    above: list[list[int]] = [[] for _ in level]
    below: list[list[int]] = [[] for _ in level]
    for (start, end), passing in chains.items():
        whole = [start, *passing, end]
        for upper, lower in itertools.pairwise(whole):
            above[lower].append(upper)
            below[upper].append(lower)
    _order(rows, above, below)
    center = _columns(rows, above, below, count)
    left = min((center[n] - _width(n, count) / 2 for n in range(len(level))), default=0.0)
    center = [x - left for x in center]
    top = [at * (HEIGHT + GAP_Y) for at in level]
    paths = {}
    for (start, end), passing in chains.items():
        points = [(center[start], top[start] + HEIGHT)]
        points += [(center[node], top[node] + HEIGHT / 2) for node in passing]
        paths[start, end] = (*points, (center[end], top[end]))
    return Layout(
        tuple((center[node] - WIDTH / 2, top[node]) for node in range(count)),
        paths,
        max((center[n] + _width(n, count) / 2 for n in range(len(level))), default=0.0),
        depth * (HEIGHT + GAP_Y) - GAP_Y,
    )


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    layer = [0] * count
    follows: list[list[int]] = [[] for _ in range(count)]
    reached = [node == 0 for node in range(count)]
    for start, end in sorted(edges, key=lambda edge: edge[1]):
        layer[end] = max(layer[end], layer[start] + 1)
        follows[start].append(end)
        reached[end] |= reached[start]
    for node in reversed(range(count)):  # what needs no input stands right above what needs it
        if not reached[node] and follows[node]:
            layer[node] = min(layer[after] for after in follows[node]) - 1
    return layer


def _chains(
    count: int, edges: Sequence[tuple[int, int]], layer: Sequence[int]
) -> dict[tuple[int, int], list[int]]:
    """Give each edge a fresh node for every layer that it passes."""
    passed = sum(layer[end] - layer[start] - 1 for start, end in edges)
    chains = {}
    fresh = count
    for start, end in edges:
        many = layer[end] - layer[start] - 1 if passed <= MOST_PASSING else 0
        chains[start, end] = list(range(fresh, fresh + many))
        fresh += many
    return chains


def _order(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Sort each row by the mean position of its neighbours, downwards and upwards in turn."""
    position: dict[int, float] = {node: float(i) for row in rows for i, node in enumerate(row)}
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            near = above if down else below
            row.sort(key=lambda n: _mean([position[m] for m in near[n]], position[n]))
            for index, node in enumerate(row):
                position[node] = float(index)


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _width(node: int, count: int) -> float:
    return WIDTH if node < count else LANE


def _columns(
    rows: list[list[int]], above: list[list[int]], below: list[list[int]], count: int
) -> list[float]:
    """Center each node as near to its neighbours' mean as its row allows."""
    center = [0.0] * len(above)
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            near = above if sweep % 2 == 0 else below
            targets = [_mean([center[m] for m in near[n]], center[n]) for n in row]
            for node, x in zip(row, _apart(row, targets, count), strict=True):
                center[node] = x
    return center


def _apart(row: Sequence[int], targets: Sequence[float], count: int) -> list[float]:
    """Return the places nearest to *targets* (least squares) at which the boxes of *row* do not overlap."""
    offsets = [0.0]
    for left, right in itertools.pairwise(row):
        offsets.append(offsets[-1] + (_width(left, count) + _width(right, count)) / 2 + GAP_X)
    blocks: list[tuple[float, int]] = []  # isotonic regression: pool what is out of order
    for target, offset in zip(targets, offsets, strict=True):
        total, size = target - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / size:
            before = blocks.pop()
            total, size = total + before[0], size + before[1]
        blocks.append((total, size))
    places = [total / size for total, size in blocks for _ in range(size)]
    return [place + offset for place, offset in zip(places, offsets, strict=True)]
