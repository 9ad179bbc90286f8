"""Hand parts of a model to a vendor's library: CLML on Adreno GPUs, Android's NNAPI.

TVM's patterns say which operators go; :mod:`adt.model.passes.offload.clml` and
:mod:`adt.model.passes.offload.nnapi` take back those that TVM's runtime for the library
would compute wrongly or refuse on the device, where nobody sees it before.
A group of operators that belong together becomes one *subgraph*: a JSON text in
mod.so, run by the library. What is left is compiled as without offload.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adt.bundle.platforms import NNAPI_API_LEVEL, Platform
from adt.errors import ConfigError, ModelError
from adt.model import plugins
from adt.model.package.files import INSPECT
from adt.model.passes.nodes import operator_name, relax_nodes
from adt.model.passes.offload.clml import Clml
from adt.model.passes.offload.nnapi import Nnapi
from adt.model.passes.offload.rules import Rules, fixed
from adt.model.passes.offload.weights import bind_weights, detach_weights
from adt.model.passes.reports import OffloadReport
from adt.model.plugins import load_plugin
from adt.options.sections import TvmSettings

log = logging.getLogger("adt.compile")

NONE = "none"
PLUGINS = {"clml": plugins.CLML, "nnapi": plugins.NNAPI}
OFFLOADS = (NONE, *PLUGINS)
SHAPES = frozenset({"relax.shape_of", "relax.shape_to_tensor", "relax.tensor_to_shape"})
"""Operators on shapes, which compute nothing."""


@dataclass(frozen=True)
class Subgraph:
    """One part of the model that the library runs."""

    symbol: str
    """Name of its function in mod.so."""
    json: str
    """TVM's description of it: ``nodes`` (inputs, constants, kernels), ``heads``, …"""


@dataclass(frozen=True)
class OffloadedModel:
    """A model, part of which was handed over."""

    module: Any
    """The Relax module to compile; its attributes hold the subgraphs and their constants."""
    params: Mapping[str, Any]
    """What ``main`` still takes after its inputs, in order."""
    report: OffloadReport
    subgraphs: tuple[Subgraph, ...]

    @property
    def kind(self) -> str:
        """``clml``, ``nnapi``, or ``none`` when nothing could be handed over."""
        return self.report.wanted if self.subgraphs else NONE

    def write(self, package: Path) -> None:
        """Write each subgraph to ``inspect/<kind>/<n>.json`` of the directory *package*."""
        directory = package / INSPECT / self.report.wanted
        if self.subgraphs:
            directory.mkdir(parents=True, exist_ok=True)
        for number, subgraph in enumerate(self.subgraphs):
            (directory / f"{number}.json").write_text(subgraph.json + "\n")


def plugin_for(kind: str, settings: TvmSettings) -> Path:
    """The code generator for *kind*, built if it was not before.

    Raises:
        ToolNotFound, SourceError, DownloadError: see :func:`adt.model.plugins.build`.
    """
    return plugins.build(PLUGINS[kind], settings)


def check_combination(kind: str, device: str, platform: Platform, api_level: int) -> None:
    """Refuse an offload that cannot run on what is compiled for.

    Args:
        device: device of the target: ``cpu`` or ``opencl``.

    Raises:
        ConfigError: it does not go together; the remedy says what does.
    """
    if kind not in OFFLOADS:
        raise ConfigError(f"unknown offload {kind!r}", remedy=f"Choose one of: {', '.join(OFFLOADS)}.")
    if kind == "clml" and device != "opencl":
        raise ConfigError(
            "--offload clml hands operators to the Adreno GPU's driver, the target is the CPU",
            remedy="Add --target adreno, adreno-buffer or opencl; or leave --offload out.",
        )
    if kind == "nnapi":
        if device != "cpu" or not platform.android:
            raise ConfigError(
                f"--offload nnapi needs Android and --target cpu; this is {device} on {platform.name}",
                remedy="Compile for android-arm64-v8a with --target cpu; or leave --offload out.",
            )
        if api_level < NNAPI_API_LEVEL:
            raise ConfigError(
                f"NNAPI takes TVM's convolutions from API level {NNAPI_API_LEVEL}; this is {api_level}",
                remedy=f"Build and compile with --api-level {NNAPI_API_LEVEL} or higher.",
            )


def offload_module(
    module: Any, params: Mapping[str, Any], kind: str, *, plugin: Path, api_level: int
) -> OffloadedModel:
    """Hand over what *kind* can take.

    Args:
        module: the imported Relax module, with *params* as arguments of ``main`` after its inputs.
        plugin: the code generator's library (:mod:`adt.model.plugins`).
        api_level: Android's, which says what NNAPI knows.

    Raises:
        ModelError: the model has open dimensions or control flow.
        SourceError: the plugin does not fit the installed TVM.
    """
    _check_form(module)
    loaded = load_plugin(plugin)
    rules: Rules = Clml.rules() if kind == "clml" else Nnapi.rules(api_level)
    return _partition(
        rules.prepare(_known_shapes(module), params), params, kind, rules, loaded.foreign & rules.reads
    )


def _partition(
    module: Any, params: Mapping[str, Any], kind: str, rules: Rules, foreign: frozenset[str]
) -> OffloadedModel:
    from tvm.relax import transform
    from tvm.relax.backend.utils import has_leaking_intermediate_variables

    total = _count(module["main"])
    objections: dict[str, dict[str, None]] = {}

    def guarded(pattern: tuple[Any, ...]) -> tuple[Any, ...]:
        name, what, annotations, check = pattern

        def is_taken(context: Any) -> bool:
            if has_leaking_intermediate_variables(context):
                return False  # a subgraph's kernel gives its last value alone; a shorter pattern may fit
            calls = [value for value in context.matched_bindings.values() if operator_name(value)]
            if reason := _misread(calls, foreign) or rules.objection(name, calls):
                log.debug("not handed over: %s: %s", name, reason)
                objections.setdefault(_core(calls), {})[reason] = None
                return False
            return check is None or bool(check(context))  # which takes fixed shapes for granted

        return name, what, annotations, is_taken

    fuse = transform.FuseOpsByPattern([guarded(pattern) for pattern in rules.patterns], bind_constants=False)
    module = transform.MergeCompositeFunctions()(fuse(module))
    if rules.weights_inside:
        module = bind_weights(module)
    left = _count(module["main"])  # the rest is in functions of their own by now
    module = transform.RunCodegen()(module)
    attributes = dict(module.attrs.items()) if module.attrs else {}
    subgraphs = tuple(
        Subgraph(str(external["get_symbol"]()), str(external.inspect_source("json")))
        for external in attributes.get("external_mods", [])
    )
    remaining, params = detach_weights(module, params) if rules.weights_inside else (module, dict(params))
    report = OffloadReport(
        wanted=kind,
        ops=total.total() - left.total(),
        total=total.total(),
        subgraphs=len(subgraphs),
        left=tuple(
            f"{count} × {name.removeprefix('relax.')}"
            + ": " * (name in objections)
            + "; ".join(objections.get(name, ()))
            for name, count in sorted(left.items())
        ),
    )
    if not subgraphs:
        log.warning("nothing of the model goes to %s: TVM's kernels compute all of it", kind)
    return OffloadedModel(remaining, params, report, subgraphs)


def _check_form(module: Any) -> None:
    """Subgraphs are built for one shape of every tensor, out of functions without branches."""
    from tvm import relax

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


def _known_shapes(module: Any) -> Any:
    """*module* with tensors that hold a known shape as constants: TVM's FoldConstant stumbles over them."""
    import numpy as np
    from tvm import relax, tirx
    from tvm.relax.expr_functor import PyExprMutator, mutator

    @mutator
    class Known(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            result = self.visit_expr_post_order(call)
            if operator_name(result) == "relax.shape_to_tensor":
                extents = result.args[0].struct_info.values
                if extents is not None and all(isinstance(extent, tirx.IntImm) for extent in extents):
                    return relax.const(np.array([int(extent) for extent in extents]), "int64")
            return result

    known = Known(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            known.builder_.update_func(variable, known.visit_expr(function))
    return relax.transform.DeadCodeElimination(["main"])(known.builder_.get())


def _core(calls: list[Any]) -> str:
    """The operator that a match is about: its convolution, if there is one."""
    names = [operator_name(call) for call in calls]
    return next((name for name in names if "conv" in name), names[-1] if names else "")


def _misread(calls: list[Any], foreign: frozenset[str]) -> str:
    for call in calls:
        if call.attrs is not None and type(call.attrs).__tvm_ffi_type_info__.type_key in foreign:
            return "the code generator of TVM's source tree does not fit the installed TVM here"
    return ""


def _count(function: Any) -> Counter[str]:
    """How often each operator is called in *function*."""
    from tvm import relax

    names = map(operator_name, relax_nodes(function, relax.Call))
    return Counter(name for name in names if name and name not in SHAPES)
