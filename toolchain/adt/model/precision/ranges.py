"""Which values of a model half precision cannot hold, and which operators touch them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from adt.model.package.manifest import TensorSpec
from adt.model.precision.accuracy_report import Overflow
from adt.model.precision.policy import LARGEST, operator_name
from adt.model.targets.llvm import host_target

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]


def overflows(
    module: Any,
    params: Mapping[str, Any],
    inputs: Sequence[TensorSpec],
    samples: Sequence[Mapping[str, Array]],
) -> tuple[Overflow, ...]:
    """The float32 values in *module*'s entry that pass 65504 on *samples*, in order of execution.

    None are found in an entry with control flow.
    """
    import numpy as np
    import tvm
    from tvm import relax

    if not all(isinstance(block, relax.DataflowBlock) for block in module["main"].body.blocks):
        return ()
    probed, names = _probed(module)
    machine = relax.VirtualMachine(tvm.compile(probed, host_target()), tvm.cpu())
    largest = dict.fromkeys(names, 0.0)
    for sample in samples:
        arrays = [tvm.runtime.tensor(sample[spec.name]) for spec in inputs]
        for name, peak in zip(names, machine["main"](*arrays, *params.values()), strict=True):
            seen = float(np.nan_to_num(peak.numpy(), nan=0.0, posinf=0.0))  # float32's own are another matter
            largest[name] = max(largest[name], seen)
    return tuple(
        Overflow(name, names[name], float(f"{peak:.3g}")) for name, peak in largest.items() if peak > LARGEST
    )


def to_keep(reduced: Any, found: Sequence[Overflow]) -> list[str]:
    """The Relax variables whose operators must stay float32 for none of the values to be half.

    They are those that give an overflowing value and those that read one, as far as they compute
    in half precision in the module *reduced*.
    """
    from tvm import relax

    main = reduced["main"]
    bindings = [binding for block in main.body.blocks for binding in block.bindings]
    names = {item.name for item in found}
    casts = {b.var: b.value.args[0] for b in bindings if operator_name(b.value) == "astype"}
    kept = []
    for binding in bindings:
        op, name = operator_name(binding.value), str(binding.var.name_hint)
        if not op or binding.var in casts:
            continue
        read = {casts.get(var, var) for var in relax.analysis.free_vars(binding.value)}
        half = any(_dtype(var) == "float16" for var in relax.analysis.free_vars(binding.value))
        half = half or _dtype(binding.var) == "float16"
        if half and (name in names or any(str(var.name_hint) in names for var in read)):
            kept.append(name)
    return kept


def _dtype(var: Any) -> str:
    return str(getattr(var.struct_info, "dtype", ""))


def _probed(module: Any) -> tuple[Any, dict[str, str]]:
    """*module* with the largest magnitude of every float32 value as its outputs, and whose they are.

    The second of the two maps each value's name to the operator that gives it.
    """
    import tvm
    from tvm import relax

    main = module["main"]
    count = int(main.attrs["num_input"]) if main.attrs and "num_input" in main.attrs else len(main.params)
    values = {str(var.name_hint): (var, "input") for var in list(main.params)[:count]}
    bindings = [binding for block in main.body.blocks for binding in block.bindings]
    values |= {str(b.var.name_hint): (b.var, operator_name(b.value)) for b in bindings}
    others = {gv: func for gv, func in module.functions.items() if gv.name_hint != "main"}
    builder = relax.BlockBuilder(tvm.IRModule(others, module.attrs, global_infos=module.global_infos))
    builder.begin_scope(list(main.params))
    builder._begin_dataflow_block()
    for binding in bindings:
        builder.emit_normalized(binding)
    names, peaks = {}, []
    for name, (var, op) in values.items():
        if op and _dtype(var) == "float32" and var.struct_info.ndim > 0:
            peaks.append(builder.emit(relax.op.max(relax.op.abs(var))))
            names[name] = op
    result = builder.emit_output(relax.Tuple(peaks))
    body = builder.normalize(relax.SeqExpr([builder._end_block()], result))
    builder.end_scope()
    function = relax.Function(list(main.params), body, result.struct_info, main.is_pure, main.attrs)
    builder.add_func(function, "main")
    return builder.get(), names
