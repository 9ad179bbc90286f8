"""Features of processors in Linux's /proc/cpuinfo."""

from __future__ import annotations

import platform
import re
from pathlib import Path


def common_features(cpuinfo: str, machine: str) -> frozenset[str]:
    """Return the features that all CPUs of /proc/cpuinfo have, in the kernel's names (``asimddp``, ``avx2``).

    An emulated *machine* (``uname -m``) may show the lines of the one that emulates it.
    """
    key = "flags" if machine.endswith("86") or machine == "x86_64" else "Features"
    rows = re.findall(rf"^{key}\s*:(.*)$", cpuinfo, re.MULTILINE)
    features = [frozenset(row.split()) for row in rows]
    return frozenset.intersection(*features) if features else frozenset()


def own_features() -> frozenset[str]:
    """Return the features of every CPU of this machine."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    return common_features(text, platform.machine())
