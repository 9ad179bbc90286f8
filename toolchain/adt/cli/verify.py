"""``adt verify``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adt.cli.app import Json, Serial, Timeout, Verbose, app, emit_json
from adt.cli.deploy import Bundle, Package, Seed

if TYPE_CHECKING:
    from adt.api.verify import VerifyResult
    from adt.measure.verify import OutputComparison


@app.command(epilog="Example: adt verify model-pkg --layers")
def verify(
    package: Package,
    serial: Serial = None,
    bundle: Bundle = None,
    model: Annotated[
        Path | None, typer.Option(help="The source model; else the copy that compiling kept.")
    ] = None,
    inputs: Annotated[
        list[Path] | None,
        typer.Option("--input", "-i", help="Inputs by name, as .npz; several: one set each."),
    ] = None,
    seed: Seed = None,
    seeds: Annotated[
        int, typer.Option(help="So many sets of made-up inputs; the worst is shown.", metavar="N")
    ] = 1,
    reference: Annotated[
        str | None,
        typer.Option(
            help="auto (the runtime of the model's format), onnxruntime, tflite, torch, keras, host (TVM "
            "on this machine's CPU), or an .npz file with the right outputs."
        ),
    ] = None,
    max_abs: Annotated[float | None, typer.Option(help="Largest absolute difference that passes.")] = None,
    max_rel: Annotated[float | None, typer.Option(help="… or relative to the largest magnitude.")] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(
            help="Steps an integer may be off (by default 1 of 8 and 16 bits, else 0), or a float quanta (1)."
        ),
    ] = None,
    max_changed: Annotated[
        float | None,
        typer.Option(help="Share of an integer output that may be off by more (0.01).", metavar="SHARE"),
    ] = None,
    allow_nonfinite: Annotated[
        bool,
        typer.Option("--allow-nonfinite", help="NaN and infinity pass at the same places, not everywhere."),
    ] = False,
    layers: Annotated[
        bool, typer.Option("--layers", help="Compare each kernel with the same one on this machine.")
    ] = False,
    calls: Annotated[
        str | None, typer.Option(metavar="A:B", help="With --layers: only these calls of the run.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="With --layers: go on after a wrong kernel, and show every call.")
    ] = False,
    chunk_mb: Annotated[
        int | None,
        typer.Option(min=1, help="With --layers: MiB of tensors fetched at a time (256).", metavar="MIB"),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="With --layers: run the kernels of a package made elsewhere here.")
    ] = False,
    timeout: Timeout = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Compare the device's outputs, or with --layers each kernel's, with a reference on the same inputs."""
    import adt
    from adt.cli.arrays import load_npz

    given = [load_npz(path) for path in inputs or ()]
    if layers:
        from adt.cli.verify_layers import finish

        _refuse(as_whole(model, seeds, reference, max_abs, max_changed, allow_nonfinite, given))
        found = adt.verify_layers(
            package,
            serial=serial,
            bundle=bundle,
            inputs=given[0] if given else None,
            seed=seed,
            calls=_span(calls),
            everything=everything,
            max_rel=max_rel,
            max_steps=max_steps,
            chunk_bytes=chunk_mb << 20 if chunk_mb else None,
            trust=trust,
            timeout=timeout,
        )
        finish(package, found, as_json, everything=everything)
        return
    _refuse(
        [
            name
            for name, there in (
                ("--calls", calls),
                ("--all", everything),
                ("--chunk-mb", chunk_mb),
                ("--trust", trust),
            )
            if there
        ],
        "without",
    )
    result = adt.verify(
        package,
        serial=serial,
        bundle=bundle,
        model=model,
        inputs=given or None,
        seed=seed,
        seeds=seeds,
        reference=reference,
        max_abs=max_abs,
        max_rel=max_rel,
        max_steps=max_steps,
        max_changed=max_changed,
        allow_nonfinite=allow_nonfinite or None,
        timeout=timeout,
    )
    if as_json:
        emit_json("verify", verification_fields(result))
    else:
        show_verification(result)
    raise_unless_passed(result, as_json)


def as_whole(
    model: Path | None,
    seeds: int,
    reference: str | None,
    max_abs: float | None,
    max_changed: float | None,
    allow_nonfinite: bool,
    given: Sequence[Any],
) -> list[str]:
    """The options that say nothing about single kernels."""
    several = len(given) > 1
    asked = {
        "--model": model is not None,
        "--seeds": seeds != 1,
        "--reference": reference is not None,
        "--max-abs": max_abs is not None,
        "--max-changed": max_changed is not None,
        "--allow-nonfinite": allow_nonfinite,
        "several --input": several,
    }
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


def _span(text: str | None) -> tuple[int, int] | None:
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
        f"max rel {output.max_rel:.2e} cosine {output.cosine:.8f}"
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
