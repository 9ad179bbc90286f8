"""adt's target names, translated to TVM's target dictionaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adt.config.load import did_you_mean
from adt.errors import ConfigError
from adt.target.platforms import Platform

TARGETS = ("cpu",)


@dataclass(frozen=True)
class ModelTarget:
    """What a model is compiled for."""

    name: str
    """adt's name."""
    device: str
    """Device of the entry's tensors: ``cpu``."""
    spec: dict[str, Any]
    """TVM's dictionary."""
    vdevices: tuple[str, ...]
    """Device of each of the VM's virtual devices."""


def model_target(
    name: str, platform: Platform, api_level: int, extra_features: tuple[str, ...] = ()
) -> ModelTarget:
    """The target *name* on *platform*.

    Args:
        extra_features: LLVM features that the CPU has on top of the platform's (``+dotprod``).

    Raises:
        ConfigError: there is no such target.
    """
    if name not in TARGETS:
        raise ConfigError(
            f"unknown target {name!r}.{did_you_mean(name, TARGETS)}",
            remedy=f"Choose one of: {', '.join(TARGETS)}.",
        )
    spec: dict[str, Any] = {"kind": "llvm", "mtriple": platform.llvm_triple(api_level)}
    if features := (*platform.cpu_features, *extra_features):
        spec["mattr"] = list(features)
    if platform.float_abi:
        spec["mfloat-abi"] = platform.float_abi
    return ModelTarget(name, "cpu", spec, ("cpu",))
