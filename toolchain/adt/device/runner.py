"""Run a deployed model on the device with ``rtvm`` and bring its outputs back."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import signal
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adt.device.deploy import Deployment
from adt.device.device import Device
from adt.device.shell import Completed
from adt.device.workspace import workspace
from adt.errors import AdtError, InputError, MismatchError, RunError
from adt.host.npz import DamagedNpz, read_npz

if TYPE_CHECKING:
    import numpy as np

log = logging.getLogger("adt.run")

# Exit codes of rtvm
OK, USAGE, DOES_NOT_FIT, BAD_INPUT, RUN_FAILED = 0, 2, 3, 4, 5
NOT_EXECUTABLE, NOT_FOUND = 126, 127

# LD_LIBRARY_PATH: the programs are links into the store, so their $ORIGIN is not beside lib/;
# and Android looks for what mod.so needs from where mod.so is.
_RUN = """
cd "$1" || exit 5
if ! touch -c "$2" || ! [ -f "$2" ]; then
  echo "error: the deployment is not on the device any more" >&2
  echo "remedy: run the same command again: it is sent again" >&2
  exit 5
fi
LD_LIBRARY_PATH=$3${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
shift 3
exec "$@"
"""


@dataclass(frozen=True)
class RunResult:
    """What one run of a model gave."""

    outputs: dict[str, np.ndarray]
    """Every output of the entry, by name."""
    report: dict[str, Any]
    """The JSON object that rtvm printed: what ran, on what, and its times."""
    virtual: bool
    """The device was a virtual one: the report's times are an emulator's, and no device's speed."""


def run_on_device(
    device: Device,
    deployment: Deployment,
    *,
    inputs: Mapping[str, np.ndarray] | None = None,
    seed: int = 0,
    entry: str = "main",
    run_count: int = 1,
    dry_run: int = 0,
    device_kind: str = "cpu",
    timeout: float | None = 600.0,
) -> RunResult:
    """Run *entry* of the deployed model in a directory of its own, which is gone afterwards.

    Args:
        inputs: every input by name; None lets rtvm make them up from *seed*.
        run_count: how often it runs for timing, after *dry_run* runs that do not count.
        device_kind: ``cpu`` or ``opencl``.
        timeout: seconds that rtvm may take in total.

    Raises:
        InputError: the inputs do not fit the model.
        MismatchError: the package does not fit the runtime.
        RunError: rtvm failed, was killed, or gave no outputs.
        DeviceFull, DeviceError: there is no room, or the connection broke.
    """
    if device_kind not in ("cpu", "opencl") or run_count < 1 or dry_run < 0:
        raise InputError(
            f"cannot run {run_count} times after {dry_run} on {device_kind!r}",
            remedy="Give a run count of at least 1, a dry-run count of at least 0, and cpu or opencl.",
        )
    data = npz_bytes(inputs) if inputs is not None else None
    home = deployment.directory
    argv = [f"{home}/bin/rtvm", "--model", f"{home}/model", "--device", device_kind]
    argv += ["--entry", entry, "--seed", str(seed), "--dry-run", str(dry_run), "--run-count", str(run_count)]
    argv += ["--input", "in.npz"] if data is not None else []
    argv += ["--output", "out.npz", "--json"]
    with workspace(device, f"{deployment.base}/runs", uses=deployment.digest) as there:
        if data is not None:
            device.push(data, f"{there}/in.npz", timeout=timeout)
        done = device.script(
            _RUN,
            there,
            deployment.manifest,
            f"{home}/lib",
            *argv,
            timeout=timeout,
            check=False,
            doing=f"rtvm on {device.serial}",
        )
        if done.err.strip():
            log.debug("rtvm: %s", done.err.strip())
        if done.exit_code != OK:
            raise explain(done)
        report = parse_report(done)
        with tempfile.TemporaryDirectory(prefix="adt-run-") as here:
            local = Path(here) / "out.npz"
            device.pull(f"{there}/out.npz", local, timeout=timeout)
            return RunResult(load_npz(local), report, virtual=device.facts.virtual)


def npz_bytes(arrays: Mapping[str, np.ndarray]) -> bytes:
    """*arrays* as an uncompressed npz file, each name kept as it is.

    (numpy.savez cannot take an array called ``file``.)

    Raises:
        InputError: an array holds Python objects.
    """
    import numpy as np

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            one = io.BytesIO()
            try:
                np.lib.format.write_array(one, np.asarray(array, order="C"), allow_pickle=False)
            except ValueError as why:
                raise InputError(
                    f"the input {name} is of type {np.asarray(array).dtype}: {why}",
                    remedy="Give arrays of numbers or booleans.",
                ) from why
            archive.writestr(f"{name}.npy", one.getvalue())
    return buffer.getvalue()


def load_npz(path: Path) -> dict[str, np.ndarray]:
    """Every array of the file that rtvm wrote.

    Raises:
        RunError: it is damaged.
    """
    try:
        return read_npz(path)
    except (DamagedNpz, FileNotFoundError) as why:
        raise RunError(
            f"the outputs that came back from the device cannot be read: {why}",
            remedy="Run again; if it stays so, rebuild the bundle: its rtvm does not fit this adt.",
        ) from why


def parse_report(done: Completed) -> dict[str, Any]:
    """The JSON object on rtvm's stdout.

    Raises:
        RunError: there is none.
    """
    with contextlib.suppress(ValueError):
        report = json.loads(done.out)
        if isinstance(report, dict):
            return report
    raise RunError(
        "rtvm did not print its report",
        remedy="Rebuild the bundle (adt build-target): its rtvm does not fit this adt.",
        details=done.tail(),
    )


_MEANINGS = {
    "SIGKILL": "; SIGKILL mostly means that memory ran out.",
    "SIGILL": "; the package may use CPU features that this device lacks: compile it without --like, or "
    "like this device.",
}
"""What some signals mostly mean."""


def explain(done: Completed) -> AdtError:
    """The error for a failed run: rtvm's own message and remedy, of the class its exit code means."""
    said, code = done.err or done.out, done.exit_code
    serial = done.serial
    if code > 128 and (name := _signal_name(code - 128)):
        return RunError(
            f"rtvm was ended by {name} on {serial}",
            remedy=f"Look at the device's crash log: adb -s {serial} logcat -d -b crash"
            + _MEANINGS.get(name, "."),
            details=done.tail(),
        )
    if (
        code in (NOT_EXECUTABLE, NOT_FOUND)
        or "CANNOT LINK EXECUTABLE" in said
        or "error while loading" in said
    ):
        return RunError(
            f"rtvm does not start on {serial}",
            remedy="Deploy again; if it stays so, the bundle does not fit the device: build it for the "
            "device's platform (adt build-target --for PLATFORM).",
            details=done.tail(),
        )
    messages = re.findall(r"^(?:rtvm: )?error: (.*)$", said, re.MULTILINE)
    remedies = re.findall(r"^(?:rtvm: )?remedy: (.*)$", said, re.MULTILINE)
    kind, otherwise = {
        USAGE: (
            RunError,
            "Rebuild the bundle (adt build-target): its rtvm does not know what this adt asks for.",
        ),
        DOES_NOT_FIT: (MismatchError, "Compile the model again for the bundle that is on the device."),
        BAD_INPUT: (InputError, "adt inspect shows the inputs that the model takes."),
    }.get(code, (RunError, f"Look at the device's log: adb -s {serial} logcat -d"))
    error: AdtError = kind(
        messages[-1].strip() if messages else f"rtvm failed on {serial} (exit code {code})",
        remedy=remedies[-1].strip() if remedies else otherwise,
        details="" if messages else done.tail(),
    )
    return error


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return ""
