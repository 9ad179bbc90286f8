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
    # boards, by their module
    "jetson-tx1": "sm_53",
    "jetson-nano": "sm_53",
    "jetson-tx2": "sm_62",
    "jetson-xavier": "sm_72",
    "jetson-orin": "sm_87",
    "jetson-thor": "sm_110",
    # desktops and servers
    "p100": "sm_60",
    "gtx-10": "sm_61",
    "p4": "sm_61",
    "p40": "sm_61",
    "v100": "sm_70",
    "gtx-16": "sm_75",
    "rtx-20": "sm_75",
    "t4": "sm_75",
    "a100": "sm_80",
    "a30": "sm_80",
    "rtx-30": "sm_86",
    "rtx-a": "sm_86",
    "a2": "sm_86",
    "a10": "sm_86",
    "a16": "sm_86",
    "a40": "sm_86",
    "rtx-40": "sm_89",
    "l4": "sm_89",
    "l40": "sm_89",
    "l40s": "sm_89",
    "h100": "sm_90",
    "h200": "sm_90",
    "gh200": "sm_90",
    "b200": "sm_100",
    "gb200": "sm_100",
    "b300": "sm_103",
    "gb300": "sm_103",
    "rtx-50": "sm_120",
    "rtx-pro": "sm_120",
    "dgx-spark": "sm_121",
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
