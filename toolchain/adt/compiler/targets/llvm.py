"""Cores and features that the LLVM in the TVM wheel knows, and this machine's processor."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from adt.bundle.platforms import PLATFORMS


def _target(triple: str, core: str = "", features: tuple[str, ...] = ()) -> Any:
    import tvm

    facts = {"mtriple": triple, "mcpu": core, "mattr": list(features)}
    return tvm.target.Target({"kind": "llvm"} | {name: value for name, value in facts.items() if value})


@functools.cache
def cores(triple: str) -> frozenset[str]:
    """Return the cores that code for *triple* can be generated for, as LLVM names them."""
    from tvm.target import codegen

    return frozenset(str(name) for name in codegen.llvm_get_cpu_archlist(_target(triple)))


@functools.cache
def core_features(triple: str, core: str, features: tuple[str, ...] = ()) -> frozenset[str]:
    """Return the features of *core*, with *features* (``+name``, ``-name``) added and removed."""
    from tvm.target import codegen

    return frozenset(str(name) for name in codegen.llvm_get_cpu_features(_target(triple, core, features)))


@functools.cache
def features(triple: str) -> frozenset[str]:
    """Return every feature that some core of *triple* has; LLVM has no list of them all."""
    return frozenset().union(*(core_features(triple, core) for core in cores(triple)))


def native() -> tuple[str, Mapping[str, bool]]:
    """Return this machine's core, and for each feature that LLVM knows to ask for, True if it is there."""
    import tvm
    from tvm.target import codegen

    features = tvm.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")() or {}
    offers = {str(name): bool(present) for name, present in features.items()}
    return str(codegen.llvm_get_system_cpu()), offers


def host_target() -> Any:
    """Return TVM's target for this CPU: as portable as numbers need it, with conversions from half."""
    import tvm

    spec: dict[str, Any] = {"kind": "llvm"}
    if PLATFORMS["host"].machine == "X86_64":
        has = native()[1]
        # No FMA: it rounds once where others round twice, and the report would depend on the machine.
        features = [f"+{name}" for name in ("avx2", "f16c") if has.get(name)]
        if features:
            spec["mattr"] = features
    return tvm.target.Target(spec)
