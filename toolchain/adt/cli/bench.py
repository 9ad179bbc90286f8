"""``adt verify``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from adt.cli.app import Json, Serial, Verbose, app, emit_json
from adt.cli.deploy import Bundle, Input, Package, Seed, Timeout

if TYPE_CHECKING:
    from adt.api.verify import VerifyResult


@app.command(epilog="Example: adt verify model-pkg --serial 127.0.0.1:5555")
def verify(
    package: Package,
    serial: Serial = None,
    bundle: Bundle = None,
    model: Annotated[
        Path | None, typer.Option(help="The source model; else the copy that compiling kept.")
    ] = None,
    inputs: Input = None,
    seed: Seed = None,
    max_abs: Annotated[float | None, typer.Option(help="Largest absolute difference that passes.")] = None,
    max_rel: Annotated[float | None, typer.Option(help="… or relative to the largest magnitude.")] = None,
    timeout: Timeout = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Compare the device's outputs with onnxruntime's on the same inputs."""
    import adt
    from adt.cli.arrays import load_npz

    result = adt.verify(
        package,
        serial=serial,
        bundle=bundle,
        model=model,
        inputs=load_npz(inputs) if inputs else None,
        seed=seed,
        max_abs=max_abs,
        max_rel=max_rel,
        timeout=timeout,
    )
    if as_json:
        emit_json("verify", verification_fields(result))
    else:
        show_verification(result)
    raise_unless_passed(result, as_json)


def verification_fields(result: VerifyResult) -> dict[str, Any]:
    """A verification as JSON fields."""
    found = result.verification
    return {
        "serial": result.serial,
        "virtual_device": result.emulated,
        "passed": found.passed,
        "max_abs_allowed": found.max_abs_allowed,
        "max_rel_allowed": found.max_rel_allowed,
        "outputs": [vars(output) for output in found.outputs],
    }


def show_verification(result: VerifyResult) -> None:
    """Print one line per output."""
    for output in result.verification.outputs:
        mark = "✓" if output.passed else "✗"
        shape = ", ".join(map(str, output.shape))
        typer.echo(
            f"{mark} {output.name}: {output.dtype}[{shape}] max abs {output.max_abs:.2e} "
            f"max rel {output.max_rel:.2e} cosine {output.cosine:.8f}"
            + (f"  ({output.reason})" if output.reason else "")
        )
    note = ", emulated: right or wrong counts here, time does not" if result.emulated else ""
    typer.echo(f"ran on {result.serial}{note}; reference: onnxruntime on this machine")


def raise_unless_passed(result: VerifyResult, as_json: bool) -> None:
    """End with VerifyFailed's exit code, and its message unless JSON said it all, when an output failed."""
    from adt.errors import VerifyFailed

    failed = [output.name for output in result.verification.outputs if not output.passed]
    if result.verification.passed:
        return
    if as_json:
        raise typer.Exit(VerifyFailed.exit_code)
    raise VerifyFailed(
        f"{len(failed)} of {len(result.verification.outputs)} outputs differ: {', '.join(failed)}",
        remedy="Compare with another --opt-level or input; allow more with --max-abs or --max-rel.",
    )
