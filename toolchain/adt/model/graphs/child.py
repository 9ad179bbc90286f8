"""Read graphs in a process of its own: ``python -m adt.model.graphs.child``, asked by :mod:`reading`."""

from __future__ import annotations

import resource

from adt.host.child import serve

MOST_MEMORY = 16 << 30
"""Bytes of address space, TVM's libraries among them."""


def refusal(text: str) -> str:
    """Why TVM does not read *text*, the JSON of a graph; empty where it does."""
    import tvm
    import tvm.tirx.analysis
    import tvm_ffi

    try:
        graph = tvm.ir.load_json(text)
        tvm_ffi.structural_hash(graph)
        tvm.tirx.analysis.verify_well_formed(graph)
    except Exception as error:  # whatever TVM's reader raises
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return lines[-1] if lines else type(error).__name__
    return ""


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(refusal)
