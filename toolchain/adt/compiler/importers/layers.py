"""Each kind of operator of a model alone, as it was imported, beside what its format's own runtime computes.

It runs on inputs that show what converters get wrong: ties, negative and far numbers, the first and the last
index. What TVM makes of it is compiled by plain loops, and runs in a process of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from adt.compiler.importers.op_table import named_nodes
from adt.errors import AdtError, ModelError, UnsupportedOp, last_line
from adt.host import cache
from adt.host.disk import disk_errors
from adt.host.extras import installed_version
from adt.host.isolated import begin, isolated
from adt.numerics import Array, difference, gaps, hardly_changed

log = logging.getLogger("adt.import")

PROCESS, SECONDS = "layers", 120.0
"""The process in which what TVM made of operators runs, and after how long it hangs."""
MOST_ELEMENTS = 1 << 22  # elements of an operator's tensors: one with more of them is not compared
SMALL, LONG = 1 << 12, 16
"""Elements up to which an operator keeps its extents; else those from LONG on become shorter."""
MOST_ARGUMENT = 64
"""Elements of a constant whose numbers make an operator another one, not only its results."""
FAR = {"float16": 30.0, "float32": 1000.0, "float64": 1000.0}
"""Floats are around these, too: what subtracts a mean in the wrong order loses them."""
MOVED, TRIES = 8.0, 3
"""An output may be off by so much more than it moves in so many runs on inputs that are hardly changed."""
DEFINED = {
    "div": (1, 100), "mod": (1, 100), "floordiv": (1, 100), "floormod": (1, 100), "bitshift": (0, 7),
    "rightshift": (0, 7), "pow": (0, 3), "cast": (0, 100),
}  # fmt: skip
"""Operators that are defined for some integers only: nothing is divided by zero."""
SORTED = ("bucketize", "searchsorted")
"""Operators that are defined for boundaries in order only."""
POSITIVE = ("cast", "nativebatchnormlegitnotraining", "onehot")
"""Operators of floats that are not negative: they are cut off, or have a variance among them."""
ALONE = "TVM cannot compile it alone: "
"""Beginning of the reason of what TVM's own passes refuse."""
UNTIED = "anytopk"
"""Operator that may give equal elements in any order."""


@dataclass(frozen=True)
class Kind:
    """Operator of a model, for all that are converted alike."""

    key: str
    """Digest of all that tells the kind from others."""
    operator: str
    name: str
    place: int
    """Number of its node."""
    size: int
    """Elements of its tensors."""


Shapes = Mapping[str, Sequence[int]]
Case = tuple[dict[str, Any], list[Any], list[Any]]
"""Inputs, outputs, and how far each element of these may be off: what is ill-conditioned moves by itself."""


@dataclass(frozen=True)
class Layer:
    """A model of one operator, and what it computes."""

    kind: Kind
    model: Any = None
    cases: list[Case] = field(default_factory=list)
    left: str = ""
    """Reason why it is not compared; empty: it is."""
    module: bytes = b""
    """Module that TVM makes of it, as JSON, and values of its parameters."""
    params: list[Any] = field(default_factory=list)


def reason_of(error: Exception) -> str:
    """Return why an operator fails, in a line that a verdict keeps."""
    return last_line(error)[:200]


def digest_of(*parts: Any) -> str:
    """Return a digest of data that Python writes alike each time."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def collected(kinds: list[Kind], make: Callable[[Kind], tuple[Any, list[Case]]]) -> list[Layer]:
    """Make the layer of each kind, with what gives a model and cases."""
    layers = list[Layer]()
    for kind in kinds:
        try:
            layers.append(Layer(kind, *make(kind)))
        except Exception as error:  # runtimes' exceptions have no public base
            layers.append(Layer(kind, left=reason_of(error)))
    return layers


def in_short_extents(
    shapes: Shapes, kept: set[int], make: Callable[[Shapes], tuple[Any, list[Case]]]
) -> tuple[Any, list[Case]]:
    """Call *make* with short extents in place of long ones, but those *kept*; with *shapes* if that fails."""
    short = shorter(list(shapes.values()), kept)
    with contextlib.suppress(Exception):  # see above
        return make({n: [short.get(extent, extent) for extent in shape] for n, shape in shapes.items()})
    return make(shapes)


def shorter(shapes: Sequence[Sequence[int]], kept: set[int]) -> dict[int, int]:
    """Give each long extent of *shapes*, but those *kept*, a short one of its own, equal modulo 8."""
    if sum(map(math.prod, shapes)) <= SMALL:
        return {}
    long = sorted({extent for shape in shapes for extent in shape if extent >= LONG} - kept)
    return {extent: 8 * order + extent % 8 for order, extent in enumerate(long, 1)}


def make_cases(
    operator: str,
    specs: Mapping[str, tuple[Sequence[int], str]],
    indexed: Iterable[int],
    run: Callable[[dict[str, Any]], list[Any]],
) -> list[Case]:
    """Run an operator on made-up inputs near zero and far from it, with integers that it takes.

    *indexed* has the extents of what may be read by indices.
    """
    if sum(math.prod(shape) for shape, _ in specs.values()) > MOST_ELEMENTS:
        raise ValueError("it is too large")
    operator = operator.lower().replace("_", "")
    indices = [(-extent, extent - 1) for extent in indexed if extent]
    ends = [(-100, 100), (0, 100), *indices, (0, 1), (0, 0)]
    if operator in DEFINED:
        ends = [DEFINED[operator]]
    floats, cases = any(dtype in FAR for _, dtype in specs.values()), list[Case]()
    for far in (0, 1) if floats and operator not in ("cast", "det") else (0,):
        for limits in ends:
            inputs = {n: _drawn(*spec, *limits, far, operator) for n, spec in specs.items()}
            try:
                outputs = run(inputs)
                moved = [run(hardly_changed(inputs, seed)) for seed in range(TRIES if floats else 0)]
                moves = [_moves(*each) for each in zip(outputs, *moved, strict=True)]
                cases.append((inputs, outputs, moves))
                break
            except Exception:  # see above
                if limits == ends[-1]:
                    raise
    if any(array.dtype.kind not in "biuf" for _, outputs, _ in cases for array in outputs):
        raise ValueError("its results are no plain numbers")
    return cases


def _moves(output: Array, *moved: Array) -> Any:
    gap = [gaps(each, output).gap for each in moved if each.shape == output.shape]
    return np.asarray(MOVED * np.max(np.where(np.isfinite(gap), gap, 0.0), axis=0, initial=0.0))


def _drawn(shape: Sequence[int], dtype: str, least: int, most: int, far: int, operator: str) -> Array:
    generator, kind = np.random.default_rng(0), np.dtype(dtype)
    if operator == UNTIED:
        return np.asarray(generator.permutation(math.prod(shape)).reshape(shape)).astype(kind)
    if kind.kind == "f":
        values = generator.normal(0.0, 2.0, shape)
        values = np.where(generator.random(shape) < 0.5, np.round(values * 2) / 2, values)  # ties
        values = np.abs(values) if operator in POSITIVE else values
        values = np.where(values == 0, 1.0, values) if least > 0 else values
        values = np.sort(values) if operator in SORTED else values
        return np.asarray(values + far * FAR[dtype]).astype(kind)
    if kind.kind == "b":
        return np.asarray(generator.random(shape) < 0.5)
    limits = np.iinfo(kind)
    if kind.itemsize < 4 and least < 0:
        least, most = int(limits.min), int(limits.max)
    least = max(least, int(limits.min))
    whole = np.asarray(generator.integers(least, most, shape, endpoint=True)).astype(kind)
    whole.reshape(-1)[:2] = [least, most][: whole.size]
    return np.sort(whole) if operator in SORTED else whole


def check_layers(
    runtime: str,
    find: Callable[[], Iterable[Kind]],
    give: Callable[[list[Kind]], list[Layer]],
    convert: Callable[[Any], tuple[Any, Sequence[Any]]],
    other: Callable[[Any, dict[str, Any]], list[Any]] = lambda *_: [],
) -> tuple[str, ...]:
    """Compare what TVM makes of each kind of operator with what *runtime* computes; once, until adt changes.

    Returns the operators that TVM's own passes cannot compile alone, each with TVM's reason; UnsupportedOp if
    one computes something else. *find* tells the kinds, *give* makes the layers of some, *convert* imports a
    layer's model to a module and its parameters' values, *other* gives other outputs that are right, or none.
    """
    try:
        kinds = {kind.key: kind for kind in sorted(find(), key=lambda kind: -kind.size)}
        book = _book()
        lines = book.read_text(errors="replace").split("\n") if book.is_file() else []
        verdicts = dict(line.partition(" ")[::2] for line in lines)
        missing = [kind for key, kind in kinds.items() if key not in verdicts]
        answers = list(_computed(give(missing) if missing else [], convert))
        different = [reason for layer, answer in answers if (reason := _difference(layer, answer, other))]
    except (AdtError, RuntimeError) as error:  # the runtime crashes, or is not installed
        log.warning("not compared with %s: %s", runtime, last_line(error))
        return ()
    if different:
        raise UnsupportedOp(
            f"{different[0]}, which {runtime} computes otherwise",
            remedy="Export the model otherwise, and report it; --no-check imports it as it is.",
            details="\n".join(different[1:]),
        )
    new = {layer.kind.key: answer if isinstance(answer, str) else "" for layer, answer in answers}
    if new:
        with disk_errors("remembering comparisons", book):
            book.parent.mkdir(parents=True, exist_ok=True)
            with book.open("a") as file:  # at once: others may write, too
                file.write("".join(f"{key} {reason}\n" for key, reason in new.items()))
    left = {kind: reason for key, kind in kinds.items() if (reason := (verdicts | new)[key])}
    for reason in sorted(set(left.values())):
        names = [f"{kind.operator} {kind.name}" for kind, why in left.items() if why == reason]
        log.info("not compared with %s: %s: %s", runtime, named_nodes(names), reason)
    log.info("compared with %s: %d of %d kinds of operators", runtime, len(kinds) - len(left), len(kinds))
    return tuple(
        f"{kind.operator} at node {kind.name}: {reason.removeprefix(ALONE)}"
        for kind, reason in left.items()
        if reason.startswith(ALONE)
    )


def _book() -> Path:
    """Return the file of verdicts, named by adt's source and the versions of what it calls.

    A line has the digest of a kind, and the reason if that could not be compared.
    """
    import adt.compiler

    source = cache.stat_digest(Path(adt.compiler.__file__).parent)
    versions = map(installed_version, ("apache-tvm", "onnxruntime", "onnx", "ai-edge-litert", "torch"))
    return cache.cache_dir() / "operators" / digest_of(source, *versions)[:24]


def _computed(layers: list[Layer], convert: Callable[..., Any]) -> Iterator[tuple[Layer, Any]]:
    """Yield *layers* with their outputs, why there are none, or the error in which the process ended."""
    import tvm

    ready = []
    if not all(layer.left for layer in layers):
        begin("tvm", process=PROCESS)
    for layer in layers:
        if layer.left:
            yield layer, layer.left
            continue
        try:
            module, params = convert(layer.model)
            returned = module["main"].ret_struct_info
            if any(getattr(each, "shape", None) is None for each in getattr(returned, "fields", [returned])):
                yield layer, "the shape of its output depends on an input's values"  # and is refused as such
                continue
            text = tvm.ir.save_json(module).encode()
            ready.append(replace(layer, module=text, params=[param.numpy() for param in params]))
        except Exception as error:  # a converter asks for what only the whole model tells
            yield layer, reason_of(error)
    yield from zip(ready, _results(ready), strict=True)


def _results(layers: list[Layer]) -> list[Any]:
    try:
        return run_layers([replace(layer, model=None) for layer in layers]) if layers else []
    except ModelError as error:  # one of them crashes or hangs
        return [error] if len(layers) == 1 else [each for layer in layers for each in _results([layer])]


def _difference(layer: Layer, answer: Any, other: Callable[..., list[Any]]) -> str:
    """Describe what *layer* computes otherwise than its runtime and the *other*; empty: nothing."""
    place = f"{layer.kind.operator} at node {layer.kind.name}"
    if isinstance(answer, AdtError):
        return f"{place}: {answer.what}"
    answers = [] if isinstance(answer, str) else answer
    for (inputs, outputs, moves), computed in zip(layer.cases, answers, strict=False):
        if reason := _unequal(computed, outputs, moves):
            right = other(layer.model, inputs)
            if not right or _unequal(computed, right, moves):
                return f"{place} would compute something else: {reason}"
    return ""


def _unequal(computed: list[Array], outputs: list[Array], moves: list[Any]) -> str:
    """Describe what differs; 16 bits may be off as floats may, which TFLite looks up in short tables."""
    for got, right, allowed in zip(computed, outputs, moves, strict=True):
        if got.dtype == right.dtype == "int16":
            got, right = got.astype("float32"), right.astype("float32")
        if reason := difference(got, right, allowed if allowed.shape == got.shape else 0.0):
            return reason
    return ""


@isolated("running the model's operators one by one", SECONDS, process=PROCESS)
def run_layers(layers: list[Layer]) -> list[Any]:
    """Return the outputs of what TVM made of each layer, for each of its cases, or why there are none."""
    import tvm

    modules = {f"layer_{layer.kind.key}": tvm.ir.load_json(layer.module.decode()) for layer in layers}
    together = {
        tvm.ir.GlobalVar(name): module["main"].with_attr("global_symbol", name)
        for name, module in modules.items()
        if len(module.get_global_vars()) == 1  # others have kernels, whose names may be others'
    }
    machines: dict[str, Any] = {}
    with contextlib.suppress(Exception):  # of one of them: each alone
        machine = _machine(tvm.IRModule(together))
        machines = {variable.name_hint: machine[variable.name_hint] for variable in together}
    results = list[Any]()
    for layer, (name, module) in zip(layers, modules.items(), strict=True):
        parameters = module["main"].params
        operands = [str(each.name_hint) for each in parameters[: len(parameters) - len(layer.params)]]
        try:
            function, outputs = machines.get(name) or _machine(module)["main"], []
            for inputs, _, _ in layer.cases:
                given = [*(inputs[operand] for operand in operands), *layer.params]
                answer = function(*map(tvm.runtime.tensor, given))
                outputs.append([each.numpy() for each in ([answer] if hasattr(answer, "numpy") else answer)])
            results.append(outputs)
        except Exception as error:  # TVM's passes
            results.append(ALONE + reason_of(error))
    return results


def _machine(module: Any) -> Any:
    """Compile *module* without schedules, nor checks of what its kernels get, in the least time."""
    import tvm
    from tvm import relax

    target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
    passes = [relax.backend.DispatchSampling(), relax.backend.DispatchSortScan()]
    pipeline = tvm.transform.Sequential([*passes, relax.get_pipeline("default_build")])
    with tvm.transform.PassContext(opt_level=0, config={"tirx.disable_assert": True}), target:
        return relax.VirtualMachine(tvm.compile(module, target, relax_pipeline=pipeline), tvm.cpu())
