"""What TIR needs before TVM lowers it, so that the generated code is right on the device.

Alignment. The TVM wheel is built for 64-byte aligned tensors, and code it generates
tells LLVM to assume so of every argument; nothing checks it. A runtime built with
TVM_KALLOC_ALIGNMENT=32 (what phones use) gives 32, so that such a module may fault
now and then, with the allocator's mood (seen with wide x86-64 vector moves). The
assumption sits in every TIR buffer's ``data_alignment``.

Imports. TVM compiles a text that a pragma names, machine code included, into a kernel; whatever schedule
was applied, none has such a pragma.

Names. Arguments of OpenCL kernels are called as tensors are in the model; names such
as ``encoder/dense:0`` are no identifiers, and the driver then refuses the source.
"""

from __future__ import annotations

import json
import re
from typing import Any

from adt.model.texture import guard

IMPORTS = ("pragma_import_llvm", "pragma_import_c", "import_llvm", "import_c")
"""Attributes, and values of ``pragma_scope``, by which code that is a text becomes part of a kernel."""


def tir_pipeline(alignment: int, *, textures: bool = False) -> str:
    """Register TVM's default TIR pipeline for buffers aligned to *alignment* bytes; return its name.

    Args:
        textures: some arguments of kernels are images (:mod:`adt.model.texture.guard`).
    """
    import tvm
    import tvm.s_tir.pipeline
    from tvm.tirx.compilation_pipeline import PIPELINE_MAP

    name = f"adt_align{alignment}" + ("_textures" if textures else "")

    @tvm.transform.module_pass(opt_level=0, name="adt.PrepareLowering")  # type: ignore[untyped-decorator]
    def prepare(module: Any, _context: Any) -> Any:
        # PrimFuncs offer no way to replace a buffer everywhere that accepts another
        # alignment (`specialize` insists on an equal one); the graph's JSON does.
        graph = json.loads(tvm.ir.save_json(module))
        nodes = graph["nodes"]
        for node in nodes:
            kind = node.get("type")
            if kind == "ffi.String" and node["data"] in IMPORTS:
                raise RuntimeError(
                    f"a kernel has {node['data']}, by which a text becomes code of mod.so; no schedule rule "
                    "writes it (adt db verify DB finds the record that brought it)"
                )
            if kind == "tirx.Buffer":
                node["data"]["data_alignment"] = min(node["data"]["data_alignment"], alignment)
            if kind == "tirx.Buffer" or (kind == "tirx.Var" and node["data"]["dtype"] == "handle"):
                text = nodes[node["data"]["name"]]
                text["data"] = identifier(text["data"])
        return tvm.ir.load_json(json.dumps(graph))

    def make() -> tuple[Any, Any, Any]:
        lower, finalize_host, finalize_device = PIPELINE_MAP["s_tir"]()
        passes = [prepare, guard.lowering(), guard.check_images()] if textures else [prepare, lower]
        return tvm.transform.Sequential(passes), finalize_host, finalize_device

    PIPELINE_MAP[name] = make
    return name


def identifier(name: str) -> str:
    """*name* as C takes it; the code generator keeps equal ones apart."""
    clean = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return clean if re.match(r"[A-Za-z_]", clean) else f"v_{clean}"
