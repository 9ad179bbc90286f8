"""A PyTorch program, without TVM: one in a ``.pt2`` file, or what a Python callable returns.

The callable, ``module:function``, takes no arguments and returns either a ``torch.export.ExportedProgram``,
or ``(module, example_inputs)``: an ``nn.Module`` and the tuple of tensors to call it with. It is looked up as
``python -m`` looks up modules: in the current directory first.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adt.compiler.importers.frameworks import framework_errors, quiet
from adt.compiler.importers.shapes import distinct_names
from adt.errors import AdtError, ModelError, last_line
from adt.host.disk import scratch_directory
from adt.host.extras import load
from adt.package.manifest import TensorSpec

CONTRACT = (
    "It takes no arguments and returns (module, example_inputs): an nn.Module and a tuple of tensors,"
    " or a torch.export.ExportedProgram."
)


def load_program(path: Path) -> Any:
    """Return the ``ExportedProgram`` in a file."""
    torch = load("torch", "torch", "reading a .pt2 file")
    remedy = "Write it with torch.export.save(torch.export.export(model, inputs), 'model.pt2'),"
    remedy += f" with the torch that reads it here ({torch.__version__})."
    with framework_errors(f"{path} cannot be read as an exported PyTorch program", remedy):
        return torch.export.load(str(path))


def program_inputs(program: Any) -> tuple[TensorSpec, ...]:
    """Return the inputs that a caller gives, in order; open dimensions are strings."""
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
    """Return the names of what the program returns, in order, each of its own."""
    return distinct_names(map(str, program.graph_signature.user_outputs))


@contextlib.contextmanager
def exported_by(text: str) -> Iterator[Path]:
    """Return the program that the callable ``module:function`` makes, in a temporary ``.pt2`` file."""
    torch = load("torch", "torch", "importing a Python callable")
    program = _call(text)
    if not isinstance(program, torch.export.ExportedProgram):
        if not (isinstance(program, tuple) and len(program) == 2 and isinstance(program[0], torch.nn.Module)):
            raise ModelError(f"{text} returned {type(program).__name__}, not a model", remedy=CONTRACT)
        model, example = program
        inputs = tuple(example) if isinstance(example, (tuple, list)) else (example,)
        try:
            with quiet():
                program = torch.export.export(model.eval(), inputs)
        except Exception as error:  # torch raises many kinds while it traces
            raise ModelError(
                f"torch cannot export what {text} returns: {type(error).__name__}",
                remedy="See torch.export's documents for what a program may contain.",
                details="\n".join(str(error).splitlines()[:10]),
            ) from error
    with scratch_directory("export") as directory:
        path = directory / f"{text.rpartition(':')[2]}.pt2"
        with quiet():
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
            f"{text} cannot be imported: {error}", remedy=f"Run adt where {name}.py is, or set PYTHONPATH."
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
