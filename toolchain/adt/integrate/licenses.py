"""The licences and notices that an app passes on with a bundle's libraries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from adt.target.bundle import TargetBundle


def licenses(bundles: Sequence[TargetBundle]) -> dict[str, Path]:
    """Each text by its place below ``assets/adt/`` (``licenses/tvm/NOTICE``), once for all ABIs."""
    return {name: bundle.file(name) for bundle in bundles for name in sorted(bundle.manifest.licenses)}
