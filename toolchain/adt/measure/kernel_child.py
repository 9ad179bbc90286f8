"""Run a package's kernels in a process of its own: ``python -m adt.measure.kernel_child PLAIN.json.gz``.

The other side is :class:`adt.measure.kernel_process.KernelProcess`.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from adt.host.child import serve
from adt.measure.host_kernels import HostKernels, NotComputable
from adt.model.inspection.reference_kernels import read_plain


def main() -> None:
    """Answer until there is no further request."""
    kernels = HostKernels(read_plain(Path(sys.argv[1]).read_bytes()))

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        name, writes, arguments = request["name"], request["writes"], request["arguments"]
        try:
            if arguments is None:
                return {"result": asdict(kernels.plain(name, writes))}
            return {"result": kernels.run(name, arguments, writes)}
        except NotComputable as reason:
            return {"not computable": str(reason)}

    serve(answer)


if __name__ == "__main__":
    main()
