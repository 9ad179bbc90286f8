"""Run what an importer made."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from adt.compiler.importers.imported_model import ImportedModel
from support.models.blocked import PLAIN


def compiled(
    imported: ImportedModel, tir_pipeline: str = "default"
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Compile an imported model for this machine's CPU; what is returned runs it in TVM's virtual machine."""
    import tvm

    built = tvm.compile(imported.module, tvm.target.Target(PLAIN), tir_pipeline=tir_pipeline)
    machine = tvm.relax.VirtualMachine(built, tvm.cpu())

    def run(inputs: Mapping[str, Any]) -> dict[str, Any]:
        arguments = [tvm.runtime.tensor(np.asarray(inputs[spec.name])) for spec in imported.inputs]
        out = machine["main"](*arguments, *imported.params.values())
        values = [out] if isinstance(out, tvm.runtime.Tensor) else list(out)
        return {spec.name: value.numpy() for spec, value in zip(imported.outputs, values, strict=True)}

    return run


def run_imported(imported: ImportedModel, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return compiled(imported)(inputs)
