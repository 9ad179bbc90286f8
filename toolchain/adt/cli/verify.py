"""``adt verify``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from adt.api.requests import LayerOptions, LayersRequest, VerifyRequest
from adt.cli.app import emit_json
from adt.cli.command import Given, command
from adt.options.option import option, options_of, values_of

if TYPE_CHECKING:
    from adt.api.verify import VerifyResult
    from adt.measure.verify import OutputComparison


class LayerFlags(LayerOptions):
    """Whole outputs or single kernels."""

    layers: bool = option("Compare each kernel with the same one on this machine.", default=False)


@command("adt verify model-pkg --layers", VerifyRequest, LayerFlags)
def verify(given: Given, flags: LayerFlags, as_json: bool) -> None:
    """Compare the device's outputs, or with --layers each kernel's, with a reference on the same inputs."""
    import adt
    from adt.cli.arrays import load_npz

    sets = given["inputs"] = [load_npz(path) for path in given["inputs"] or ()] or None
    if flags.layers:
        from adt.cli.verify_layers import finish

        _refuse(as_whole(given))
        both = options_of(VerifyRequest).keys() & options_of(LayersRequest).keys()
        found = adt.verify_layers(
            **{name: given[name] for name in both} | {"inputs": sets[0] if sets else None},
            calls=_span(flags.calls),
            everything=flags.everything,
            chunk_bytes=flags.chunk_bytes << 20 if flags.chunk_bytes else None,
            trust=flags.trust,
        )
        finish(given["package"], found, as_json, everything=flags.everything)
        return
    _refuse(
        [options_of(LayerFlags)[name].flag for name, value in values_of(flags).items() if value], "without"
    )
    result = adt.verify(**given)
    if as_json:
        emit_json("verify", verification_fields(result))
    else:
        show_verification(result)
    raise_unless_passed(result, as_json)


def as_whole(given: Given) -> list[str]:
    """The options that were given and say nothing about single kernels."""
    kernels = options_of(LayersRequest)
    asked = {
        about.flag: given[name] not in (None, about.default)
        for name, about in options_of(VerifyRequest).items()
        if name not in kernels
    }
    asked["several --input"] = len(given["inputs"] or ()) > 1
    return [name for name, there in asked.items() if there]


def _refuse(options: Sequence[str], how: str = "with") -> None:
    from adt.errors import ConfigError

    if options:
        raise ConfigError(
            f"{' and '.join(options)} {how} --layers",
            remedy="--layers compares kernels on one set of inputs; the other options are for whole outputs."
            if how == "with"
            else "Add --layers, or leave it out.",
        )


def _span(text: Any) -> tuple[int, int] | None:
    """``A:B`` as numbers."""
    from adt.errors import ConfigError

    if text is None:
        return None
    first, colon, end = text.partition(":")
    if not colon or not first.isdigit() or not end.isdigit() or int(first) >= int(end):
        raise ConfigError(f"--calls {text!r}", remedy="Give two numbers: --calls 10:20 is 10 to 19.")
    return int(first), int(end)


def verification_fields(result: VerifyResult) -> dict[str, Any]:
    """A verification as JSON fields."""
    from adt.measure.verify import output_fields

    found = result.verification
    return {
        "serial": result.serial,
        "virtual_device": result.emulated,
        "reference": result.reference,
        "inputs": [name for name, _ in result.runs],
        "passed": found.passed,
        "max_abs_allowed": found.max_abs_allowed,
        "max_rel_allowed": found.max_rel_allowed,
        "outputs": [output_fields(output) for output in found.outputs],
        "runs": [
            {
                "inputs": name,
                "passed": one.passed,
                "outputs": [output_fields(output) for output in one.outputs],
            }
            for name, one in (result.runs if len(result.runs) > 1 else ())
        ],
    }


def show_verification(result: VerifyResult) -> None:
    """Print each output and its figures."""
    for output in result.verification.outputs:
        _show_output(output)
    note = ", emulated: right or wrong counts here, time does not" if result.emulated else ""
    sets = f"; worst of {len(result.runs)} sets of inputs" if len(result.runs) > 1 else ""
    typer.echo(f"ran on {result.serial}{note}; reference: {result.reference_what}{sets}")


def _show_output(output: OutputComparison) -> None:
    mark = "✓" if output.passed else "✗"
    shape = ", ".join(map(str, output.shape))
    typer.echo(
        f"{mark} {output.name}: {output.dtype}[{shape}] max abs {output.max_abs:.2e} "
        f"max rel {output.max_rel:.2e} cosine {output.metrics.cosine:.8f}"
        + (f"  ({output.reason or output.note})" if output.reason or output.note else "")
    )
    found = output.metrics
    if not found.elements:
        return
    words = [f"mean abs {found.mean_abs:.2e}", f"RMS {found.rmse:.2e}"]
    if math.isfinite(found.snr_db):
        words += [f"SNR {found.snr_db:.1f} dB", f"PSNR {found.psnr_db:.1f} dB"]
    words += [f"top-1 {found.top1:.1%}"] if found.top1 is not None else []
    odd = (found.nan, found.infinite, found.reference_nan, found.reference_infinite)
    words += [f"NaN {odd[0]} (reference {odd[2]})", f"Inf {odd[1]} (reference {odd[3]})"] if any(odd) else []
    typer.echo(f"    {' '.join(words)}" + (f"  [{output.inputs}]" if output.inputs else ""))
    if found.worst is not None:
        place = ", ".join(map(str, found.worst.index))
        typer.echo(
            f"    {found.differing} of {found.elements} differ, most at [{place}]: "
            f"{found.worst.got:.9g} for {found.worst.reference:.9g}"
        )


def raise_unless_passed(result: VerifyResult, as_json: bool) -> None:
    """End with VerifyFailed's exit code, and its message unless JSON said it all, when an output failed."""
    from adt.errors import VerifyFailed

    outputs = result.verification.outputs
    failed = [output for output in outputs if not output.passed]
    if result.verification.passed:
        return
    if as_json:
        raise typer.Exit(VerifyFailed.exit_code)
    names = ", ".join(output.name for output in failed)
    if all(output.metrics.nothing_finite for output in failed):
        raise VerifyFailed(
            f"nothing finite to compare in {len(failed)} of {len(outputs)} outputs: {names}",
            remedy="Give inputs for which the model gives numbers: --input FILE.npz.",
        )
    if all(output.options == ("--allow-nonfinite",) for output in failed):
        raise VerifyFailed(
            f"NaN or infinity in {len(failed)} of {len(outputs)} outputs, in the reference, too: {names}",
            remedy="If the model is to give them, let them pass with --allow-nonfinite; else give other "
            "inputs: --input FILE.npz.",
        )
    options = dict.fromkeys(option for output in failed for option in output.options if option != "--input")
    remedy = (
        "adt verify --layers names the kernel that computes wrongly; --reference host tells a fault "
        "of the importer from one of the device"
    )
    raise VerifyFailed(
        f"{len(failed)} of {len(outputs)} outputs differ: {names}",
        remedy=f"{remedy}; allow more with {' or '.join(options)}." if options else f"{remedy}.",
    )
