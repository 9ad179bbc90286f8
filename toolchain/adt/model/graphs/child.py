"""Read graphs in a process of its own: ``python -m adt.model.graphs.child REQUEST.json``.

The request has the texts and the place of the first to read; each line of stdout is one that TVM
has read: its place, and why not where it refused. The last line that is missing is what ended it.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

MOST_MEMORY = 16 << 30
"""Bytes of address space, TVM's libraries among them."""


def main() -> int:
    """Read all of the request."""
    import tvm
    import tvm.tirx.analysis
    import tvm_ffi

    request = json.loads(Path(sys.argv[1]).read_text())
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for place, text in enumerate(request["texts"][request["first"] :], request["first"]):
        reason = ""
        try:
            graph = tvm.ir.load_json(text)
            tvm_ffi.structural_hash(graph)
            tvm.tirx.analysis.verify_well_formed(graph)
        except Exception as error:  # whatever TVM's reader raises
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = lines[-1] if lines else type(error).__name__
        sys.stdout.write(json.dumps([place, reason]) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
