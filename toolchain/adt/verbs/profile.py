"""Profile of a package, call by call."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from adt.cli.command import Rendering, command
from adt.errors import RpcError, RunError, dependent, exclusive
from adt.host.cache import write_text
from adt.limits import parse_json
from adt.options.option import AnyPath, MaybePath, Number, PathTo, Real, Text, option
from adt.options.request import Request, takes
from adt.options.sections import DeviceSettings, VerifySettings
from adt.verbs import options as shared
from adt.verbs.deploy import open_place
from adt.verbs.options import NATIVE, RPC

if TYPE_CHECKING:
    from adt.measure.profile.assembly import Limits
    from adt.package.inspection.profile import Profile
    from adt.verbs.remote import Remote


class ProfileRequest(Request):
    """Request of :func:`adt.profile`."""

    package: PathTo = option(shared.PACKAGE, kw_only=False)
    serial: Text = DeviceSettings.serial
    timeout: Real = DeviceSettings.timeout
    bundle: MaybePath = shared.BUNDLE
    entry: str = shared.ENTRY
    via: str = shared.VIA
    key: str = shared.REMOTE_KEY
    tracker: str = shared.REMOTE_TRACKER
    inputs: shared.Arrays | None = shared.INPUTS
    seed: Number = VerifySettings.seed
    fill_mode: Text = VerifySettings.fill_mode
    threads: int | None = shared.THREADS
    affinity: str = shared.AFFINITY
    runs: int = option("Number of runs with clocks, and without.", "--runs", "-n", default=20, least=1)
    warmup_runs: int = option("Number of warm-up runs.", default=3)
    peak_gflops: float | None = option(
        "Peak arithmetic of the device in GFLOP/s, for the roofline.", default=None, least=1e-6
    )
    peak_gbps: float | None = option(
        "Peak bandwidth of the device's memory in GB/s, for the roofline.", default=None, least=1e-6
    )


REMOTE_FUNCTION = "adt.profile"
"""Function that every tvm_rpc of a bundle has: (virtual machine, entry, runs) → the profile object as
JSON."""
_POCL_DEVICE = re.compile(r"(?:pthread|basic|cpu|cpu-minimal)(?:-|$)")


@takes(ProfileRequest)
def profile(request: ProfileRequest) -> Profile:
    """Run the package where it belongs with clocks around its calls, and say what each of them did.

    Nothing is compared with a peak that is not given.

    Raises:
        ConfigError: numbers that cannot be.
        RunError, InputError: the runner refused or failed; its own message is passed on.
        RpcError, TrackerError: see :func:`adt.rpc_session`.
    """
    from adt.device.place import RtvmOptions
    from adt.measure.profile.assembly import Limits, ProfilePlace, assemble
    from adt.package.package import load_package

    _check(request)
    package = load_package(request.package)
    package.manifest.entry(request.entry)
    limits = Limits(request.peak_gflops, request.peak_gbps)
    if request.via == RPC:
        from adt.verbs.remote import RemoteRequest, connect

        with connect(package, RemoteRequest(**request.keywords_of(RemoteRequest))) as remote:
            return _remote(remote, request, limits)
    opened = open_place(package, request, request.bundle)
    options = RtvmOptions(
        entry=request.entry,
        device=package.manifest.target.device,
        fill_mode=request.fill_mode,
        seed=request.seed,
        warmup_runs=request.warmup_runs,
        run_count=request.runs,
        profile=request.runs,
        threads=request.threads,
        affinity=request.affinity,
    )
    options = options.worthwhile(opened.place.name, emulated=opened.place.emulated)
    ran = opened.run(options, request.inputs, timeout=request.settings.device.run_seconds)
    device = ran.report.get("device", {})
    where = ProfilePlace(
        opened.place.label,
        ran.emulated,
        NATIVE,
        str(device.get("name", "")),
        str(device.get("type", "")),
    )
    plain_us = [1e3 * float(time) for time in ran.report.get("run_ms") or ()]
    return assemble(
        package, request.entry, ran.report.get("profile"), where, plain_us=plain_us, limits=limits
    )


def profile_trace(profile: Profile, out: AnyPath) -> None:
    """Write *profile* as a trace for chrome://tracing and Perfetto.

    Raises:
        ConfigError: its times are an emulator's.
    """
    from adt.measure.profile.output import trace

    write_text(Path(out), json.dumps(trace(profile), ensure_ascii=False, separators=(",", ":")))


def profile_html(profile: Profile, out: AnyPath) -> None:
    """Write *profile* as one self-contained page with plots."""
    from adt.measure.profile.output import render

    write_text(Path(out), render(profile))


def _check(request: ProfileRequest) -> None:
    if request.via == RPC and (request.threads is not None or request.affinity):
        raise exclusive("--threads and --affinity", "--via rpc")
    if request.via == NATIVE and (request.key or request.tracker):
        raise dependent("--key and --tracker", "--via rpc")


def _remote(remote: Remote, request: ProfileRequest, limits: Limits) -> Profile:
    from adt.measure.profile.assembly import ProfilePlace, assemble
    from adt.package.inputs.random import random_inputs
    from adt.package.manifest import taken_inputs
    from adt.rpc.session import explain_errors

    model, entry, inputs = remote.model, request.entry, request.inputs
    warmup_runs, runs = (0, 1) if remote.emulated else (request.warmup_runs, request.runs)
    if inputs is None:
        inputs = random_inputs(model.entry(entry).inputs, request.seed, request.fill_mode)
    measure = _function(remote)
    model.set_inputs(taken_inputs(model.entry(entry), inputs), entry)
    for _ in range(warmup_runs):
        model.run(entry)
    gpu = model.package.manifest.target.device != "cpu"
    plain_us: list[float] = []
    with explain_errors(model.package, "be profiled"):
        if not gpu:  # there TVM's evaluator counts the device's work alone
            evaluate = model.machine.time_evaluator("invoke_stateful", model.device, number=1, repeat=runs)
            plain_us = [1e6 * time for time in evaluate(entry).results]
        text = str(measure(model.machine.module, entry, runs))
        name = str(model.device.device_name) if gpu else ""
    try:
        raw = parse_json(text)
    except ValueError as error:
        raise RunError(
            f"what the RPC server answers as a profile is no JSON: {error}",
            remedy="Serve from a bundle that this adt built: adt build-target.",
        ) from error
    where = ProfilePlace(
        remote.label, remote.emulated, RPC, name, "cpu" if gpu and _POCL_DEVICE.match(name) else ""
    )
    return assemble(model.package, entry, raw, where, plain_us=plain_us, limits=limits)


def _function(remote: Remote) -> Any:
    from adt.rpc.session import lost

    try:
        return remote.model.session.get_function(REMOTE_FUNCTION)
    except Exception as error:  # TVM raises AttributeError, RPCError, …
        if lost(error):
            raise
        raise RpcError(
            f"the RPC server on {remote.name} cannot profile: it has no function {REMOTE_FUNCTION}",
            remedy="Serve from a bundle that this adt built (adt build-target, then adt rpc start), or "
            "profile without RPC: --via native.",
            details=str(error),
        ) from error


@command("adt profile model-pkg --html profile.html", phone=True)
def profile_command(
    request: ProfileRequest,
    sort: Annotated[
        str,
        option(
            "Column whose largest value comes first.",
            default="",
            choices=["time", "calls", "order", "gflops", "flops"],
        ),
    ],
    everything: Annotated[bool, option("Show every kernel, not only the first 20.", "--all", default=False)],
    trace: Annotated[Path | None, shared.output("Write a trace for chrome://tracing and Perfetto.")],
    html: Annotated[Path | None, shared.output("Write a page with plots.")],
) -> Rendering:
    """Show where the time of a package goes: kernel by kernel, with FLOPs, bytes and speeds."""
    result = profile(request)
    lines = _lines(result, sort=sort, everything=everything)
    if trace:
        profile_trace(result, trace)
    if html:
        profile_html(result, html)
    lines += [f"wrote {name}" for name in (trace, html) if name]
    return Rendering("profile", result, lines)


def _lines(result: Profile, **how: Any) -> list[str]:
    from adt.measure.profile.output import table

    return table(result, **how)
