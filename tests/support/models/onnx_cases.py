"""ONNX's own backend cases through adt: compiled for this machine, run by rtvm, compared.

    PYTHONPATH=tests python -m support.models.onnx_cases [NAME…] [--write]

Runs the cases whose names contain a NAME (all of them without one), and prints those that are not
right. --write keeps what came of them in tests/golden/onnx_cases.json, from which the tests know
the cases and ``python docs/generate.py`` makes the table of docs/models.md.

Each case runs twice: with every input but the first as a constant of the graph, as in most models,
and, where it has several, with all of them as inputs. Left out are the expanded forms of operators
and the cases of training, ai.onnx.ml and CUDA; and what numpy has no tensors for (sequences,
strings, bfloat16, floating point of 8 and 4 bits).
"""

import argparse
import contextlib
import functools
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import adt
from adt.errors import AdtError, ModelError, UnsupportedOp

GOLDEN = Path(__file__).parents[2] / "golden" / "onnx_cases.json"
VARIANTS = ("constants", "inputs")
RIGHT, REFUSED, LEFT_OUT, WRONG, CANNOT_RUN, FAILED = (
    "right",
    "refused",
    "left out",
    "wrong",
    "cannot run",
    "failed",
)
ACCEPTED = (RIGHT, REFUSED, LEFT_OUT)
SECONDS = 120
"""A case that takes longer hangs."""
RAW = re.compile(r"\b[A-Z]\w*(Error|Exception|Invalid)\b|Check failed|Traceback|<class|relax\.")
"""Words that no message of adt's own has."""


@dataclass(frozen=True)
class Case:
    """A model with one set of inputs and outputs, in the order of its graph."""

    name: str
    model: onnx.ModelProto
    inputs: list[Any]
    outputs: list[Any]
    rtol: float
    atol: float
    variant: str = VARIANTS[0]

    @property
    def id(self) -> str:
        return f"{self.name}-{self.variant}"


@dataclass(frozen=True)
class Outcome:
    """Result of a case: a status of this module, and the reason where it is not right."""

    status: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.status}: {self.reason}" if self.reason else self.status


@functools.cache
def all_cases() -> dict[str, Case]:
    """Return every case in both variants, by id; making them takes ten seconds."""
    cases: dict[str, Case] = {}
    for case in (*_node_cases(), *_stored_cases()):
        for variant in VARIANTS:
            if variant == "inputs" and len(case.model.graph.input) < 2:
                continue
            named = replace(case, variant=variant)
            cases[named.id] = _with_constants(named) if variant == "constants" else named
    return dict(sorted(cases.items()))


def _node_cases() -> Iterator[Case]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collected = collect_testcases(None)
    for case in collected:
        if any(word in case.name for word in ("expanded", "training", "cuda", "ai_onnx_ml")):
            continue
        inputs, outputs = ([_array(value) for value in values] for values in case.data_sets[0])
        name = case.name.removeprefix("test_")
        yield Case(name, case.model, inputs, outputs, case.rtol or 1e-3, case.atol or 1e-5)


def _stored_cases() -> Iterator[Case]:
    """Yield models that PyTorch once exported, in onnx's wheel."""
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for path in sorted(data.glob("pytorch-*/*")):
        arrays = []
        for kind in ("input", "output"):
            files = sorted(
                (path / "test_data_set_0").glob(f"{kind}_*.pb"), key=lambda file: (len(file.name), file)
            )
            arrays.append([numpy_helper.to_array(onnx.TensorProto.FromString(f.read_bytes())) for f in files])
        name = f"{path.parent.name.removeprefix('pytorch-')}_{path.name.removeprefix('test_')}"
        yield Case(name, onnx.load(str(path / "model.onnx")), *arrays, 1e-3, 1e-5)


def _array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, np.generic) else value


def _with_constants(case: Case) -> Case:
    """Return *case* with all inputs but the first as initializers."""
    graph = case.model.graph
    if left_out(case) or len(graph.input) < 2 or len(graph.input) != len(case.inputs):
        return case
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.ir_version = max(4, model.ir_version)  # before, an initializer had to be an input as well
    for value, array in zip(graph.input[1:], case.inputs[1:], strict=True):
        model.graph.initializer.append(numpy_helper.from_array(np.array(array, order="C"), value.name))
    del model.graph.input[1:]
    return replace(case, model=model, inputs=case.inputs[:1])


def left_out(case: Case) -> str:
    """Return the reason why *case* cannot be a case here; empty when it can."""
    graph = case.model.graph
    arrays = [*case.inputs, *case.outputs]
    if any(value.type.WhichOneof("value") != "tensor_type" for value in (*graph.input, *graph.output)):
        return "sequences and optional values"
    if not all(isinstance(array, np.ndarray) for array in arrays):
        return "sequences and optional values"
    if any(array.dtype.kind in "OSU" for array in arrays):
        return "strings"
    if any(array.dtype.kind not in "fiub" or array.dtype.name not in np.sctypeDict for array in arrays):
        return "types that numpy has not"
    return ""


def operator(case: Case) -> str:
    """Return the operator that the case is about; of several nodes, the last but Constants."""
    nodes = [node for node in case.model.graph.node if node.op_type != "Constant"]
    return str(nodes[-1].op_type) if nodes else "Constant"


def family(case: Case) -> str:
    if case.name.startswith(("converted_", "operator_")):
        return "models of PyTorch"
    node = next((node for node in case.model.graph.node if node.op_type == operator(case)), None)
    if node is None or not onnx.defs.has(node.op_type, node.domain):
        return "other domains"
    file = Path(onnx.defs.get_schema(node.op_type, domain=node.domain).file)
    return file.parent.name


def outcome(case: Case, rtvm: Path) -> Outcome:
    """Return the outcome of *case*, computed in a process that it may crash or hang."""
    if reason := left_out(case):
        return Outcome(LEFT_OUT, reason)
    result: Outcome = worker().call(_run, case, rtvm)
    return result


class Worker:
    """A fork that calls one function after another, so that adt's own process for native libraries is started once."""

    def __init__(self) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        self.pid = os.fork()
        if not self.pid:
            self.pipe.close()
            try:
                os.setpgid(0, 0)
                quiet = os.open(os.devnull, os.O_WRONLY)
                os.dup2(quiet, 1)
                os.dup2(quiet, 2)
                with contextlib.suppress(EOFError):
                    _work(theirs)
            finally:
                os._exit(0)
        theirs.close()

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what *function* returns, or the outcome of its failure; the process may have ended then."""
        try:
            self.pipe.send((function, arguments))
            if self.pipe.poll(SECONDS):
                return self.pipe.recv()
            reason = f"no end in {SECONDS} seconds"
        except (EOFError, OSError):
            reason = "the compiler crashed"
        except BaseException:
            self.end()
            raise
        self.end()
        return Outcome(FAILED, reason)

    def end(self) -> None:
        worker.cache_clear()
        os.killpg(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pipe.close()


@functools.cache
def worker() -> Worker:
    return Worker()


def _work(pipe: Connection) -> None:
    while True:
        function, arguments = pipe.recv()
        try:
            result = function(*arguments)
        except BaseException:
            result = Outcome(FAILED, traceback.format_exc(limit=-3)[:4000])
        pipe.send(result)


def _run(case: Case, rtvm: Path) -> Outcome:
    graph = case.model.graph
    constants = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    shapes = [
        f"{value.name}:{','.join(map(str, array.shape))}"
        for value, array in zip(inputs, case.inputs, strict=True)
        if array.ndim and any(not dim.dim_value for dim in value.type.tensor_type.shape.dim)
    ]
    with tempfile.TemporaryDirectory(prefix="onnx-case-") as scratch:
        directory = Path(scratch)
        (directory / "case.onnx").write_bytes(case.model.SerializeToString())
        try:
            package = adt.compile(
                directory / "case.onnx",
                out=directory / "package",
                platform="host",
                shapes=shapes,
                use_cache=False,
            )
        except AdtError as error:
            return _refusal(error)
        taken = {spec.name for spec in package.manifest.entry().inputs}  # without those that decide nothing
        arrays = {
            value.name: array for value, array in zip(inputs, case.inputs, strict=True) if value.name in taken
        }
        computed = run_package(directory, arrays, rtvm)
    if isinstance(computed, Outcome):
        return computed
    for value, expected in zip(graph.output, case.outputs, strict=False):
        if reason := difference(computed.get(value.name), expected, case):
            return Outcome(WRONG, f"{value.name}: {reason}")
    return Outcome(RIGHT)


def run_package(
    directory: Path, inputs: Mapping[str, Any], rtvm: Path
) -> dict[str, np.ndarray[Any, Any]] | Outcome:
    """Return the outputs of ``package`` in *directory*, or why rtvm cannot run it."""
    np.savez(directory / "in.npz", **dict(inputs))
    words = [rtvm, "--model", "package", "--input", "in.npz", "--output", "out.npz"]
    ended = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False, timeout=60)
    if ended.returncode:
        return Outcome(CANNOT_RUN, ended.stderr.strip()[:300] or f"rtvm ended with {ended.returncode}")
    return dict(np.load(directory / "out.npz"))


def _refusal(error: AdtError) -> Outcome:
    """Return a refusal, if the error was raised before anything is compiled, in words of adt."""
    if not isinstance(error, ModelError | UnsupportedOp) or RAW.search(error.what):
        return Outcome(FAILED, f"{type(error).__name__}: {error.what} {error.details[:300]}")
    reason = re.sub(r"(/\S*/)?case\.onnx", "the model", error.what)
    return Outcome(REFUSED, " ".join(reason.split()))


def difference(computed: Any, expected: Any, case: Case) -> str:
    """Describe how *computed* is wrong; empty when it is right."""
    if reason := form_difference(computed, expected):
        return reason
    if expected.dtype.kind != "f":
        count = int(np.sum(computed != expected))
        return f"{count} of {expected.size} values differ" if count else ""
    a, b = computed.astype(np.float64), expected.astype(np.float64)
    # What a sum rounds away of the largest value may be all of a small one, on either side.
    largest = float(np.max(np.abs(b), initial=0, where=np.isfinite(b)))
    atol = case.atol + float(np.finfo(expected.dtype).eps) * largest
    if np.allclose(a, b, rtol=case.rtol, atol=atol, equal_nan=True):
        return ""
    return f"off by {np.nanmax(np.abs(a - b), initial=0):.3g}"


def form_difference(computed: Any, expected: Any) -> str:
    """Describe how shape or type of *computed*, None where it is missing, are wrong; empty when right."""
    if computed is None:
        return "it is not among the outputs"
    if computed.shape != expected.shape or computed.dtype != expected.dtype:
        return f"{computed.dtype}{list(computed.shape)} instead of {expected.dtype}{list(expected.shape)}"
    return ""


@dataclass(frozen=True)
class Row:
    """A stored outcome, with what the table of docs/models.md groups it by."""

    family: str
    operator: str
    outcome: str

    @property
    def status(self) -> str:
        return self.outcome.partition(":")[0]


def stored() -> dict[str, Row]:
    return {
        f"{name}-{variant}": Row(line["family"], line["operator"], line["outcome"])
        for line in (json.loads(GOLDEN.read_text()) if GOLDEN.is_file() else [])
        for variant in VARIANTS
        for name in line.get(variant, "").split()
    }


def store(outcomes: dict[str, Outcome]) -> None:
    """Put *outcomes* (by id) into the golden file; what onnx has no longer goes.

    One line has all cases of an operator with one outcome; those that are right come last.
    """
    rows = {id: row for id, row in stored().items() if id in all_cases()}
    for id, result in outcomes.items():
        case = all_cases()[id]
        rows[id] = Row(family(case), operator(case), str(result))
    names: dict[Row, dict[str, list[str]]] = {}
    for id in sorted(rows):
        name, _, variant = id.rpartition("-")
        names.setdefault(rows[id], {}).setdefault(variant, []).append(name)
    lines = [
        json.dumps(asdict(row) | {variant: " ".join(cases) for variant, cases in names[row].items()})
        for row in sorted(
            names, key=lambda row: (row.outcome == RIGHT, row.family, row.operator, row.outcome)
        )
    ]
    GOLDEN.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def _outcome_of(arguments: tuple[str, Path]) -> tuple[str, Outcome]:
    id, rtvm = arguments
    return id, outcome(all_cases()[id], rtvm)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--variant", choices=VARIANTS)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    rtvm = adt.build_target(platform="host").bundle.path / "bin" / "rtvm"
    chosen = [
        id
        for id, case in all_cases().items()
        if options.variant in (None, case.variant)
        and (not options.names or any(name in id for name in options.names))
    ]
    preload()
    outcomes: dict[str, Outcome] = {}
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        for id, result in pool.imap_unordered(_outcome_of, [(id, rtvm) for id in chosen]):
            outcomes[id] = result
            if result.status not in (RIGHT, LEFT_OUT):
                sys.stdout.write(f"{id}: {result}\n")
                sys.stdout.flush()
    for variant in VARIANTS:
        counts = Counter(result.status for id, result in outcomes.items() if id.endswith(f"-{variant}"))
        sys.stdout.write(f"{variant}: {dict(counts)}\n")
    if options.write:
        store(outcomes)
    return int(any(result.status not in ACCEPTED for result in outcomes.values()))


def preload() -> None:
    """Import once what every case needs, before processes are forked."""
    import tvm.relax.frontend.onnx  # noqa: F401

    import adt.compiler.compile  # noqa: F401


if __name__ == "__main__":
    sys.exit(main())
