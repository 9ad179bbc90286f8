"""adt's target names, translated to TVM's target dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adt.config.load import did_you_mean
from adt.errors import ConfigError
from adt.target.platforms import Platform

TARGETS = ("cpu", "opencl")


@dataclass(frozen=True)
class ModelTarget:
    """What a model is compiled for."""

    name: str
    """adt's name."""
    device: str
    """Device of the entry's tensors: ``cpu`` or ``opencl``."""
    spec: dict[str, Any]
    """TVM's dictionary."""
    vdevices: tuple[str, ...]
    """Device of each of the VM's virtual devices."""


def model_target(
    name: str,
    platform: Platform,
    api_level: int,
    extra_features: tuple[str, ...] = (),
    opencl_limits: Mapping[str, int] | None = None,
) -> ModelTarget:
    """The target *name* on *platform*.

    Args:
        extra_features: LLVM features that the CPU has on top of the platform's (``+dotprod``).
        opencl_limits: a certain device's, as attributes of TVM's opencl target; None: TVM's defaults.

    Raises:
        ConfigError: there is no such target.
    """
    if name not in TARGETS:
        raise ConfigError(
            f"unknown target {name!r}.{did_you_mean(name, TARGETS)}",
            remedy=f"Choose one of: {', '.join(TARGETS)}.",
        )
    host: dict[str, Any] = {"kind": "llvm", "mtriple": platform.llvm_triple(api_level)}
    if features := (*platform.cpu_features, *extra_features):
        host["mattr"] = list(features)
    if platform.float_abi:
        host["mfloat-abi"] = platform.float_abi
    if name == "cpu":
        return ModelTarget(name, "cpu", host, ("cpu",))
    return ModelTarget(name, "opencl", {"kind": "opencl", "host": host, **(opencl_limits or {})}, ("opencl",))
