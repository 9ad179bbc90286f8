"""An imported model in the precision that the settings ask for, and how accurate that is."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Sequence
from pathlib import Path

import tvm

from adt.compiler.importers.imported_model import ImportedModel
from adt.compiler.passes.cpu.vectors import vectors_of
from adt.compiler.passes.precision import accuracy, half, policy
from adt.compiler.passes.precision.single import has_half, in_single_precision
from adt.compiler.targets import ModelTarget
from adt.errors import ConfigError, InputError, MismatchError
from adt.options.sections import CompileSettings
from adt.package.manifest import PackageLike
from adt.package.reports import Accuracy

log = logging.getLogger("adt.compile")

LITTLE = 1_500_000_000
"""Multiplications up to which ``auto`` measures: half a minute, or less, of one core."""


def convert_precision(
    imported: ImportedModel,
    settings: CompileSettings,
    target: ModelTarget,
    like: PackageLike | None,
    files: Sequence[Path] = (),
) -> tuple[ImportedModel, Accuracy | None]:
    """Convert *imported* to the precision of *settings*; return it, and its accuracy where it was measured.

    *like* is the device to compile for in particular. The accuracy is measured on the .npz *files*, or else
    on random inputs.
    """
    if settings.precision == "float32":
        given = {
            "--half-only": settings.half_only,
            "--keep-float32": settings.keep_float32,
            "--accuracy-inputs": files,
        }
        if option := next(filter(given.get, given), None):
            raise ConfigError(
                f"{option} is for half precision, and the precision is float32",
                remedy="Leave it out, or add --precision float16_acc32:",
                options=("--precision", "float16_acc32"),
            )
        if target.device != "cpu" or settings.offload != "none" or not has_half(imported.module):
            return imported, None
        module, params = in_single_precision(imported.module, imported.params)
        if blocks_half(target):  # as float32 first, so that what does not stand half precision stays so
            module, params = half.rewrite(module, params, half.HALF)
        return dataclasses.replace(imported, module=module, params=params), None
    if policy.sums_whole_numbers(imported.module):
        raise ConfigError(
            f"--precision {settings.precision} is for models of floats, and this one is quantized",
            remedy="Leave --precision out: it sums integers. Or compile the model that it was made of.",
        )
    if target.device == "opencl" and like is not None and like.fp16 is False:
        raise MismatchError(
            f"{like.gpu or like.device} does not compute in half precision: its OpenCL lacks cl_khr_fp16",
            remedy="Compile with --precision float32.",
        )
    if target.device == "cpu" and not blocks_half(target):
        log.info(
            "the code is for CPUs without half arithmetic, or not for Arm's: plain loops, in smaller files "
            "(--cpu CORE, or --cpu +fp16, for those that have it)"
        )
    samples = _samples(imported, settings, files)
    single = imported.module, imported.params
    reduced = half.rewrite(*single, settings.precision, settings.keep_float32, settings.half_only)
    converted = dataclasses.replace(imported, module=reduced[0], params=reduced[1])
    if samples is None:
        return converted, None
    began = time.monotonic()
    try:
        report = accuracy.measure(settings.precision, single, reduced, imported.outputs, samples)
    except Exception as error:  # whatever TVM raises; the package for the target may be right all the same
        log.warning("the accuracy of %s could not be measured here: %s", settings.precision, error)
        return converted, None
    log.debug("measured the accuracy in %.1f s", time.monotonic() - began)
    return converted, report


def blocks_half(target: ModelTarget) -> bool:
    """Return True if code for the CPU *target* computes in half precision by blocks of a vector's lanes."""
    return vectors_of(tvm.target.Target(target.spec), half=True).dtype == half.HALF


def _samples(
    imported: ImportedModel, settings: CompileSettings, files: Sequence[Path]
) -> accuracy.Samples | None:
    """Return the samples to measure on; None where measuring was not asked for and would take long, or
    nothing can be made up."""
    asked = bool(files) or settings.accuracy == "on"
    if settings.accuracy == "off":
        return None
    if not asked and (count := policy.multiplications(imported.module)) > LITTLE:
        log.info(
            "not comparing with float32: %.1f billion multiplications take long here (--accuracy does it)",
            count / 1e9,
        )
        return None
    try:
        return accuracy.read_samples(imported.inputs, files)
    except InputError as error:
        if asked:
            raise
        log.warning("the accuracy is not measured: %s (--accuracy-inputs FILE.npz gives inputs)", error.what)
        return None
