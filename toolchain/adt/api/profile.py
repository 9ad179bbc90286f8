"""Where the time of a package goes, call by call."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adt.api.place import open_place
from adt.api.run import NATIVE, RPC
from adt.config.load import load_settings
from adt.device.rtvm import RtvmOptions
from adt.errors import ConfigError, RpcError, RunError
from adt.limits import parse_json
from adt.measure.profile.assemble import Where, assemble
from adt.measure.profile.totals import Limits
from adt.model.inspection.profile import Profile

if TYPE_CHECKING:
    from adt.api.remote import Remote
    from adt.measure.reference import Array

RUNS, WARMUP = 20, 3
REMOTE_FUNCTION = "adt.profile"
"""What every tvm_rpc of a bundle answers: (virtual machine, entry, runs) → the profile object as JSON."""
_POCL = re.compile(r"(?:pthread|basic|cpu|cpu-minimal)(?:-|$)")
"""How PoCL names its devices."""


def profile(
    package: Path,
    *,
    serial: str | None = None,
    bundle: Path | None = None,
    inputs: Mapping[str, Array] | None = None,
    seed: int | None = None,
    entry: str = "main",
    runs: int = RUNS,
    warmup_runs: int = WARMUP,
    via: str = NATIVE,
    key: str = "",
    tracker: str = "",
    threads: int | None = None,
    affinity: str = "",
    peak_gflops: float | None = None,
    peak_gbps: float | None = None,
    timeout: float | None = None,
) -> Profile:
    """Run the package where it belongs with clocks around its calls, and say what each of them did.

    Args:
        inputs: name to array; made up from *seed* when None.
        runs: with clocks, and as many without; *warmup_runs*: before them.
        via: ``native`` (rtvm), or ``rpc`` (a session with a server there).
        key, tracker: with ``rpc``, see :func:`adt.rpc_session`.
        threads, affinity: with ``native``, as for :func:`adt.run`.
        peak_gflops, peak_gbps: what the device can do at best; nothing is compared with what is not given.

    Raises:
        ConfigError: numbers that cannot be.
        RunError, InputError: the runner refused or failed; its own message is passed on.
        RpcError, TrackerError: see :func:`adt.rpc_session`.
        MismatchError, PackageError, NoDevice, …: see :mod:`adt.errors`.
    """
    _check(runs, warmup_runs, via, peak_gflops, peak_gbps)
    resolved = load_settings({"verify.seed": seed, "device.timeout": timeout}).settings
    limits = Limits(peak_gflops, peak_gbps)
    if via == RPC:
        if threads is not None or affinity:
            raise ConfigError(
                "threads and their CPUs cannot be set over RPC",
                remedy="Leave --threads and --affinity away, or profile with --via native.",
            )
        from adt.api.remote import open_remote

        with open_remote(
            package, serial=serial, bundle=bundle, key=key, tracker=tracker, timeout=timeout
        ) as remote:
            return _remote(remote, inputs, resolved.verify.seed, entry, runs, warmup_runs, limits)
    if key or tracker:
        raise ConfigError(
            "a key or a tracker is for profiling over RPC",
            remedy="Add --via rpc, or leave --key and --tracker away.",
        )
    opened = open_place(package, serial=serial, bundle=bundle, timeout=timeout)
    options = RtvmOptions(
        entry=entry,
        device=opened.package.manifest.target.device,
        seed=resolved.verify.seed,
        warmup_runs=warmup_runs,
        run_count=runs,
        profile=runs,
        threads=threads,
        affinity=affinity,
    )
    ran = opened.place.run(options, inputs, timeout=resolved.device.run_seconds)
    device = ran.report.get("device", {})
    where = Where(
        opened.place.label, ran.emulated, NATIVE, str(device.get("name", "")), str(device.get("type", ""))
    )
    plain_us = [1e3 * float(time) for time in ran.report.get("run_ms") or ()]
    return assemble(opened.package, entry, ran.report.get("profile"), where, plain_us=plain_us, limits=limits)


def profile_trace(found: Profile, out: Path) -> None:
    """Write *found* as a trace for chrome://tracing and Perfetto.

    Raises:
        ConfigError: its times are an emulator's.
    """
    from adt.host.cache import fresh_file
    from adt.measure.profile.trace import trace

    text = json.dumps(trace(found), ensure_ascii=False, separators=(",", ":"))
    with fresh_file(out) as temporary:
        temporary.write_text(text, encoding="utf-8")


def profile_html(found: Profile, out: Path) -> None:
    """Write *found* as one self-contained page with plots."""
    from adt.host.cache import fresh_file
    from adt.measure.profile.page import render

    text = render(found)
    with fresh_file(out) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _check(runs: int, warmup_runs: int, via: str, peak_gflops: float | None, peak_gbps: float | None) -> None:
    if runs < 1 or warmup_runs < 0:
        raise ConfigError(
            f"cannot profile {runs} runs after {warmup_runs}",
            remedy="Give at least 1 run, and 0 or more to warm up.",
        )
    if via not in (NATIVE, RPC):
        raise ConfigError(f"there is no way {via!r} to run a package", remedy=f"Choose of: {NATIVE}, {RPC}.")
    for name, peak in (("--peak-gflops", peak_gflops), ("--peak-gbps", peak_gbps)):
        if peak is not None and not 0 < peak < float("inf"):
            raise ConfigError(
                f"{name} {peak:g} is no speed", remedy="Give a number above 0, or leave it away."
            )


def _remote(
    remote: Remote,
    inputs: Mapping[str, Array] | None,
    seed: int,
    entry: str,
    runs: int,
    warmup_runs: int,
    limits: Limits,
) -> Profile:
    from adt.model.inputs.random import random_inputs
    from adt.rpc.remote_model import explained

    model = remote.model
    given = inputs if inputs is not None else random_inputs(model.entry(entry).inputs, seed)
    measure = _function(remote)
    model.set_inputs(given, entry)
    for _ in range(warmup_runs):
        model.run(entry)
    opencl = model.package.manifest.target.device == "opencl"
    plain_us: list[float] = []
    with explained(model.package, "be profiled"):
        if not opencl:  # there TVM's evaluator counts the device's work alone
            evaluate = model.machine.time_evaluator("invoke_stateful", model.device, number=1, repeat=runs)
            plain_us = [1e6 * time for time in evaluate(entry).results]
        text = str(measure(model.machine.module, entry, runs))
        name = str(model.device.device_name) if opencl else ""
    try:
        raw = parse_json(text)
    except ValueError as why:
        raise RunError(
            f"what the RPC server answers as a profile is no JSON: {why}",
            remedy="Serve from a bundle that this adt built: adt build-target.",
        ) from why
    where = Where(remote.label, remote.emulated, RPC, name, "cpu" if opencl and _POCL.match(name) else "")
    return assemble(model.package, entry, raw, where, plain_us=plain_us, limits=limits)


def _function(remote: Remote) -> Any:
    from adt.rpc.session import lost

    try:
        return remote.model.session.get_function(REMOTE_FUNCTION)
    except Exception as why:  # TVM raises AttributeError, RPCError, …
        if lost(why):
            raise
        raise RpcError(
            f"the RPC server on {remote.name} cannot profile: it has no function {REMOTE_FUNCTION}",
            remedy="Serve from a bundle that this adt built (adt build-target, then adt rpc start), or "
            "profile without RPC: --via native.",
            details=str(why),
        ) from why
