"""Each kind of operator of a model alone, as it was imported, beside what its format's own runtime computes.

It runs on inputs that show what converters get wrong: ties, negative and far numbers, the first and the last
index. What TVM makes of it is compiled by plain loops, and runs in a process of its own.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

from adt.compiler.importers.op_table import named_nodes
from adt.errors import AdtError, ModelError, UnsupportedOp, last_line
from adt.host import cache
from adt.host.isolated import isolated
from adt.numerics import difference, gaps, hardly_changed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic]

log = logging.getLogger("adt.import")

PROCESS, SECONDS = "layers", 120.0
"""The process in which what TVM made of operators runs, and after how long it hangs."""
BUDGET = 20.0
"""Seconds after which no further operator is run in its runtime."""
MOST_ELEMENTS = 1 << 22
"""Elements of an operator's tensors: one with more of them is not compared."""
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


@dataclass(frozen=True)
class Layer:
    """A model of one operator, and what it computes."""

    operator: str
    name: str
    model: bytes
    cases: list[tuple[dict[str, Any], list[Any]]]
    """Inputs by name, and outputs."""
    module: bytes = b""
    """Module that TVM makes of it, as JSON."""
    params: list[Any] = field(default_factory=list)
    """Values of its parameters."""


def collected(kinds: Iterable[tuple[str, str, Callable[[], tuple[bytes, Any]]]], runtime: str) -> list[Layer]:
    """Make the layer of each of *kinds*, an operator, its name, and what gives a model and cases."""
    layers, left, end = list[Layer](), dict[str, str](), time.monotonic() + BUDGET
    for operator, name, make in kinds:
        try:
            if time.monotonic() > end:
                raise TimeoutError(f"the operators before it took {BUDGET:.0f} s")
            layers.append(Layer(operator, name, *make()))
        except Exception as error:  # runtimes' exceptions have no public base
            left[f"{operator} {name}"] = last_line(error)
    _say(left, runtime)
    return layers


def _say(left: Mapping[str, str], runtime: str) -> None:
    for reason in sorted(set(left.values())):
        names = named_nodes(name for name, why in left.items() if why == reason)
        log.info("not compared with %s: %s: %s", runtime, names, reason[:200])


def make_cases(
    operator: str,
    specs: Mapping[str, tuple[Sequence[int], str]],
    indexed: Iterable[int],
    run: Callable[[dict[str, Any]], list[Any]],
) -> list[tuple[dict[str, Any], list[Any]]]:
    """Run an operator on made-up inputs near zero and far from it, with integers that it takes.

    Args:
        specs: shape and type of each input.
        indexed: extents of what may be read by indices.
    """
    if sum(math.prod(shape) for shape, _ in specs.values()) > MOST_ELEMENTS:
        raise ValueError("it is too large")
    limits = DEFINED.get(operator := operator.lower().replace("_", ""))
    indices = [(-extent, extent - 1) for extent in indexed if extent]
    ends = [limits] if limits else [(-100, 100), (0, 100), *indices, (0, 1), (0, 0)]
    cases = []
    for far in (0, 1) if operator != "cast" and any(dtype in FAR for _, dtype in specs.values()) else (0,):
        for least, most in ends:
            inputs = {n: _drawn(shape, dtype, least, most, far) for n, (shape, dtype) in specs.items()}
            try:
                cases.append((inputs, run(inputs)))
                break
            except Exception:  # see above
                if (least, most) == ends[-1]:
                    raise
    if any(array.dtype.kind not in "biuf" for _, outputs in cases for array in outputs):
        raise ValueError("its results are no plain numbers")
    return cases


def _drawn(shape: Sequence[int], dtype: str, least: int, most: int, far: int) -> Array:
    import numpy as np

    generator, kind = np.random.default_rng(0), np.dtype(dtype)
    if kind.kind == "f":
        values = generator.normal(0.0, 2.0, shape)
        values = np.where(generator.random(shape) < 0.5, np.round(values * 2) / 2, values)  # ties
        values = np.abs(values) if (least, most) == DEFINED["cast"] else values
        values = np.where(values == 0, 1.0, values) if least > 0 else values
        return np.asarray(values + far * FAR[dtype]).astype(kind)
    if kind.kind == "b":
        return np.asarray(generator.random(shape) < 0.5)
    limits = np.iinfo(kind)
    if kind.itemsize < 4 and least < 0:
        least, most = int(limits.min), int(limits.max)
    least = max(least, int(limits.min))
    whole = np.asarray(generator.integers(least, most, shape, endpoint=True)).astype(kind)
    whole.reshape(-1)[:2] = [least, most][: whole.size]
    return whole


def check_layers(
    runtime: str,
    give: Callable[[], list[Layer]],
    convert: Callable[[bytes], tuple[Any, Sequence[Any]]],
    run: Callable[[bytes, list[dict[str, Any]]], list[list[Any]]],
) -> None:
    """Compare what TVM makes of layers with what *runtime* computes; what was right once is not run again.

    Args:
        convert: imports a layer's model: a module, and its parameters' values.
        run: gives the outputs of a layer's model for several inputs; others are right, too, for the first.

    Raises:
        UnsupportedOp: an operator computes something else.
    """
    import tvm

    layers, left, digest = list[Layer](), dict[str, str](), hashlib.sha256()
    digest.update(metadata.version("apache-tvm").encode())
    try:
        for layer in give():
            try:
                module, params = convert(layer.model)
            except Exception as error:  # a converter asks for what only the whole model tells
                left[f"{layer.operator} {layer.name}"] = last_line(error)
                continue
            text = tvm.ir.save_json(module).encode()
            layers.append(replace(layer, module=text, params=[param.numpy() for param in params]))
            digest.update(hashlib.sha256(text).digest() + hashlib.sha256(layer.model).digest())
    except (AdtError, RuntimeError) as error:  # the runtime crashes, or is not installed
        log.warning("not compared with %s: %s", runtime, last_line(error))
    _say(left, runtime)
    if layers:
        name = f"layers/{digest.hexdigest()[:24]}"
        cache.entry(name, lambda _: _refuse(list(_different(layers, runtime, run)), runtime))


def _refuse(different: Sequence[str], runtime: str) -> None:
    if different:
        raise UnsupportedOp(
            f"{different[0]}, which {runtime} computes otherwise",
            remedy="Export the model otherwise, and report it; without --check it is imported as it is.",
            details="\n".join(different[1:]),
        )


def _different(layers: list[Layer], runtime: str, run: Callable[..., list[list[Any]]]) -> Iterator[str]:
    """Describe each of *layers* that computes something else."""
    place, begun = f"{layers[0].operator} at node {layers[0].name}", time.monotonic()
    try:
        results = run_layers(layers)
    except (AdtError, RuntimeError) as error:  # of one of them: which?
        hangs = time.monotonic() - begun > SECONDS
        if (half := len(layers) // 2) and not hangs:
            yield from _different(layers[:half], runtime, run)
            yield from _different(layers[half:], runtime, run)
        elif isinstance(error, ModelError) and not hangs:  # it crashes
            yield f"{place}: {error.what}"
        else:
            _say({place: last_line(error)}, runtime)
        return
    for layer, outputs in zip(layers, results, strict=True):
        for (inputs, expected), computed in zip(layer.cases, outputs, strict=True):
            if reason := _difference(computed, expected):
                expected, *answers = run(
                    layer.model, [inputs, *(hardly_changed(inputs, seed) for seed in range(TRIES))]
                )
                computed = _unmoved(computed, expected, answers[:TRIES])
                if all(_difference(computed, right) for right in (expected, *answers[TRIES:])):
                    yield f"{layer.operator} at node {layer.name} would compute something else: {reason}"
                    break


def _difference(computed: Sequence[Array], expected: Sequence[Array]) -> str:
    """Describe what differs; 16 bits may be off as floats may, which TFLite looks up in short tables."""
    for got, right in zip(computed, expected, strict=True):
        tabled = got.dtype == right.dtype == "int16"
        pair = (got.astype("float32"), right.astype("float32")) if tabled else (got, right)
        if reason := difference(*pair):
            return reason
    return ""


def _unmoved(computed: list[Array], expected: list[Array], moved: list[list[Array]]) -> list[Array]:
    """Give what is expected in place of what is *computed*, where that moves as far for nearly the same."""
    import numpy as np

    result = []
    for place, (got, reference) in enumerate(zip(computed, expected, strict=True)):
        if got.shape == reference.shape:
            gap = np.max([gaps(each[place], reference).gap for each in moved], axis=0)
            near = gaps(got, reference).gap <= MOVED * np.where(np.isfinite(gap), gap, 0.0)
            got = np.where(near, reference, got).astype(got.dtype)
        result.append(got)
    return result


@isolated("running the model's operators one by one", SECONDS, process=PROCESS)
def run_layers(layers: list[Layer]) -> list[list[list[Any]]]:
    """Return the outputs of what TVM made of each layer, for each of its cases."""
    import tvm

    modules = [tvm.ir.load_json(layer.module.decode()) for layer in layers]
    single = [len(module.get_global_vars()) == 1 for module in modules]
    names = [f"layer_{number}" for number in range(len(modules))]
    together = {
        tvm.ir.GlobalVar(name): module["main"].with_attr("global_symbol", name)
        for name, module, alone in zip(names, modules, single, strict=True)
        if alone  # others have kernels, whose names may be others'
    }
    machine = _machine(tvm.IRModule(together)) if together else {}
    results = list[list[list[Any]]]()
    for layer, name, module, alone in zip(layers, names, modules, single, strict=True):
        function = machine[name] if alone else _machine(module)["main"]
        parameters = module["main"].params[: len(module["main"].params) - len(layer.params)]
        results.append([])
        for inputs, _ in layer.cases:
            given = [inputs[str(parameter.name_hint)] for parameter in parameters]
            answer = function(*map(tvm.runtime.tensor, [*given, *layer.params]))
            results[-1].append([each.numpy() for each in ([answer] if hasattr(answer, "numpy") else answer)])
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
