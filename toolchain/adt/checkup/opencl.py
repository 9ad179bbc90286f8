"""OpenCL on a device: which libraries lie there, which one TVM's runtime takes, and what it offers."""

from __future__ import annotations

from collections.abc import Iterator

from adt.checkup.check import Area, Check, Status
from adt.device.opencl import PLACES, OpenclReport
from adt.device.survey import DeviceFacts

ORIGIN = "files on the device"
TRIED = "adt_probe on the device"


def libraries(listed: str) -> dict[str, list[str]]:
    """Each library that is there, with the paths that lead to it.

    Args:
        listed: one ``PATH REAL_PATH`` per line.
    """
    found: dict[str, list[str]] = {}
    for line in listed.splitlines():
        path, _, real = line.partition(" ")
        found.setdefault(real or path, []).append(path)
    return found


def check(
    serial: str, facts: DeviceFacts, listed: str, public: str, report: OpenclReport | None, why_not: str
) -> Iterator[Check]:
    """Say which OpenCL libraries the device has, and which of them works with TVM's runtime.

    Args:
        listed: what :func:`libraries` reads.
        public: the device's lists of libraries that apps may open.
        report: what each library answered; None when none was tried.
        why_not: why none was tried.
    """
    found = libraries(listed)
    answered = report is not None and any(candidate.platforms for candidate in report.candidates)
    if not found and not answered:
        yield _none(serial, facts, report)
        return
    if report is None:
        yield _by_name(serial, found, why_not)
    else:
        yield from _tried(serial, facts, report)
    names = {path.rpartition("/")[2] for paths in found.values() for path in paths}
    allowed = sorted(names & {line.split()[0] for line in public.splitlines() if line.strip()})
    if facts.abis and not facts.virtual:
        app = f"apps may open {', '.join(allowed)}" if allowed else "apps may open none of them"
        yield Check(
            Area.DEVICE,
            f"{serial}: OpenCL in apps",
            Status.OK if allowed else Status.WARNING,
            app,
            "public.libraries.txt",
            ""
            if allowed
            else "Programs run by adt are not affected; an app on this device has to use the CPU.",
        )


def _none(serial: str, facts: DeviceFacts, report: OpenclReport | None) -> Check:
    name, origin = f"{serial}: OpenCL", TRIED if report else ORIGIN
    places = f"none in {len(PLACES)} known places"
    if facts.virtual:
        usual = f"{places}, as on every virtual device that was not given one"
        return Check(Area.DEVICE, name, Status.OK, usual, origin)
    return Check(
        Area.DEVICE,
        name,
        Status.WARNING,
        f"{places}: models compiled for OpenCL will not run here",
        origin,
        "Compile for the CPU: adt compile MODEL --target cpu",
    )


def _by_name(serial: str, found: dict[str, list[str]], why_not: str) -> Check:
    shown = "; ".join(
        real + (f" (also {', '.join(also)})" if (also := [p for p in paths if p != real]) else "")
        for real, paths in found.items()
    )
    what = f"{shown}; loading was not tried: {why_not}"
    return Check(Area.DEVICE, f"{serial}: OpenCL", Status.OK, what, ORIGIN)


def _tried(serial: str, facts: DeviceFacts, report: OpenclReport) -> Iterator[Check]:
    """What the libraries answered: the one that TVM's runtime takes first, then those that fail."""
    chosen, device, platform = report.chosen, report.device, report.platform
    if chosen and device and platform:
        width, height = device.image2d_max_width, device.image2d_max_height
        size = f"images up to {width} × {height}" if device.images else "no images"
        yield Check(
            Area.DEVICE,
            f"{serial}: OpenCL",
            Status.OK,
            f"{chosen.library}: {platform.name}, {device.kind} {device.name}, "
            f"driver {device.driver_version}, {size}, fp16 {'yes' if device.fp16 else 'no'}",
            TRIED,
        )
    else:
        yield _unusable(serial, facts, report)
    for candidate in report.candidates:
        if candidate is not chosen and not candidate.platforms and not candidate.absent:
            what = f"{candidate.library} {candidate.outcome}: {candidate.said}"
            yield Check(Area.DEVICE, f"{serial}: OpenCL library", Status.OK, what, TRIED)


def _unusable(serial: str, facts: DeviceFacts, report: OpenclReport) -> Check:
    """TVM's runtime will not find an OpenCL device; some other library may have one."""
    name, chosen = f"{serial}: OpenCL", report.chosen
    elsewhere = [c.library for c in report.candidates if c is not chosen and c.platforms]
    if chosen is None:
        what = "TVM's runtime opens none of the libraries that are there"
    else:
        refused = [
            f"{device.name}: {device.refused_by_tvm}"
            for platform in chosen.platforms
            for device in platform.devices
            if device.refused_by_tvm
        ]
        why = chosen.said or "; ".join(refused) or "it offers no GPU and no CPU"
        what = f"TVM's runtime takes {chosen.library} and finds no device: {why}"
    remedy = "Compile for the CPU: adt compile MODEL --target cpu"
    if elsewhere:
        what += f"; {', '.join(elsewhere)} would answer, but TVM's runtime does not open it"
        if facts.platforms[0].startswith("linux-"):
            remedy = f"On the device, as root: ln -s {elsewhere[0]} /usr/local/lib/libOpenCL.so"
    return Check(Area.DEVICE, name, Status.WARNING, what, TRIED, remedy)
