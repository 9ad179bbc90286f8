"""Which tuning it is: the same command goes on where it stopped, another one begins anew."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from adt.options.sections import Settings, TuneSettings

KERNELS = ("shapes", "opt_level", "precision", "keep_float32", "offload", "texture_choice")
"""Settings of [compile] that decide which kernels a model has; the target comes in by its key."""
SEARCH = ("per_task", "tuner", "cost_model", "seed", "number", "repeat", "min_repeat_ms")
"""Settings of [tune] that decide what is proposed, and how it is measured. The number of trials is none of
them: with more the same tuning goes on."""


def run_id(model_sha256: str, settings: Settings, target: str, tvm: str) -> str:
    """The digest (32 hex digits) of what makes a tuning the same one, whichever devices measure.

    Args:
        model_sha256: of the model's file (:func:`adt.model.store.model_sha256`).
        target: :func:`adt.model.tuning.key.target_key`.
        tvm: TVM's version, three numbers.
    """
    facts = {
        "model": model_sha256,
        "target": target,
        "tvm": tvm,
        "compile": {name: getattr(settings.compile, name) for name in KERNELS},
        "tune": search_facts(settings.tune),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def search_facts(settings: TuneSettings) -> dict[str, Any]:
    """The part of [tune] that decides what is proposed, and how it is measured."""
    return {name: getattr(settings, name) for name in SEARCH}
