"""One self-contained HTML page of a package: its graph, kernels, memory and, with a profile, times."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from adt.bundle.libraries import LIBRARIES, titles
from adt.errors import AdtError
from adt.host.contained import UnsafeFile
from adt.host.document import web_page
from adt.package.inspection.graph import Graph
from adt.package.inspection.inspection import Inspection
from adt.package.inspection.profile import Profile

WIDTH, HEIGHT = 232.0, 46.0  # size of a box, in pixels
GAP_X, GAP_Y = 26.0, 34.0  # between boxes
LANE = 10.0  # width of the place that a passing edge has in a layer
SWEEPS = 6
MOST_PASSING = 40_000  # passing edges times layers; beyond it they are drawn straight

Points = list[tuple[float, float]]
"""Positions in pixels."""


def place(
    count: int, edges: Sequence[tuple[int, int]]
) -> tuple[Points, dict[tuple[int, int], Points], tuple[float, float]]:
    """Lay out nodes 0 (the top) … *count*-1 with *edges* from earlier to later ones, in layers.

    Returns the upper left corner of each node's box, the points of each edge, from the lower side of one box
    to the upper side of the other, and the width and height of all. Layers come from the longest path; edges
    that pass layers get a place of their own in each, so that they go round the boxes. The order within a
    layer follows the neighbours' mean place; so do the coordinates, as far as boxes do not overlap.
    """
    unique = list(dict.fromkeys(edge for edge in edges if edge[0] < edge[1]))
    level = _layers(count, unique)
    chains = _chains(unique, level)
    rows: list[list[int]] = [[] for _ in range(max(level, default=0) + 1)]
    for node, at in enumerate(level):
        rows[at].append(node)
    above: list[list[int]] = [[] for _ in level]
    below: list[list[int]] = [[] for _ in level]
    for (start, end), passing in chains.items():
        for upper, lower in itertools.pairwise([start, *passing, end]):
            above[lower].append(upper)
            below[upper].append(lower)
    half = [(WIDTH if node < count else LANE) / 2 for node in range(len(level))]
    _order(rows, above, below)
    center = _columns(rows, above, below, half)
    left = min((x - width for x, width in zip(center, half, strict=True)), default=0.0)
    center = [x - left for x in center]
    top = [at * (HEIGHT + GAP_Y) for at in level]
    paths = {}
    for (start, end), passing in chains.items():
        points = [(center[node], top[node] + HEIGHT / 2) for node in passing]
        paths[start, end] = [(center[start], top[start] + HEIGHT), *points, (center[end], top[end])]
    places = [(center[node] - WIDTH / 2, top[node]) for node in range(count)]
    width = max((x + width for x, width in zip(center, half, strict=True)), default=0.0)
    return places, paths, (width, len(rows) * (HEIGHT + GAP_Y) - GAP_Y)


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


def _chains(edges: Sequence[tuple[int, int]], level: list[int]) -> dict[tuple[int, int], list[int]]:
    """Give each edge a fresh node for every layer that it passes, and add their layers to *level*."""
    passed = sum(level[end] - level[start] - 1 for start, end in edges)
    chains = {}
    for start, end in edges:
        layers = range(level[start] + 1, level[end]) if passed <= MOST_PASSING else ()
        chains[start, end] = list(range(len(level), len(level) + len(layers)))
        level += layers
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


def _columns(
    rows: list[list[int]], above: list[list[int]], below: list[list[int]], half: Sequence[float]
) -> list[float]:
    """Center each node as near to its neighbours' mean as its row allows."""
    center = [0.0] * len(above)
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            near = above if sweep % 2 == 0 else below
            targets = [_mean([center[m] for m in near[n]], center[n]) for n in row]
            for node, x in zip(row, _apart([half[node] for node in row], targets), strict=True):
                center[node] = x
    return center


def _apart(half: Sequence[float], targets: Sequence[float]) -> list[float]:
    """Return the places nearest to *targets* (least squares) where boxes of *half* widths do not overlap."""
    steps = (left + right + GAP_X for left, right in itertools.pairwise(half))
    offsets = list(itertools.accumulate(steps, initial=0.0))
    blocks: list[tuple[float, int]] = []  # isotonic regression: pool what is out of order
    for target, offset in zip(targets, offsets, strict=True):
        total, size = target - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / size:
            before = blocks.pop()
            total, size = total + before[0], size + before[1]
        blocks.append((total, size))
    places = [total / size for total, size in blocks for _ in range(size)]
    return [place + offset for place, offset in zip(places, offsets, strict=True)]


MOST_SOURCE = 200_000  # characters of one kernel's text that the page carries
INPUTS, OUTPUTS = "inputs", "outputs"  # kinds of the nodes that stand for the caller


def render(inspection: Inspection, profile: Profile | None = None) -> str:
    """Render the page as HTML, UTF-8; see :func:`adt.host.document.web_page`."""
    here = Path(__file__).parent
    return web_page(
        f"{inspection.package.manifest.name} · adt inspect",
        style=here / "page.css",
        script=here / "page.js",
        data=page_data(inspection, profile),
    )


def page_data(inspection: Inspection, profile: Profile | None) -> dict[str, Any]:
    """Collect the data of the page."""
    graph, facts = inspection.graph, inspection.package.manifest
    report = facts.made.textures
    nodes, edges = _nodes_and_edges(graph)
    places, paths, (width, height) = place(len(nodes), [(start, end) for start, end, _ in edges])
    times = {call.index: call for call in profile.calls} if profile else {}
    for node, (x, y) in zip(nodes, places, strict=True):
        node |= {"x": round(x, 1), "y": round(y, 1)}
        if (time := times.get(node["call"])) is not None and time.name == node["name"]:
            node["us"] = [time.mean_us, time.min_us, time.max_us]
    return {
        "name": facts.name,
        "target": facts.target.name,
        "platform": facts.target.platform,
        "offload": titles(facts.libraries),
        "facts": _facts(inspection),
        "entry": {
            "inputs": [vars(spec) for spec in facts.entry().inputs],
            "outputs": [vars(spec) for spec in facts.entry().outputs],
        },
        "box": [WIDTH, HEIGHT],
        "size": [round(width, 1), round(height, 1)],
        "nodes": nodes,
        "edges": [
            [start, end, tensor, [[round(x, 1), round(y, 1)] for x, y in paths[start, end]]]
            for start, end, tensor in edges
        ],
        "tensors": [vars(tensor) | {"texture": tensor.texture} for tensor in graph.tensors],
        "storages": [vars(storage) for storage in graph.storages],
        "memory": {"total": graph.total, "peak": graph.peak, "unplanned": graph.unplanned},
        "kernels": [vars(kernel) for kernel in graph.kernels],
        "textures": {"share": report.share, **asdict(report)} if report else None,
        "sources": _sources(inspection),
        "profile": {
            "device": profile.device,
            "emulated": profile.emulated,
            "runs": profile.runs,
            "total_us": profile.counted_us,
        }
        if profile
        else None,
    }


def _nodes_and_edges(graph: Graph) -> tuple[list[dict[str, Any]], list[tuple[int, int, int]]]:
    """Make a node for the inputs, each call and the outputs, and an edge for each tensor between two."""
    given = [i for i, tensor in enumerate(graph.tensors) if tensor.kind == "input"]
    nodes: list[dict[str, Any]] = [{"name": INPUTS, "kind": INPUTS, "call": -1, "in": [], "out": given}]
    producers = dict.fromkeys(given, 0)
    edges: list[tuple[int, int, int]] = []
    for index, call in enumerate(graph.calls):
        touched = [graph.tensors[i] for i in (*call.inputs, *call.outputs)]
        textured = any(t.texture for t in touched) or graph.textures_of(call.name) > 0
        nodes.append(
            {
                "name": call.name,
                "kind": call.kind,
                "call": index,
                "in": list(call.inputs),
                "out": list(call.outputs),
                "device": graph.device_of(call),
                "texture": textured,
            }
        )
        edges += [(producers[i], len(nodes) - 1, i) for i in call.inputs if i in producers]
        producers |= dict.fromkeys(call.outputs, len(nodes) - 1)
    nodes.append({"name": OUTPUTS, "kind": OUTPUTS, "call": -1, "in": list(graph.outputs), "out": []})
    edges += [(producers[i], len(nodes) - 1, i) for i in graph.outputs if i in producers]
    first: dict[tuple[int, int], tuple[int, int, int]] = {}
    for edge in edges:
        first.setdefault(edge[:2], edge)
    return nodes, list(first.values())


def _sources(inspection: Inspection) -> dict[str, dict[str, str]]:
    """Collect the texts of each function: kernels' sources by their names, and its TIR."""
    sources: dict[str, dict[str, str]] = {}
    try:
        for name, text in inspection.tir_functions().items():
            sources[name] = {"TIR": text[:MOST_SOURCE]}
        for kernel in inspection.graph.kernels:
            text = inspection.text(kernel.file)
            sources[kernel.function] = {kernel.name: text[:MOST_SOURCE]} | sources.get(kernel.function, {})
    except UnsafeFile:
        raise
    except AdtError:  # left out: the page has fewer texts
        pass
    for library, graphs in inspection.subgraphs().items():
        for name, graph in graphs.items():
            sources[name] = {LIBRARIES[library].title: json.dumps(graph, indent=1)[:MOST_SOURCE]}
    return sources


def _facts(inspection: Inspection) -> list[list[str]]:
    facts = inspection.package.manifest
    rows = [
        ["model", f"{facts.source.file} ({facts.source.format})"],
        ["target", f"{facts.target.name} on {facts.target.platform} ({facts.target.triple})"],
        ["precision", facts.precision],
        ["offload", facts.made.offload.summary if facts.made.offload else facts.offload],
        ["alignment", f"{facts.alignment} bytes"],
        ["kernels", f"{facts.total}, {facts.tuned} tuned"],
    ]
    if facts.target.device == "opencl":
        rows.append(["with textures", f"{inspection.textured} of {facts.total} kernels"])
    if facts.like:
        rows.append(["for the device", facts.like.device])
    rows += [[name, f"{size:,} bytes"] for name, size in inspection.sizes().items()]
    rows += [
        ["TVM", f"{facts.tvm.version}, tvm-ffi {facts.tvm.ffi_version}"],
        ["adt", facts.adt_version],
        ["source sha256", facts.source.sha256],
    ]
    return rows
