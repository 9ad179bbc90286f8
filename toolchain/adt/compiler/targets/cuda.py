"""NVIDIA's GPUs by name: the architecture that machine code for CUDA is made for.

The compute capabilities are those of NVIDIA's list (https://developer.nvidia.com/cuda-gpus). Machine code
runs on GPUs of its architecture's generation (the number without its last digit) from that digit on; what a
driver compiles itself (PTX) runs on all later ones, if the driver is as new as the compiler (CUDA 12.9).
"""

from __future__ import annotations

import re

from adt.errors import ConfigError
from adt.options.resolve import did_you_mean

CHIPS = {
    chip: architecture
    for architecture, chips in {
        "sm_53": ("jetson-tx1", "jetson-nano"),
        "sm_60": ("p100",),
        "sm_61": ("gtx-10", "p4", "p40"),
        "sm_62": ("jetson-tx2",),
        "sm_70": ("v100",),
        "sm_72": ("jetson-xavier",),
        "sm_75": ("gtx-16", "rtx-20", "t4"),
        "sm_80": ("a100", "a30"),
        "sm_86": ("rtx-30", "rtx-a", "a2", "a10", "a16", "a40"),
        "sm_87": ("jetson-orin",),
        "sm_89": ("rtx-40", "l4", "l40", "l40s"),
        "sm_90": ("h100", "h200", "gh200"),
        "sm_100": ("b200", "gb200"),
        "sm_103": ("b300", "gb300"),
        "sm_110": ("jetson-thor",),
        "sm_120": ("rtx-50", "rtx-pro"),
        "sm_121": ("dgx-spark",),
    }.items()
    for chip in chips
}
"""Boards and series of cards. Thor's is CUDA 13's name; 12.8 and 12.9 call it sm_101."""
PTX = "sm_53"
"""The oldest that computes in half precision: what drivers compile for their GPU is written for it."""


def architecture(text: str) -> str:
    """Return the architecture that people call *text*: ``sm_87``, ``8.7``, ``jetson-orin``, ``rtx-3080``."""
    plain = re.sub(r"[\s_]+", "-", text.strip().lower())
    if match := re.fullmatch(r"(?:sm-)?(\d{1,2})\.?(\d)", plain):
        return f"sm_{match[1]}{match[2]}"
    series = re.sub(r"^(rtx|gtx)-?(\d\d)\d\d(-?(ti|super))*$", r"\1-\2", plain)
    series = re.sub(r"^rtx-?(a|pro)-?\d{4}$", r"rtx-\1", series)
    if series in CHIPS:
        return CHIPS[series]
    raise ConfigError(
        f"CUDA has no architecture or chip {text!r}.{did_you_mean(plain, CHIPS)}",
        remedy=f"Give one as sm_87, or a chip: {', '.join(CHIPS)}.",
    )
