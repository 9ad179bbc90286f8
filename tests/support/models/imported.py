"""Run what an importer made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from adt.compiler.importers.imported_model import ImportedModel
from support.models.blocked import PLAIN


def run_imported(
    imported: ImportedModel, inputs: Mapping[str, Any], tir_pipeline: str = "default"
) -> dict[str, Any]:
    """Compile an imported model for this machine's CPU and run it in TVM's virtual machine."""
    import tvm

    built = tvm.compile(imported.module, tvm.target.Target(PLAIN), tir_pipeline=tir_pipeline)
    machine = tvm.relax.VirtualMachine(built, tvm.cpu())
    given = [tvm.runtime.tensor(np.asarray(inputs[spec.name])) for spec in imported.inputs]
    out = machine["main"](*given, *imported.params.values())
    values = [out] if isinstance(out, tvm.runtime.Tensor) else list(out)
    return {spec.name: value.numpy() for spec, value in zip(imported.outputs, values, strict=True)}
