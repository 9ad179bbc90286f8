"""Report of adt_probe that was recorded on a server's GPU, and changed ones."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from adt.device.opencl import OpenclReport, parse_report

RECORDED = (Path(__file__).parents[2] / "golden/adt_probe_nvidia.json").read_text()
NVIDIA = parse_report(RECORDED)
"""Report with NVIDIA's driver 580 on an H200 (a server's GPU, no phone's), shortened."""


def with_device(**changes: Any) -> OpenclReport:
    """Return the report with other facts of its only device."""
    first, *others = NVIDIA.candidates
    platform = first.platforms[0]
    other = replace(platform, devices=(replace(platform.devices[0], **changes),))
    return replace(NVIDIA, candidates=(replace(first, platforms=(other,)), *others))
