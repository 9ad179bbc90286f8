"""Targets of compilation: target names, processors, and TVM's own spellings of both."""

from __future__ import annotations

from adt.compiler.targets.parser import NAMES
from adt.compiler.targets.target import ModelTarget, model_target, settings_and_platform

__all__ = ["NAMES", "ModelTarget", "model_target", "settings_and_platform"]
