"""Operators of PyTorch by sample and element type: right, or refused by name.

Samples are those of torch's own tests (``op_db``), each exported by itself. One process for each operator::

    PYTHONPATH=tests python -m support.models.aten_sweep [NAME…] [--jobs 2] [--tenth N]
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

RIGHT, REFUSED, WRONG, FAILED = "right", "refused", "wrong", "failed"
DTYPES = ("float32", "int64", "int32", "bool", "float16")
SAMPLES = 8
"""Samples of each operator and type at most, spread over all."""
SECONDS = 240.0
"""Time limit of an operator."""


def operators() -> dict[str, Any]:
    """Return torch's description of each operator, by name."""
    from torch.testing._internal.common_methods_invocations import op_db

    return {f"{op.name}.{op.variant_test_name}".rstrip("."): op for op in op_db}


def names_of(tenth: int | None = None) -> list[str]:
    """Return the names of a tenth of the operators, or of all."""
    return [name for name in operators() if tenth in (None, zlib.crc32(name.encode()) % 10)]


def cells(op: Any) -> Iterator[tuple[str, Any]]:
    """Yield type, number and sample of *op*."""
    import torch

    for kind in DTYPES:
        dtype = getattr(torch, kind)
        if dtype not in op.dtypes:
            continue
        torch.manual_seed(0)
        samples = list(op.sample_inputs("cpu", dtype, requires_grad=False))
        step = max(1, -(-len(samples) // SAMPLES))
        for number in range(0, len(samples), step):
            yield f"{kind}-{number}", samples[number]


def outcome(op: Any, sample: Any) -> tuple[str, str] | None:
    """Return status and reason of a sample; None if torch has nothing to compare with."""
    import torch
    from torch.utils import _pytree as pytree

    leaves, structure = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    tensors = [leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not tensors or not all(map(_is_comparable, tensors)):
        return None
    inputs = [tensor.contiguous() for tensor in tensors]

    class Called(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            rest = iter(tensors)
            full = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
            first, args, kwargs = pytree.tree_unflatten(full, structure)
            result = op.op(first, *args, **kwargs)
            return tuple(result) if isinstance(result, tuple) else result  # torch.return_types have no file

    try:
        results = Called()(*[t.clone() for t in inputs])
        parts = [results] if isinstance(results, torch.Tensor) else list(results)
        if not all(isinstance(part, torch.Tensor) and _is_comparable(part) for part in parts):
            return None
        expected = [part.detach().clone() for part in parts]
        program = torch.export.export(Called(), tuple(inputs))
    except Exception:
        return None
    return _compared(program, inputs, expected)


def _is_comparable(tensor: Any) -> bool:
    """True if *tensor* has elements that lie in memory as numpy's do."""
    import torch

    plain = tensor.layout == torch.strided and tensor.dtype != torch.bfloat16 and not tensor.is_complex()
    return bool(plain and tensor.numel())


def _compared(program: Any, inputs: Sequence[Any], expected: Sequence[Any]) -> tuple[str, str] | None:
    """Return status and reason of *program*: compiled by TVM alone, and by adt if that is not right.

    Returns None if torch cannot write it to a file.
    """
    import torch

    from adt.compiler.importers.torch_program import program_inputs
    from adt.errors import AdtError, CompileError

    verdict = FAILED, ""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "m.pt2"
        try:
            torch.export.save(program, str(path))
        except Exception:
            return None
        for compute in (_by_tvm, _by_adt):
            try:
                names = [spec.name for spec in program_inputs(program)]
                values = compute(path, dict(zip(names, [t.numpy() for t in inputs], strict=True)))
                verdict = _judged(values, [each.numpy() for each in expected])
            except AdtError as error:
                text = f"{error} {error.details or ''}"
                is_internal = isinstance(error, CompileError) or "importer failed" in text
                verdict = FAILED if is_internal else REFUSED, text
            except Exception as error:
                verdict = FAILED, f"{type(error).__name__}: {str(error)[-400:]}"
            if verdict[0] in (RIGHT, REFUSED):
                break
    return verdict


def _by_tvm(model: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    from adt.compiler.importers.importer import import_model
    from support.models.imported import run_imported

    return run_imported(import_model(model, {}), inputs)


def _by_adt(model: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    import adt

    package = adt.compile(model, out=model.parent / "package", platform="host", trust=True)
    return dict(adt.run(package.path, inputs=inputs).outputs)


def _judged(values: Mapping[str, Any], expected: Sequence[Any]) -> tuple[str, str]:
    for (name, value), right in zip(values.items(), expected, strict=True):
        if (value.shape, value.dtype) != (right.shape, right.dtype):
            return WRONG, f"{name} is {value.dtype} {value.shape}, not {right.dtype} {right.shape}"
        limit = {"float16": 1e-2, "float32": 1e-3, "float64": 1e-6}.get(str(right.dtype), 0)
        scale = np.abs(right[np.isfinite(right)]).max(initial=1e-3) if right.dtype.kind == "f" else 1
        if not np.allclose(value, right, rtol=limit, atol=limit * float(scale), equal_nan=True):
            return WRONG, f"{name}: {value.ravel()[:6]} instead of {right.ravel()[:6]}"
    return RIGHT, ""


def _work(name: str, path: str) -> None:
    logging.disable(logging.CRITICAL)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    op = operators()[name]
    results: dict[str, tuple[str, str]] = {}
    for cell, sample in cells(op):
        results[cell] = (FAILED, "the process ended")
        Path(path).write_text(json.dumps(results))
        if (result := outcome(op, sample)) is None:
            del results[cell]
        else:
            results[cell] = result
        Path(path).write_text(json.dumps(results))


def sweep(names: Sequence[str], jobs: int) -> dict[str, tuple[str, str]]:
    """Return status and reason of every cell of *names*."""
    import tvm.relax.frontend.torch  # noqa: F401  # once, for all forks

    context = multiprocessing.get_context("fork")
    waiting = list(names)
    running: dict[str, tuple[Any, Path, float]] = {}
    results: dict[str, tuple[str, str]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        while waiting or running:
            while waiting and len(running) < jobs:
                name = waiting.pop()
                path = Path(scratch) / f"{len(waiting)}.json"
                process = context.Process(target=_work, args=(name, str(path)))
                process.start()
                running[name] = (process, path, time.monotonic())
            for name, (process, path, began) in list(running.items()):
                if process.is_alive() and time.monotonic() - began < SECONDS:
                    continue
                process.kill()
                process.join()
                part = json.loads(path.read_text()) if path.exists() else {}
                results |= {f"{name}-{cell}": tuple(result) for cell, result in part.items()}
                del running[name]
            time.sleep(0.05)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tenth", type=int)
    options = parser.parse_args()
    names = options.names or names_of(options.tenth)
    results = sweep(names, options.jobs)
    for name, (status, reason) in sorted(results.items()):
        if options.names or status not in (RIGHT, REFUSED):
            sys.stdout.write(f"{name}: {status}: {reason[:300]}\n")
    reasons = Counter(reason[:160] for status, reason in results.values() if status == REFUSED)
    for reason, count in reasons.most_common():
        sys.stdout.write(f"refused {count}: {reason}\n")
    sys.stdout.write(f"{dict(Counter(status for status, _ in results.values()))}\n")
    return int(any(status not in (RIGHT, REFUSED) for status, _ in results.values()))


if __name__ == "__main__":
    sys.exit(main())
