"""Import a PyTorch program."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from adt.compiler.importers.constants import lift_weights
from adt.compiler.importers.frameworks import framework_errors
from adt.compiler.importers.imported_model import ImportedModel, detached, imported_model
from adt.compiler.importers.layers import check_layers
from adt.compiler.importers.op_table import (
    BATCH,
    NO_CONVERTER,
    RANDOM,
    TRAINING,
    OpRow,
    op_rows,
    refusal,
    refusal_notes,
)
from adt.compiler.importers.shapes import DeclaredShape, RequestedShapes, Shape, fixed_shapes
from adt.compiler.importers.torch_converters import CONVERTERS, arguments_of, checked_converters
from adt.compiler.importers.torch_layers import kinds_of, layers_of
from adt.compiler.importers.torch_program import load_program, program_inputs, program_outputs
from adt.errors import UnsupportedOp
from adt.host.extras import load
from adt.package.manifest import SourceModel, TensorSpec

PRODUCTS = (
    "addmm.default", "baddbmm.default", "bmm.default", "convolution.default", "conv1d.default",
    "conv2d.default", "conv3d.default", "conv_transpose1d.default", "conv_transpose2d.input",
    "linear.default", "matmul.default", "mm.default",
)  # fmt: skip
"""Operators that sum in float32 where they give half precision."""
PROMOTED = ("cat.default", "cumprod.default", "cumsum.default", "prod.default", "prod.dim_int")
"""Operators that promote their operands' types, besides those of elements."""


def import_torch(
    path: Path, shapes: RequestedShapes, source: SourceModel, *, check: bool = False
) -> ImportedModel:
    """Import a program that ``torch.export.save`` wrote."""
    program = load_program(path)
    specs = program_inputs(program)
    output_names = program_outputs(program)
    declared: dict[str, DeclaredShape] = {spec.name: spec.shape for spec in specs}
    fixed = fixed_shapes(declared, shapes)
    if fixed != declared:
        program = _static(program, *_zeros(program, [(fixed[spec.name], spec.dtype) for spec in specs]))
    program = _decomposed(program)
    names = [spec.name for spec in program_inputs(program)]  # a placeholder's may be another now
    rows = _op_table(program)
    if reason := refusal(rows):
        raise UnsupportedOp(
            f"{source.file} uses operators that cannot be imported: {reason}",
            remedy="Rewrite the model without them, or import its ONNX form (torch.onnx.export).",
        )
    module = lift_weights(_to_relax(program, source.file))
    find, give = partial(kinds_of, program), partial(layers_of, program)
    suspects = check_layers("torch", find, give, _convert) if check else ()
    return imported_model(
        module,
        inputs={
            name: TensorSpec(spec.name, fixed[spec.name], spec.dtype)
            for name, spec in zip(names, specs, strict=True)
        },
        output_names=output_names,
        source=source,
        file=path,
        ops=rows,
        suspects=suspects,
    )


def _convert(single: Any) -> tuple[Any, Sequence[Any]]:
    return detached(lift_weights(_to_relax(single, "one operator")))


def explain_torch(path: Path) -> tuple[OpRow, ...]:
    """Return the table of the core ATen operators that a program decomposes into."""
    program = load_program(path)
    is_open = any(isinstance(extent, str) for spec in program_inputs(program) for extent in spec.shape)
    if is_open and program.example_inputs is not None:
        program = _static(program, *program.example_inputs)
    return _op_table(_decomposed(program))


def _decomposed(program: Any) -> Any:
    """Return *program* in core ATen operators, with operands of the types that PyTorch computes in."""
    torch = load("torch", "torch", "reading a .pt2 file")
    wrong = [torch.ops.aten._adaptive_avg_pool2d, torch.ops.aten.index_add]  # TVM's windows, races
    table = torch.export.default_decompositions()
    table.update(torch._decomp.get_decompositions(wrong))
    remedy = "Export it with fixed shapes, or import its ONNX form (torch.onnx.export)."
    with framework_errors("torch cannot decompose the program", remedy):
        return _promoted(program.run_decompositions(table))


def _promoted(program: Any) -> Any:
    """Write out what TVM leaves out: casts to the type to compute in, factors, powers of integers."""
    torch = load("torch", "torch", "reading a .pt2 file")
    aten, graph = torch.ops.aten, program.graph
    for node in list(graph.nodes):
        name, tags = getattr(node.target, "__name__", ""), getattr(node.target, "tags", ())
        if name.startswith("max_pool") and node.args[2:3] == ([],):  # strides are the window's extents
            node.update_arg(2, node.args[1])
        if name not in (*PROMOTED, *PRODUCTS) and torch.Tag.pointwise not in tags:
            continue
        of_result = dtype = node.meta["val"].dtype
        operands = [each for each in node.all_input_nodes if (name, each) != ("where.self", node.args[0])]
        if dtype == torch.bool and len(node.args) == 2 and not name.startswith("logical_"):  # a comparison
            dtype = torch.result_type(*(getattr(arg, "meta", {}).get("val", arg) for arg in node.args))
        if name.startswith("pow.") and not dtype.is_floating_point:
            dtype = torch.float64
        if name in PRODUCTS and dtype.is_floating_point:
            dtype = torch.promote_types(dtype, torch.float32)
        with graph.inserting_before(node):
            for operand in operands:
                value = operand.meta["val"]
                if value.dtype != dtype and value.is_floating_point() <= dtype.is_floating_point:
                    cast = graph.call_function(aten._to_copy.default, (operand,), {"dtype": dtype})
                    cast.meta["val"] = value.to(dtype)
                    node.replace_input_with(operand, cast)
            if node.kwargs.get("alpha", 1) != 1 and name not in PRODUCTS:
                factor, alpha = node.args[1], node.kwargs["alpha"]
                if isinstance(factor, torch.fx.Node):
                    product = graph.call_function(aten.mul.Tensor, (factor, alpha))
                    product.meta["val"] = factor.meta["val"] * alpha
                else:
                    product = factor * alpha
                node.kwargs = {}
                node.update_arg(1, product)
            if name == "div.Tensor_mode" and not isinstance(node.args[1], torch.fx.Node):
                number = graph.call_function(aten.full.default, ([], node.args[1]), {"dtype": dtype})
                number.meta["val"] = torch.full([], node.args[1], dtype=dtype)
                node.update_arg(1, number)
        if dtype != of_result and (name in PRODUCTS or name.startswith("pow.")):
            with graph.inserting_after(node):
                back = graph.call_function(aten._to_copy.default, (node,), {"dtype": of_result})
            back.meta["val"], node.meta["val"] = node.meta["val"], node.meta["val"].to(dtype)
            node.replace_all_uses_with(back, delete_user_cb=lambda user, back=back: user is not back)
    return program


def _zeros(program: Any, inputs: Sequence[tuple[Shape, str]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments for *program* of these shapes and element types, by position and by name."""
    torch = load("torch", "torch", "reading a .pt2 file")
    zeros = [torch.zeros(shape, dtype=getattr(torch, dtype)) for shape, dtype in inputs]
    positional, named = torch.utils._pytree.tree_unflatten(zeros, program.call_spec.in_spec)
    return positional, named


def _static(program: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Export *program* again, for the shapes of these arguments: torch decomposes no derived dimensions."""
    torch = load("torch", "torch", "reading a .pt2 file")
    remedy = "Give others with --shape, or export it with these inputs."
    with framework_errors("the program does not take such shapes", remedy):
        return torch.export.export(program.module(), positional, named)


def _op_table(program: Any) -> tuple[OpRow, ...]:
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter  # needs torch

    known = ExportedProgramImporter().create_convert_map().keys() | CONVERTERS.keys() | {"getitem"}
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    ops = [node.target.__name__ for node in calls if node.target.__name__ != "getitem"]
    reasons = (
        (node, _refused(node) or ("" if node.target.__name__ in known else NO_CONVERTER)) for node in calls
    )
    missing = [(node.target.__name__, node.name, reason) for node, reason in reasons if reason]
    return op_rows(ops, {}, refusal_notes(missing), {})


def _refused(node: Any) -> str:
    """Return why *node* is refused: it normalizes by a batch's statistics, or is random; else empty.

    TVM takes fixed statistics, draws the numbers of some operators once, at import, and converts dropouts to
    nothing.
    """
    torch = load("torch", "torch", "reading a .pt2 file")
    is_norm = node.target.__name__.startswith("_native_batch_norm_legit_functional")
    if is_norm and arguments_of(node)["training"]:
        return BATCH
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return ""
    given = arguments_of(node)
    drops = [given[name] for name in ("dropout", "dropout_p", "p", "train", "training") if name in given]
    return "" if 0 in drops else TRAINING if drops else RANDOM  # False is 0


def _to_relax(program: Any, name: str) -> Any:
    from tvm.relax.frontend.torch import from_exported_program  # needs torch
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    remedy = "Rewrite the model without what it names, or import its ONNX form (torch.onnx.export)."
    with framework_errors(f"TVM's PyTorch importer failed on {name}", remedy):
        return from_exported_program(
            program,
            keep_params_as_input=True,
            unwrap_unit_return_tuple=True,
            run_ep_decomposition=False,
            custom_convert_map=checked_converters(ExportedProgramImporter().create_convert_map()),
        )
