"""Processors of x86-64 whose code the tests run on this machine, by the width of their vectors."""

from pathlib import Path

HERE = frozenset(Path("/proc/cpuinfo").read_text().split())
PROCESSORS = {"nehalem": "sse4_2", "haswell": "avx2", "skylake-avx512": "avx512bw"}
"""Core, narrowest vectors first, to the feature that a machine needs to run its code."""


def runnable(cpu: str) -> str:
    """Return *cpu*, or the core with the widest vectors that this machine has, if it lacks those of *cpu*."""
    cores = [core for core, feature in PROCESSORS.items() if feature in HERE]
    assert cores, "these tests run on x86-64"
    return cores[-1] if cpu in PROCESSORS and cpu not in cores else cpu
