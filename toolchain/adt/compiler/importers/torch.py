"""Import a PyTorch program: a ``.pt2`` file, or what a Python callable returns.

The callable, ``module:function``, takes no arguments and returns either a
``torch.export.ExportedProgram``, or ``(module, example_inputs)``: an ``nn.Module`` and
the tuple of tensors to call it with. It is looked up as ``python -m`` looks up modules:
in the current directory first.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from adt.compiler.importers.constants import lift_weights
from adt.compiler.importers.imported_model import ImportedModel, distinct_names, imported_model
from adt.compiler.importers.op_table import OpRow, named_nodes, op_rows, refusal
from adt.compiler.importers.shapes import DeclaredShape, RequestedShapes, Shape, fixed_shapes
from adt.compiler.importers.torch_converters import CONVERTERS
from adt.errors import AdtError, ModelError, UnsupportedOp, last_line
from adt.host.disk import scratch_directory
from adt.host.extras import load
from adt.package.manifest import SourceModel, TensorSpec

CONTRACT = (
    "It takes no arguments and returns (module, example_inputs): an nn.Module and a tuple of tensors,"
    " or a torch.export.ExportedProgram."
)


def import_torch(path: Path, shapes: RequestedShapes, source: SourceModel) -> ImportedModel:
    """Import a program that ``torch.export.save`` wrote.

    Raises:
        ModelError: the file is damaged, a shape is wrong, or TVM's importer failed.
        UnsupportedOp: there is no converter for an operator.
        ToolNotFound: the extra is missing.
    """
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
    return imported_model(
        lift_weights(_to_relax(program, source.file)),
        inputs={
            name: TensorSpec(spec.name, fixed[spec.name], spec.dtype)
            for name, spec in zip(names, specs, strict=True)
        },
        output_names=output_names,
        source=source,
        file=path,
        ops=rows,
    )


def explain_torch(path: Path) -> tuple[OpRow, ...]:
    """Return the table of the core ATen operators that a program decomposes into.

    Raises:
        ModelError: the file is damaged.
        ToolNotFound: the extra is missing.
    """
    program = load_program(path)
    is_open = any(isinstance(extent, str) for spec in program_inputs(program) for extent in spec.shape)
    if is_open and program.example_inputs is not None:
        program = _static(program, *program.example_inputs)
    return _op_table(_decomposed(program))


def _decomposed(program: Any) -> Any:
    """Return *program* in core ATen operators.

    Raises:
        ModelError: torch cannot do that.
    """
    try:
        with _quiet():
            return program.run_decompositions()
    except Exception as error:  # torch raises many kinds while it traces
        raise ModelError(
            f"torch cannot decompose the program: {type(error).__name__}: {last_line(error)}",
            remedy="Export it with fixed shapes, or import its ONNX form (torch.onnx.export).",
        ) from error


def _zeros(program: Any, inputs: Sequence[tuple[Shape, str]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments for *program* of these shapes and element types, by position and by name."""
    torch = load("torch", "torch", "reading a .pt2 file")
    zeros = [torch.zeros(shape, dtype=getattr(torch, dtype)) for shape, dtype in inputs]
    positional, named = torch.utils._pytree.tree_unflatten(zeros, program.call_spec.in_spec)
    return positional, named


def _static(program: Any, positional: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Export *program* again, for the shapes of these arguments: torch decomposes no derived dimensions.

    Raises:
        ModelError: the program does not take them.
    """
    torch = load("torch", "torch", "reading a .pt2 file")
    try:
        with _quiet():
            return torch.export.export(program.module(), positional, named)
    except Exception as error:  # its guards, and whatever torch raises while it traces
        raise ModelError(
            f"the program does not take such shapes: {last_line(error)}",
            remedy="Give others with --shape, or export it with these inputs.",
        ) from error


def load_program(path: Path) -> Any:
    """The ``ExportedProgram`` in a file.

    Raises:
        ModelError: it is damaged, or of a version that this torch does not read.
        ToolNotFound: the extra is missing.
    """
    torch = load("torch", "torch", "reading a .pt2 file")
    try:
        with _quiet():
            return torch.export.load(str(path))
    except Exception as error:  # zip, JSON and torch's own errors
        raise ModelError(
            f"{path} cannot be read as an exported PyTorch program",
            remedy="Write it with torch.export.save(torch.export.export(model, inputs), 'model.pt2'),"
            f" with the torch that reads it here ({torch.__version__}).",
            details=last_line(error),
        ) from error


def program_inputs(program: Any) -> tuple[TensorSpec, ...]:
    """The inputs that a caller gives, in order; open dimensions are strings.

    Raises:
        ModelError: an input is no tensor.
    """
    names = set(program.graph_signature.user_inputs)
    specs = []
    for node in program.graph.nodes:
        if node.op != "placeholder" or node.name not in names:
            continue
        value = node.meta["val"]
        if not hasattr(value, "shape"):
            raise ModelError(
                f"input {node.name!r} of the program is a {type(value).__name__}, not a tensor",
                remedy="Export a wrapper module whose inputs are tensors only.",
            )
        shape = tuple(extent if isinstance(extent, int) else str(extent) for extent in value.shape)
        specs.append(TensorSpec(node.name, shape, str(value.dtype).removeprefix("torch.")))
    return tuple(specs)


def program_outputs(program: Any) -> list[str]:
    """Names of what the program returns, in order, each of its own."""
    return distinct_names(map(str, program.graph_signature.user_outputs))


@contextlib.contextmanager
def exported_by(text: str) -> Iterator[Path]:
    """The program that the callable ``module:function`` makes, in a temporary ``.pt2`` file.

    Raises:
        ModelError: there is no such callable, it fails, or torch cannot export what it returns.
        ToolNotFound: the extra is missing.
    """
    torch = load("torch", "torch", "importing a Python callable")
    program = _call(text)
    if not isinstance(program, torch.export.ExportedProgram):
        if not (isinstance(program, tuple) and len(program) == 2 and isinstance(program[0], torch.nn.Module)):
            raise ModelError(f"{text} returned {type(program).__name__}, not a model", remedy=CONTRACT)
        model, example = program
        inputs = tuple(example) if isinstance(example, (tuple, list)) else (example,)
        try:
            with _quiet():
                program = torch.export.export(model.eval(), inputs)
        except Exception as error:  # torch raises many kinds while it traces
            raise ModelError(
                f"torch cannot export what {text} returns: {type(error).__name__}",
                remedy="See torch.export's documents for what a program may contain.",
                details="\n".join(str(error).splitlines()[:10]),
            ) from error
    with scratch_directory("export") as directory:
        path = directory / f"{text.rpartition(':')[2]}.pt2"
        with _quiet():
            torch.export.save(program, str(path))
        yield path


def _call(text: str) -> Any:
    """Call ``module:function``."""
    name, _, function = text.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        called = getattr(importlib.import_module(name), function, None)
        if callable(called):
            return called()
    except ImportError as error:
        raise ModelError(
            f"{text} cannot be imported: {error}",
            remedy=f"Run adt where {name}.py is, or set PYTHONPATH.",
        ) from error
    except AdtError:
        raise
    except Exception as error:  # the user's own code
        raise ModelError(
            f"{text} failed: {type(error).__name__}: {last_line(error)}",
            remedy="Mend it; it can be called alone in Python.",
        ) from error
    finally:
        sys.path.remove(here)
    raise ModelError(f"the module {name} has no function {function!r}", remedy=CONTRACT)


def _op_table(program: Any) -> tuple[OpRow, ...]:
    from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

    known = ExportedProgramImporter().create_convert_map().keys() | CONVERTERS.keys()
    names: dict[str, list[str]] = {}
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target.__name__ != "getitem":
            names.setdefault(node.target.__name__, []).append(node.name)
    missing = {
        op: f"no converter in this TVM; {named_nodes(nodes)}"
        for op, nodes in names.items()
        if op not in known
    }
    return op_rows([op for op, nodes in names.items() for _ in nodes], {}, missing, {})


def _to_relax(program: Any, name: str) -> Any:
    from tvm.relax.frontend.torch import from_exported_program

    try:
        with _quiet():
            return from_exported_program(
                program,
                keep_params_as_input=True,
                unwrap_unit_return_tuple=True,
                run_ep_decomposition=False,
                custom_convert_map=dict(CONVERTERS),
            )
    except AdtError:
        raise
    except Exception as error:  # the importer asserts and raises plain Python errors
        raise ModelError(
            f"TVM's PyTorch importer failed on {name}: {type(error).__name__}: {last_line(error)}",
            remedy="Rewrite the model without what it names, or import its ONNX form (torch.onnx.export).",
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's warnings about its own internals."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
