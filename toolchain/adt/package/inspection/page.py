"""One self-contained HTML page of a package: its graph, kernels, memory and, with a profile, times."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from adt.bundle.libraries import LIBRARIES, titles
from adt.errors import AdtError
from adt.host.contained import UnsafeFile
from adt.host.web_page import web_page
from adt.package.inspection.graph import Graph
from adt.package.inspection.inspection import Inspection
from adt.package.inspection.layout import HEIGHT, WIDTH, place
from adt.package.inspection.profile import Profile

MOST_SOURCE = 200_000  # characters of one kernel's text that the page carries
INPUTS, OUTPUTS = "inputs", "outputs"  # kinds of the nodes that stand for the caller


def render(inspection: Inspection, profile: Profile | None = None) -> str:
    """Render the page as HTML, UTF-8; see :func:`adt.host.web_page.web_page`."""
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
    layout = place(len(nodes), [(start, end) for start, end, _ in edges])
    times = {call.index: call for call in profile.calls} if profile else {}
    for node, (x, y) in zip(nodes, layout.places, strict=True):
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
        "size": [round(layout.width, 1), round(layout.height, 1)],
        "nodes": nodes,
        "edges": [
            [start, end, tensor, [[round(x, 1), round(y, 1)] for x, y in layout.paths[start, end]]]
            for start, end, tensor in edges
        ],
        "tensors": [vars(tensor) | {"texture": tensor.texture} for tensor in graph.tensors],
        "storages": [vars(storage) for storage in graph.storages],
        "memory": {"total": graph.total, "peak": graph.peak, "unplanned": graph.unplanned},
        "kernels": [vars(kernel) for kernel in graph.kernels],
        "textures": {"share": report.share, **asdict(report)} if report else None,
        "sources": _sources(inspection),
        "profile": _profile(profile),
    }


def _nodes_and_edges(graph: Graph) -> tuple[list[dict[str, Any]], list[tuple[int, int, int]]]:
    """Make a node for the inputs, each call and the outputs, and an edge for each tensor between two."""
    nodes: list[dict[str, Any]] = [{"name": INPUTS, "kind": INPUTS, "call": -1, "in": [], "out": []}]
    producers: dict[int, int] = {}
    nodes[0]["out"] = [i for i, tensor in enumerate(graph.tensors) if tensor.kind == "input"]
    edges: list[tuple[int, int, int]] = []
    for index in nodes[0]["out"]:
        producers[index] = 0
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
        for output in call.outputs:
            producers[output] = len(nodes) - 1
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
            own = sources.setdefault(kernel.function, {})
            sources[kernel.function] = {kernel.name: text[:MOST_SOURCE]} | own
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


def _profile(profile: Profile | None) -> dict[str, Any] | None:
    if profile is None:
        return None
    return {
        "device": profile.device,
        "emulated": profile.emulated,
        "runs": profile.runs,
        "total_us": profile.counted_us,
    }
