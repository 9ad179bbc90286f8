"""Partition of a model among libraries, such as CLML on Adreno GPUs or cuDNN on NVIDIA's.

Patterns say which operators go; a library's rules (the module of its name beside this one) take back
those that TVM's runtime for it would compute wrongly or refuse on the device, where nobody sees it before.
A group of operators that belong together becomes one *subgraph*: a JSON text in
mod.so, run by the library. What is left is compiled as without offload.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import tvm
from tvm import relax
from tvm.relax import transform
from tvm.relax.backend.utils import has_leaking_intermediate_variables

from adt.bundle import plugins
from adt.bundle.libraries import Library, join_libraries, parse_libraries
from adt.compiler.ir.nodes import operator_name, relax_nodes
from adt.compiler.ir.rewriter import fold_shape_values
from adt.compiler.passes.offload.rules import Rules, fixed
from adt.compiler.passes.offload.weights import bind_weights, detach_weights
from adt.errors import ConfigError, ModelError
from adt.options.sections import TvmSettings
from adt.package.files import INSPECT
from adt.package.reports import LibraryShare, OffloadReport

log = logging.getLogger("adt.compile")

SHAPES = frozenset({"relax.shape_of", "relax.shape_to_tensor", "relax.tensor_to_shape"})
"""Operators on shapes, which compute nothing."""


@dataclass(frozen=True)
class Subgraph:
    """One part of the model that a library runs."""

    library: str
    symbol: str
    """Name of its function in mod.so."""
    json: str
    """TVM's description of it: ``nodes`` (inputs, constants, kernels), ``heads``, …"""


@dataclass(frozen=True)
class OffloadedModel:
    """A model, part of which was handed over."""

    module: tvm.IRModule
    """The Relax module to compile; its attributes hold the subgraphs and their constants."""
    params: Mapping[str, tvm.runtime.Tensor]
    """Parameters that ``main`` still takes after its inputs, in order."""
    report: OffloadReport
    subgraphs: tuple[Subgraph, ...]

    @property
    def libraries(self) -> str:
        """Names of libraries that got a part, as ``--offload`` has them: ``clml``, or ``none``."""
        wanted = parse_libraries(self.report.wanted)
        takers = {subgraph.library for subgraph in self.subgraphs}
        return join_libraries(tuple(library for library in wanted if library.name in takers))

    def write(self, package: Path) -> None:
        """Write each subgraph to ``inspect/<library>/<n>.json`` of the directory *package*."""
        numbers: Counter[str] = Counter()
        for subgraph in self.subgraphs:
            directory = package / INSPECT / subgraph.library
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"{numbers[subgraph.library]}.json").write_text(subgraph.json + "\n")
            numbers[subgraph.library] += 1


def check_combination(text: str, device: str, *, tf32: bool = False) -> None:
    """Refuse an offload that cannot run on *device*: ``cpu``, ``opencl`` or ``cuda``.

    *text* names the libraries like ``--offload``; *tf32* asks to round float32 to TF32.
    """
    libraries = parse_libraries(text)
    if tf32 and not any(library.device == "cuda" for library in libraries):
        raise ConfigError(
            "--tf32 is for NVIDIA's libraries, and nothing goes to them",
            remedy="Add --target cuda:ARCH --offload cudnn,cublas; or leave --tf32 and compile.tf32 out.",
        )
    for library in libraries:
        if library.device != device:
            raise ConfigError(
                f"--offload {library.name} goes with targets that compute on {library.device}, this one "
                f"computes on {device}",
                remedy=f"Add --target {library.targets}; or leave --offload out.",
            )


def offload_module(
    module: tvm.IRModule,
    params: Mapping[str, tvm.runtime.Tensor],
    text: str,
    *,
    tvm: TvmSettings,
    half: bool = False,
    tf32: bool = False,
    apart: bool = False,
) -> OffloadedModel:
    """Hand over to libraries what they can take of the imported Relax *module*.

    Args:
        text: the libraries, as ``--offload`` names them: the first takes what it can first.
        tvm: where the source of their code generators comes from, which are built if they were not before.
        half, tf32: as in :func:`rules_of`.
        apart: each match of a pattern is a subgraph of its own.
    """
    _check_form(module)
    takers = {}
    for library in parse_libraries(text):
        loaded = plugins.load_plugin(plugins.build(plugins.code_generator(library), tvm))
        takers[library.name] = rules_of(library, half=half, tf32=tf32, foreign=loaded.foreign)
    # TVM's FoldConstant stumbles over tensors that hold a known shape, unless they are constants.
    module = relax.transform.DeadCodeElimination(["main"])(fold_shape_values(module))
    for rules in takers.values():
        module = rules.prepare(module, params)
    operators = _count(module["main"])
    total = operators.total()
    objections: dict[str, dict[str, None]] = {}
    apart = apart or any(rules.apart for rules in takers.values())
    ops = {}
    for name, rules in takers.items():
        patterns = [_guarded(pattern, rules, objections) for pattern in rules.patterns]
        module = transform.FuseOpsByPattern(patterns, bind_constants=False, annotate_codegen=apart)(module)
        left = _count(module["main"])  # the rest is in functions of their own by now
        ops[name] = operators.total() - left.total()
        operators = left
    if not apart:
        module = transform.MergeCompositeFunctions()(module)
    inside = {rules.codegen for rules in takers.values() if rules.weights_inside}
    names = {rules.codegen: name for name, rules in takers.items()}
    module = transform.RunCodegen()(bind_weights(module, names, inside))
    subgraphs = []
    for external in (module.attrs or {}).get("external_mods", []):
        symbol = str(external["get_symbol"]())
        subgraphs.append(Subgraph(symbol.partition("_")[0], symbol, str(external.inspect_source("json"))))
    remaining, params = detach_weights(module, params)
    counts = Counter(subgraph.library for subgraph in subgraphs)
    report = OffloadReport(
        wanted=",".join(ops),
        ops=sum(ops.values()),
        total=total,
        subgraphs=len(subgraphs),
        left=tuple(
            f"{count} × {name.removeprefix('relax.')}"
            + ": " * (name in objections)
            + "; ".join(objections.get(name, ()))
            for name, count in sorted(operators.items())
        ),
        shares=tuple(LibraryShare(name, ops[name], counts[name]) for name in ops),
    )
    for name in ops:
        if not counts[name]:
            log.warning("nothing of the model goes to %s: others compute all of it", name)
    return OffloadedModel(remaining, params, report, tuple(subgraphs))


def rules_of(
    library: Library, *, half: bool = False, tf32: bool = False, foreign: frozenset[str] = frozenset()
) -> Rules:
    """Return the rules of *library*.

    Args:
        half: code is for an Arm CPU that computes in half precision.
        tf32: NVIDIA's libraries may round float32 to TF32.
        foreign: types of operators' attributes that the library's code generator has another notion of.
    """
    module = import_module(f"adt.compiler.passes.offload.{library.name}")
    rules: Rules = module.rules(half=half, tf32=tf32, foreign=foreign)
    return rules


def _guarded(
    pattern: tuple[Any, ...], rules: Rules, objections: dict[str, dict[str, None]]
) -> tuple[Any, ...]:
    """Let *pattern* match only what its library computes rightly; the reasons go into *objections*."""
    name, what, annotations, check = pattern

    def is_taken(context: relax.transform.PatternCheckContext) -> bool:
        if has_leaking_intermediate_variables(context):
            return False  # a subgraph's kernel gives its last value alone; a shorter pattern may fit
        calls = _in_order(context.matched_bindings)
        if reason := _misread(calls, rules.misread) or rules.objection(name, calls):
            log.debug("not handed over: %s: %s", name, reason)
            objections.setdefault(_core(calls), {})[reason] = None
            return False
        return check is None or bool(check(context))  # which takes fixed shapes for granted

    return name, what, annotations, is_taken


def _check_form(module: tvm.IRModule) -> None:
    """Refuse open shapes and branches: a subgraph is built for one shape of every tensor."""
    if relax_nodes(module["main"], relax.If):
        raise ModelError(
            "the model has control flow (If), and TVM's offload cannot handle it",
            remedy="Compile without --offload, or export the model without branches.",
        )
    for parameter in module["main"].params:
        info = parameter.struct_info
        if isinstance(info, relax.TensorStructInfo) and not fixed(info):
            raise ModelError(
                f"the input {parameter.name_hint} has open dimensions, which --offload cannot hand over",
                remedy=f"Fix them: --shape {parameter.name_hint}:1,3,224,224",
            )


def _in_order(bindings: Mapping[Any, Any]) -> list[relax.Call]:
    """Sort the calls of *bindings*, which TVM gives in any order, each after those whose results it takes."""
    calls: dict[Any, Any] = {}

    def visit(variable: relax.Expr) -> None:
        call = bindings.get(variable)
        if call is not None and operator_name(call) and variable not in calls:
            for argument in call.args:
                visit(argument)
            calls[variable] = call

    for variable in bindings:
        visit(variable)
    return list(calls.values())


def _core(calls: list[relax.Call]) -> str:
    """Return the operator that a match is about: its convolution, if there is one."""
    names = [operator_name(call) for call in calls]
    return next((name for name in names if "conv" in name), names[-1] if names else "")


def _misread(calls: list[relax.Call], types: frozenset[str]) -> str:
    attributes = (type(call.attrs) for call in calls if call.attrs is not None)
    if types.isdisjoint(kind.__tvm_ffi_type_info__.type_key for kind in attributes):
        return ""
    return "the code generator of TVM's source tree does not fit the installed TVM here"


def _count(function: relax.Function) -> Counter[str]:
    """Count the calls of each operator in *function*."""
    names = map(operator_name, relax_nodes(function, relax.Call))
    return Counter(name for name in names if name and name not in SHAPES)
