"""Make generated code assume the alignment that the device's runtime gives, and no more.

The TVM wheel is built for 64-byte aligned tensors, and code it generates tells
LLVM to assume so of every argument; nothing checks it. A runtime built with
TVM_KALLOC_ALIGNMENT=32 (what phones use) gives 32, so that such a module may
fault now and then, with the allocator's mood (seen with wide x86-64 vector moves).
The assumption sits in every TIR buffer's ``data_alignment``; this pass lowers it
before TIR is lowered.
"""

from __future__ import annotations

import json
from typing import Any


def tir_pipeline(alignment: int) -> str:
    """Register TVM's default TIR pipeline for buffers aligned to *alignment* bytes; return its name."""
    import tvm
    import tvm.s_tir.pipeline
    from tvm.tirx.compilation_pipeline import PIPELINE_MAP

    name = f"adt_align{alignment}"

    @tvm.transform.module_pass(opt_level=0, name="adt.LowerDataAlignment")  # type: ignore[untyped-decorator]
    def lower_alignment(module: Any, _context: Any) -> Any:
        # PrimFuncs offer no way to replace a buffer everywhere that accepts another
        # alignment (`specialize` insists on an equal one); the graph's JSON does.
        graph = json.loads(tvm.ir.save_json(module))
        for node in graph["nodes"]:
            if node.get("type") == "tirx.Buffer":
                node["data"]["data_alignment"] = min(node["data"]["data_alignment"], alignment)
        return tvm.ir.load_json(json.dumps(graph))

    def make() -> tuple[Any, Any, Any]:
        lower, finalize_host, finalize_device = PIPELINE_MAP["s_tir"]()
        return tvm.transform.Sequential([lower_alignment, lower]), finalize_host, finalize_device

    PIPELINE_MAP[name] = make
    return name
