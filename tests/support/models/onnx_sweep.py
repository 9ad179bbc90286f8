"""Cells of operator, option and element type, made from the schemas of ONNX and onnxruntime.

    PYTHONPATH=tests python -m support.models.onnx_sweep [NAME…] [--all]

Runs the cells whose names contain a NAME, and prints those that are neither right nor refused by name. What is
right is what onnxruntime computes without its optimizations, or ONNX's reference where that has no kernel.
Many cells are one model; one that fails is divided until the cell is found.
"""

import argparse
import functools
import re
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import adt
from adt.compiler.importers.onnx.blockwise import in_floats
from adt.compiler.importers.onnx.comparison import run, run_reference
from adt.compiler.importers.onnx.converters import CONVERTERS
from adt.compiler.importers.onnx.graph import attribute, op_name
from adt.compiler.importers.onnx.rewrites import REWRITES
from adt.compiler.importers.op_table import NO_CONVERTER
from adt.errors import AdtError
from support.models.onnx_cases import (
    FAILED,
    RAW,
    REFUSED,
    RIGHT,
    WRONG,
    Outcome,
    form_difference,
    preload,
    run_package,
    worker,
)
from support.models.onnx_recipes import RECIPES, Recipe

Array = NDArray[Any]
OPSETS = range(7, 25)
MICROSOFT = "com.microsoft"
EVERY = 20
"""One cell of so many runs every time."""
ONCE_WRONG = re.compile(
    r"(Max|Min)-13-of .*nan.*|(Sinh|Cosh)-22-(default|T=float16)|ThresholdedRelu-22-of .*nan.*|Shrink-9-T=uint8"
    r"|RoiAlign-22-default|TopK-(11|24)-(T=uint16|T=int16|of 3,5 \| =\[0\])|LayerNormalization-17-T=float64"
    r"|RMSNormalization-23-of 4 \| w4|BatchNormalization-15-training_mode=1 outputs=3|Dropout-10-outputs=2"
    r"|DynamicQuantizeLinear-11-of .*0.0, 0.0.*|Col2Im-18-T=bool|(RandomNormalLike-22|Bernoulli-15)-constants"
    r"|RandomUniform-22-default|TopK-24-sorted=0|CastLike-15-T2=uint16"
)
TOGETHER = 48
"""Cells of one model."""
TYPES = {
    "tensor(float)": "float32", "tensor(double)": "float64", "tensor(bool)": "bool",
    **{f"tensor({name})": name for name in ("float16", *(f"{sign}int{n}" for sign in ("", "u") for n in (8, 16, 32, 64)))},
}  # fmt: skip
"""Types of tensors that numpy has."""
FIRST = ("float32", "int64", "int32", "bool", "uint8")
"""Types that cells have which are about something else, the first that is allowed."""


@dataclass(frozen=True)
class Cell:
    """One operator with one set of inputs, types and options."""

    name: str
    op: str
    domain: str
    opset: int
    operands: tuple[tuple[str, str], ...]
    """Operands as :mod:`onnx_recipes` writes them, with their element types; ``-`` is none."""
    attributes: Mapping[str, Any]
    outputs: int = 1

    @property
    def group(self) -> tuple[str, int]:
        return self.domain, self.opset


@dataclass
class Built:
    """A cell as a node."""

    node: onnx.NodeProto
    inputs: dict[str, Array]
    constants: dict[str, Array]
    expected: list[Array]


@functools.cache
def all_cells() -> dict[str, Cell]:
    return {cell.name: cell for op, recipe in RECIPES.items() for cell in _cells(op, recipe)}


def often(name: str) -> bool:
    """True for one of :data:`EVERY` cells, the same everywhere, and for those that were wrong once."""
    return zlib.crc32(name.encode()) % EVERY == 0 or bool(ONCE_WRONG.fullmatch(name))


@functools.cache
def schemas() -> dict[str, list[Any]]:
    """Return the versions of each operator, oldest first, by name, with the domain if it is not ONNX's."""
    from onnxruntime.capi import onnxruntime_pybind11_state as native

    by_name: dict[str, list[Any]] = {}
    for schema in (*onnx.defs.get_all_schemas_with_history(), *native.get_all_operator_schema()):
        if schema.domain == MICROSOFT:
            by_name.setdefault(f"{MICROSOFT}.{schema.name}", []).append(schema)
        elif not schema.domain and isinstance(schema, onnx.defs.OpSchema):
            by_name.setdefault(schema.name, []).append(schema)
    return {name: sorted(versions, key=lambda each: each.since_version) for name, versions in by_name.items()}


def _versions(op: str) -> Iterator[tuple[Any, int]]:
    """Yield the schemas of *op* with an opset that each is used with, of the last one the latest, too."""
    versions = schemas()[op]
    if versions[-1].domain:
        yield versions[-1], 17
        return
    for place, schema in enumerate(versions):
        end = versions[place + 1].since_version if place + 1 < len(versions) else OPSETS.stop
        opset = max(schema.since_version, OPSETS.start)
        if opset < min(end, OPSETS.stop) and not schema.deprecated:
            yield schema, opset
            if end >= OPSETS.stop and opset != OPSETS[-1]:
                yield schema, OPSETS[-1]


def _cells(op: str, recipe: Recipe) -> Iterator[Cell]:
    newest = schemas()[op][-1]
    names = [parameter.name for parameter in newest.inputs]
    if _variadic(newest):
        names += [f"{names[-1]}{n}" for n in range(99)]
    for schema, opset in _versions(op):
        for label, operands, options, types in _variants(schema, recipe):
            combination = _operands(schema, operands, names, types)
            if combination is None:
                continue
            inputs, attributes = combination
            options = {**recipe.base, **options}
            outputs = options.pop("outputs", max(1, schema.min_output))
            attributes |= {name: value for name, value in options.items() if name in schema.attributes}
            if any(each.required and name not in attributes for name, each in schema.attributes.items()):
                continue
            name = f"{op}-{opset}-{label}"
            yield Cell(name, schema.name, schema.domain, opset, inputs, attributes, outputs)


def _variants(
    schema: Any, recipe: Recipe
) -> Iterator[tuple[str, Sequence[str], dict[str, Any], dict[str, str]]]:
    """Yield label, operands, options and types by type variable of the cells of *schema*."""
    usual = {each.type_param_str: allowed for each in schema.type_constraints if (allowed := _allowed(each))}
    first = {name: next((t for t in FIRST if t in allowed), allowed[0]) for name, allowed in usual.items()}
    yield "default", recipe.inputs, {}, first
    yield "inputs", [re.sub("^w", "", re.sub("^=", "@", each)) for each in recipe.inputs], {}, first
    yield (
        "constants",
        [re.sub("^@", "=", re.sub(r"^(?=[\d+]|$)", "w", each)) for each in recipe.inputs],
        {},
        first,
    )
    for variable, allowed in usual.items():
        for dtype in allowed:
            if dtype != first[variable]:
                yield f"{variable}={dtype}", recipe.inputs, {}, {**first, variable: dtype}
    for options in recipe.options:
        if all(name in schema.attributes or name == "outputs" for name in options):
            yield _label(options), recipe.inputs, dict(options), first
    for place, parameter in enumerate(schema.inputs):
        if "ptional" in str(parameter.option) and place < len(recipe.inputs) and recipe.inputs[place] != "-":
            left = [*recipe.inputs[:place], "-", *recipe.inputs[place + 1 :]]
            yield f"without {parameter.name}", left, {}, first
    for operands, options in recipe.others:
        if options.keys() <= schema.attributes.keys():
            yield f"of {' | '.join(operands)} {_label(options)}".strip(), operands, dict(options), first


def _label(options: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value!r}" for name, value in options.items())


def _allowed(constraint: Any) -> list[str]:
    return [TYPES[each] for each in sorted(constraint.allowed_type_strs) if each in TYPES]


def _variadic(schema: Any) -> bool:
    return bool(schema.inputs) and "ariadic" in str(schema.inputs[-1].option)


def _operands(
    schema: Any, operands: Sequence[str], names: Sequence[str], types: Mapping[str, str]
) -> tuple[tuple[tuple[str, str], ...], dict[str, Any]] | None:
    """Return the inputs and the attributes that *operands* of the newest version are in *schema*."""
    inputs: list[tuple[str, str]] = []
    attributes: dict[str, Any] = {}
    for place, (text, name) in enumerate(zip(operands, names, strict=False)):
        if name in schema.attributes and name not in [each.name for each in schema.inputs]:
            if text not in ("", "-"):
                if text[0] != "=":
                    return None
                attributes[name] = _literal(text[1:])
            continue
        if place >= len(schema.inputs) and not _variadic(schema):
            continue
        parameter = schema.inputs[min(place, len(schema.inputs) - 1)]
        kind = parameter.typeStr if hasattr(parameter, "typeStr") else parameter.type_str
        if kind not in types and kind not in TYPES:
            return None
        inputs.append((text, types.get(kind, TYPES.get(kind, ""))))
    while inputs and inputs[-1][0] == "-":
        inputs.pop()
    return (tuple(inputs), attributes) if len(inputs) >= schema.min_input else None


def _literal(text: str) -> Any:
    return eval(text or "1", {"__builtins__": {}, "nan": np.nan, "inf": np.inf})


def _value(text: str, dtype: str, seed: str) -> Array:
    kind = np.dtype(dtype)
    if text[:1] in ("=", "@"):
        with np.errstate(all="ignore"):
            value: Array = np.asarray(
                np.nan_to_num(_literal(text[1:])) if kind.kind in "iub" else _literal(text[1:])
            )
            return (
                value.clip(np.iinfo(kind).min, np.iinfo(kind).max).astype(kind)
                if kind.kind in "iu"
                else value.astype(kind)
            )
    mark, rest = re.fullmatch(r"([<~]\d+ ?|[+w]*)([\d,]*) ?", text).groups()  # type: ignore[union-attr]
    shape = [int(extent) for extent in rest.split(",") if extent]
    generator = np.random.default_rng(zlib.crc32(seed.encode()))
    if most := re.match(r"[<~](\d+)", mark):
        least = -int(most[1]) if mark[0] == "~" and kind.kind != "u" else 0
        return np.asarray(generator.integers(least, int(most[1]), shape)).astype(kind)
    if kind.kind == "b":
        return np.asarray(generator.integers(0, 2, shape)).astype(kind)
    if kind.kind == "f":
        numbers = generator.uniform(0.2, 2, shape) if "+" in mark else generator.normal(0, 1.5, shape)
        return np.asarray(numbers).astype(kind)
    least = 1 if "+" in mark else 0 if kind.kind == "u" else -9
    return np.asarray(generator.integers(least, 4 if "+" in mark else 10, shape)).astype(kind)


def build(cell: Cell, prefix: str) -> Built:
    """Return *cell* as a node whose name and tensors begin with *prefix*."""
    inputs: dict[str, Array] = {}
    constants: dict[str, Array] = {}
    names = []
    for place, (text, dtype) in enumerate(cell.operands):
        if text == "-":
            names.append("")
            continue
        names.append(f"{prefix}_x{place}")
        (constants if text[:1] in ("w", "=") else inputs)[names[-1]] = _value(
            text, dtype, f"{cell.op}{place}"
        )
    outputs = [f"{prefix}_y{n}" for n in range(cell.outputs)]
    node = helper.make_node(cell.op, names, outputs, name=prefix, domain=cell.domain)
    for name, value in cell.attributes.items():
        value = numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        empty = onnx.AttributeProto.INTS if value == [] else None  # which tells no type
        node.attribute.append(helper.make_attribute(name, value, attr_type=empty))
    return Built(node, inputs, constants, [])


def model_of(cells: Sequence[Built], group: tuple[str, int]) -> onnx.ModelProto:
    """Return one model of *cells*."""

    def info(name: str, array: Array) -> Any:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    domain, opset = group
    graph = helper.make_graph(
        [cell.node for cell in cells],
        "sweep",
        [info(*pair) for cell in cells for pair in cell.inputs.items()],
        [info(*pair) for cell in cells for pair in zip(cell.node.output, cell.expected, strict=False)]
        or [helper.make_empty_tensor_value_info(name) for cell in cells for name in cell.node.output],
        [numpy_helper.from_array(array, name) for cell in cells for name, array in cell.constants.items()],
    )
    sets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=sets, ir_version=8 if opset < 21 else 10)


def expected(built: Built, group: tuple[str, int]) -> tuple[str, list[Array]]:
    """Return the engine that can run *built* (none: empty) and its outputs."""
    model = model_of([built], group)
    if not built.node.domain:
        try:
            model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        except onnx.shape_inference.InferenceError:
            return "", []
    for name, engine in (
        ("onnxruntime", functools.partial(run, optimize=False)),
        ("reference", run_reference),
    ):
        try:
            values = engine(in_floats(model), built.inputs).values()
            types = [
                value.type.tensor_type.elem_type for value in model.graph.output
            ]  # numpy's sums are wider
            return name, [
                np.asarray(value).astype(helper.tensor_dtype_to_np_dtype(kind)) if kind else np.asarray(value)
                for value, kind in zip(values, types, strict=True)
            ]
        except Exception as error:
            if name == "onnxruntime" and "NOT_IMPLEMENTED" not in str(error):
                return "", []  # no legal cell
    return "", []


def difference(computed: Array | None, right: Array, op: str) -> str:
    """Return what is wrong with *computed*; empty when it is right."""
    if reason := form_difference(computed, right):
        return reason
    if right.dtype.kind != "f":
        allowed = int((right.dtype.itemsize == 1 and "Q" in op) or "Quant" in op)
        wide = np.abs(computed.astype(np.float64) - right.astype(np.float64))
        return f"off by {wide.max():.3g}" if right.size and wide.max() > allowed else ""
    a, b = computed.astype(np.float64), right.astype(np.float64)
    largest = float(np.max(np.abs(b), initial=1e-3, where=np.isfinite(b)))
    limit = {"float16": 5e-3}.get(right.dtype.name, 1e-4)
    if np.allclose(a, b, rtol=limit, atol=limit * largest, equal_nan=True):
        return ""
    return f"{computed.ravel()[:9]} instead of {right.ravel()[:9]}"


def outcomes(names: Sequence[str], rtvm: Path) -> dict[str, tuple[str, str]]:
    cells = all_cells()
    group = cells[names[0]].group
    built: dict[str, dict[str, Built]] = {}
    for number, name in enumerate(names):
        try:
            each = build(cells[name], f"c{number}")
        except Exception as error:
            sys.stderr.write(f"{name}: {error}\n")
            continue
        answer = worker().call(expected, each, group)
        if isinstance(answer, Outcome):  # it crashes onnxruntime: nothing to compare with
            continue
        engine, each.expected = answer
        if engine:
            built.setdefault(engine, {})[name] = each
    results: dict[str, tuple[str, str]] = {}
    for part in built.values():
        results |= _tried(part, group, rtvm)
    return results


def _tried(cells: dict[str, Built], group: tuple[str, int], rtvm: Path) -> dict[str, tuple[str, str]]:
    """Run *cells* together; divide those of which nothing is told apart."""
    answer = worker().call(_compiled, cells, group, rtvm)
    if isinstance(answer, Outcome):  # the process ended
        answer = dict.fromkeys(cells, (answer.status, answer.reason)) if len(cells) == 1 else {}
    rest = {name: each for name, each in cells.items() if name not in answer}
    if len(cells) > 1:
        for name, (status, reason) in list(answer.items()):
            # What is not confirmed at one node is rewritten or written out at none.
            if status not in (RIGHT, REFUSED) or re.search("uses operators|used in a way", reason):
                answer |= _tried({name: cells[name]}, group, rtvm)
    items = list(rest.items())  # in halves: others may be refused, too
    for half in (items[: len(items) // 2], items[len(items) // 2 :]):
        answer |= _tried(dict(half), group, rtvm) if half else {}
    return answer


def _compiled(cells: Mapping[str, Built], group: tuple[str, int], rtvm: Path) -> dict[str, tuple[str, str]]:
    """Compile and run *cells*: what came of those of which it can be told."""
    inputs = {name: array for cell in cells.values() for name, array in cell.inputs.items()}
    by_prefix = {cell.node.name: (name, cell) for name, cell in cells.items()}
    with tempfile.TemporaryDirectory(prefix="onnx-sweep-") as scratch:
        directory = Path(scratch)
        (directory / "m.onnx").write_bytes(model_of(list(cells.values()), group).SerializeToString())
        try:
            # unchecked: what would be refused as wrong is to be found
            package = adt.compile(
                directory / "m.onnx", out=directory / "package", platform="host", use_cache=False, check=False
            )
        except AdtError as error:
            return _refused(error, by_prefix)
        taken = {spec.name for spec in package.manifest.entry().inputs}
        arrays = {name: array for name, array in inputs.items() if name in taken}
        computed = run_package(directory, arrays, rtvm)
    if isinstance(computed, Outcome):
        return dict.fromkeys(cells, (computed.status, computed.reason)) if len(cells) == 1 else {}
    result = {}
    for name, cell in cells.items():
        pairs = zip(cell.node.output, cell.expected, strict=True)
        if attribute(cell.node, "sorted", 1):
            reasons = [difference(computed.get(output), right, cell.node.op_type) for output, right in pairs]
        else:  # in whatever order
            reasons = [
                difference(np.sort(computed[output], None), np.sort(right, None), "")
                for output, right in pairs
            ]
        result[name] = (WRONG, "; ".join(filter(None, reasons))) if any(reasons) else (RIGHT, "")
    return result


def _refused(error: AdtError, cells: Mapping[str, tuple[str, Built]]) -> dict[str, tuple[str, str]]:
    """Return the cells that *error* names, as refused if it does so in words of adt, with a remedy."""
    text = f"{type(error).__name__}: {error.what}"
    named = [cells[prefix] for prefix in set(re.findall(r"\bc\d+(?=_|\b)", error.what)) if prefix in cells]
    if RAW.search(error.what) or not error.remedy or not named:
        reason = f"not in words of adt, or not named: {text} {error.details[:300]}"
        return {name: (FAILED, reason) for name, _ in cells.values()} if len(cells) == 1 else {}
    return {name: _told(each.node, error, text) for name, each in named}


def _told(node: onnx.NodeProto, error: AdtError, text: str) -> tuple[str, str]:
    """Return the outcome of *node*, which *error* names: refused, if its reason is one."""
    message, op = error.what + error.remedy, op_name(node)
    names = f"{node.op_type}|node {node.name}_{'|Resize' if node.op_type == 'Upsample' else ''}"  # what it becomes
    if "has no elements" not in error.what and not re.search(names, message):
        return FAILED, f"operator not named: {text}"
    if (op in REWRITES or op in CONVERTERS) and re.search(rf"{re.escape(op)} \({NO_CONVERTER}", message):
        return FAILED, f"there is a converter, if not for this: {text}"
    return REFUSED, error.what


def batches(names: Sequence[str]) -> list[list[str]]:
    """Return *names* in lists of one group each."""
    groups: dict[tuple[str, int], list[str]] = {}
    for name in names:
        groups.setdefault(all_cells()[name].group, []).append(name)
    return [each[at : at + TOGETHER] for each in groups.values() for at in range(0, len(each), TOGETHER)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--often", action="store_true")
    parser.add_argument(
        "--part", type=int, help=f"0 to {EVERY - 1}: those that run every time are in the first"
    )
    options = parser.parse_args()
    preload()
    rtvm = adt.build_target(platform="host").bundle.path / "bin" / "rtvm"
    chosen = [
        name
        for name in all_cells()
        if (not options.names or any(word in name for word in options.names))
        and (not options.often or often(name))
        and (options.part is None or zlib.crc32(name.encode()) % EVERY == options.part)
    ]
    results: dict[str, tuple[str, str]] = {}
    for batch in batches(chosen):
        began = time.monotonic()
        part = outcomes(batch, rtvm)
        sys.stderr.write(f"{batch[0]}: {len(part)} of {len(batch)} in {time.monotonic() - began:.1f} s\n")
        for name, (status, reason) in part.items():
            if status not in (RIGHT, REFUSED):
                sys.stdout.write(f"{name}: {status}: {reason[:400]}\n")
                sys.stdout.flush()
        results |= part
    counts = Counter(status for status, _ in results.values())
    sys.stdout.write(f"{dict(counts)}, {len(chosen) - len(results)} that nothing can run\n")
    return int(any(status not in (RIGHT, REFUSED) for status, _ in results.values()))


if __name__ == "__main__":
    sys.exit(main())
