"""Run a package's kernels in a process of its own: ``python -m adt.measure.kernel_child PLAIN.json.gz``.

The other side is :class:`adt.measure.kernel_process.KernelProcess`. A request is a line of JSON and
arrays as .npy; so is an answer. Nothing of either can be code.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path

from adt.measure.host_kernels import HostKernels, NotComputable
from adt.measure.kernel_process import receive, send
from adt.model.inspection.plain import read_plain


def main() -> int:
    """Answer until there is no further request."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what TVM prints is no answer
    kernels = HostKernels(read_plain(Path(sys.argv[1]).read_bytes()))
    while (request := receive(sys.stdin.buffer)) is not None:
        (asked, arguments) = request
        name, writes = asked["name"], asked["writes"]
        try:
            if asked["run"]:
                send(answers, {}, kernels.run(name, arguments, writes))
            else:
                send(answers, asdict(kernels.plain(name, writes)))
        except NotComputable as reason:
            send(answers, {"not computable": str(reason)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
