"""Facts of a GPU for schedules: tables by family, and what a device itself reports.

Each row is made of facts that are public, by one rule for a family. Adreno's:

- *Mesa*: the open driver's ``src/freedreno/common/freedreno_devices.py`` has for each
  GPU the shader cores (``num_sp_cores``), the work-items that one holds at the same time
  (``fibers_per_sp``), the registers (``reg_size_vec4``, float4, in the unit in which a
  kernel that uses ``n`` of them leaves room for ``2 * reg_size_vec4 / n`` waves) and the
  bytes of local memory (``cs_shared_mem_size``); ``src/freedreno/ir3/ir3_compiler.c`` has
  those of Adreno 5xx and the wave (``threadsize_base``).
- *Qualcomm*: its engineers' word in llama.cpp's OpenCL backend (pull request 23312): waves
  are of 64 from Adreno 8xx on, and before that of 64 or 128, as the compiler chooses for
  a kernel. A multiple of 64 is right for both.

The other families':

- *Mali*: the work-items in lock step (none on Midgard, whose arithmetic is of vectors; 4, 8 and 16 from
  Bifrost on), the 64 registers of 32 bits of a work-item, groups of 4 to 64 work-items in multiples of 4,
  and local memory that is main memory behind the same caches are in Arm's OpenCL developer guides (100614,
  101574) and section 8 of its Best Practices guide. Midgard's 16 registers of 128 bits, and how many
  work-items a core holds if each has all registers, are in Mesa's panfrost (``panfrost_max_thread_count``).
  Arm's Compute Library keeps 4 to 5 sums of float4 (``ClGemmDefaultConfigReshaped*``: 4 x 4 and 5 x 4). Of
  the 5th generation no other figures are public: it has Valhall's. The numbers of cores are usual ones.
- *PowerVR*: tasks of up to 32 work-items (Imagination's Compute Development Recommendations); how many a
  cluster holds and the number of clusters: ``usc_slots`` and ``num_clusters`` of Mesa's
  ``src/imagination/common/device_info`` (Rogue, A and B series). No source says how many registers a
  work-item may have at that: Mali's are taken. Nor is there one for later series: they have B's. Local
  memory: the least of OpenCL's full profile.
- *Intel*: an execution unit holds 7 threads of 128 registers of 32 bytes (The Compute Architecture of Intel
  Processor Graphics Gen9), of 8, 16 or 32 work-items as the compiler chooses, here 16. Groups that share
  memory have 64 to 256 work-items, and a sub-slice has 64 KB for them (Intel's OpenCL developer guide). Xe
  and Arc have the same row. 24 units are a UHD 620's.
- *NVIDIA*: the one row that was measured, on an H200, whose times the model of costs was fitted to
  (:mod:`adt.compiler.passes.gpu.tiles`): Adreno's default. Its warps are of 32 work-items, and groups
  multiples of two.

None of the others was measured: adt has met none yet.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """A GPU as a schedule sees it."""

    name: str
    """A row of the table, or what the device calls itself."""
    wave: int
    """Work-items that run in lock step: work-groups are multiples of it where they can be."""
    work_group: int
    """Work-items in a work-group, at most, that a schedule uses."""
    items: int
    """Work-items that keep the whole GPU busy: cores x waves x wave."""
    sums: int
    """Sums of four floats that a work-item may keep in registers."""
    local_bytes: int
    """Local memory of a work-group that a schedule may use; 0: it is no faster than other memory."""
    largest_group: int = 256
    """Work-items in a work-group, at most, where it is alone on the GPU or nearly so."""

    def fitted(self, row: Gpu) -> Gpu:
        """Limit the *row* that was fitted to the same device's times to this one's limits."""
        return dataclasses.replace(
            row,
            wave=min(row.wave, self.work_group),
            work_group=min(row.work_group, self.work_group),
            local_bytes=min(row.local_bytes, self.local_bytes),
        )


@dataclass(frozen=True)
class _Chip:
    """Facts of some GPUs; see the module for their source."""

    models: str  # their numbers
    cores: int
    fibers: int  # work-items in one core, at most
    registers: int  # ``reg_size_vec4``
    wave: int = 64
    local: int = 32 << 10  # bytes


_CHIPS = (
    # The wave, and the registers of all 5xx: ir3_compiler.c.
    _Chip("505 506 508 509", cores=1, fibers=64 * 16, registers=48, wave=32),
    _Chip("510 512", cores=2, fibers=64 * 16, registers=48, wave=32),
    _Chip("530 540", cores=4, fibers=64 * 16, registers=48, wave=32),
    _Chip("605 608 610 612", cores=1, fibers=128 * 16, registers=48, local=16 << 10),
    _Chip("615 616 618 619 620", cores=1, fibers=128 * 16, registers=96),
    _Chip("630", cores=2, fibers=128 * 16, registers=96),
    _Chip("640", cores=2, fibers=128 * 4 * 16, registers=96),
    _Chip("621 635 643", cores=2, fibers=128 * 2 * 16, registers=64),
    _Chip("650 660", cores=3, fibers=128 * 2 * 16, registers=64),
    _Chip("644 662 663", cores=3, fibers=128 * 4 * 16, registers=64),
    _Chip("680", cores=4, fibers=128 * 4 * 16, registers=96),
    _Chip("690", cores=8, fibers=128 * 2 * 16, registers=64),
    _Chip("735", cores=3, fibers=128 * 2 * 16, registers=96),
    _Chip("725 730", cores=4, fibers=128 * 2 * 16, registers=96),
    _Chip("740 750", cores=6, fibers=128 * 2 * 16, registers=96),
    _Chip("830", cores=6, fibers=128 * 2 * 16, registers=96),
)
_TYPICAL = {"5": "510", "6": "650", "7": "730", "8": "830"}
"""GPUs whose row serves those of a generation that have none."""

ANY = "any Adreno"  # the name of the default: a package for it is to run on each of them


@dataclass(frozen=True)
class _Family:
    """Facts of GPUs whose names *pattern* finds; see the module for their source."""

    name: str
    pattern: str
    wave: int  # work-items in lock step, or what groups are multiples of
    work_group: int
    threads: int
    """Work-items that a core (as OpenCL counts compute units) holds if each has all registers it may have."""
    cores: int  # usual number; the device's own counts
    registers: int = 16  # number of float4 of a work-item
    local: int = 0  # bytes of a work-group; 0: main memory


_FAMILIES = (
    _Family("Mali Midgard", r"mali-t\d", wave=4, work_group=64, threads=64, cores=4),
    _Family("Mali Bifrost", r"(mali|immortalis).*g(31|51|71|72)\b", 4, 64, threads=384, cores=8),
    _Family("Mali Bifrost", r"(mali|immortalis).*g(52|76)\b", 8, 64, threads=384, cores=8),
    _Family("Mali Valhall", r"(mali|immortalis).*g(57|68|77|78|[3-7]1[05])\b", 16, 64, threads=512, cores=8),
    _Family("Mali 5th generation", r"(mali|immortalis).*g(1|\d2[05])\b", 16, 64, threads=512, cores=8),
    _Family("any Mali", r"mali|immortalis", 16, 64, threads=512, cores=8),
    _Family(
        "PowerVR Rogue GX", r"(powervr|img).*gx?6\d{3}", 32, 32, threads=32 * 32, cores=2, local=32 << 10
    ),
    _Family("PowerVR", r"powervr|img [a-e]", 32, 32, threads=64 * 32, cores=1, local=32 << 10),
    _Family("Intel", r"intel.*(graphics|arc)", 16, 64, threads=7 * 16, cores=24, local=64 << 10),
)
"""The first whose pattern a name has is its own."""

_NVIDIA = re.compile("nvidia|geforce|quadro|tesla", re.IGNORECASE)

_NUMBER = re.compile(r"(?:adreno|fd|qcom)\D{0,8}?([5-8]\d\d)(?!\d)", re.IGNORECASE)
_LAPTOPS = {"x1-85": "740", "7c+ gen 3": "635", "8c gen 3": "635", "8cx gen 3": "690"}
"""Adrenos that go by no number, and the phone's GPU that Mesa has the same facts of."""


def gpu_of(name: str, limits: Mapping[str, int], cores: int = 0) -> Gpu:
    """Describe the GPU *name* for schedules.

    Args:
        name: what the device calls it (``Adreno730v2``, ``FD650``, ``Mali-G78 r0p1``); empty for any Adreno.
            Where the name says no family, it has what suits any Adreno.
        limits: as attributes of TVM's opencl target, see :func:`adt.device.probe.opencl_limits`;
            what is not there is not known, and the table's counts.
        cores: compute units that the device reports; 0: it does not.
    """
    number = next((number for words, number in _LAPTOPS.items() if words in name.lower()), "")
    if match := _NUMBER.search(name):
        number = number or match[1]
    family = next((row for row in _FAMILIES if re.search(row.pattern, name, re.IGNORECASE)), None)
    if number:
        gpu = _gpu(f"Adreno {number[0]}xx", _chip(number))
    elif family is not None:
        gpu = _family_gpu(family, cores)
    else:  # the usual one, with no more local memory than the smallest
        called = "NVIDIA" if _NVIDIA.search(name) else name or ANY
        smallest = min(chip.local for chip in _CHIPS)
        gpu = dataclasses.replace(_gpu(called, _chip(_TYPICAL["7"])), local_bytes=smallest // 2)
    group = limits.get("max_threads_per_block", limits.get("max_num_threads", gpu.largest_group))
    local = limits.get("max_shared_memory_per_block", 2 * gpu.local_bytes)
    return dataclasses.replace(
        gpu,
        work_group=max(1, min(gpu.work_group, group)),
        wave=max(1, min(gpu.wave, group)),
        largest_group=max(1, min(gpu.largest_group, group)),
        local_bytes=local // 2 if number else min(gpu.local_bytes, local // 2),
    )


def _family_gpu(family: _Family, cores: int) -> Gpu:
    """Make a row of the facts of any GPU but an Adreno."""
    return Gpu(
        family.name,
        family.wave,
        family.work_group,
        items=(cores or family.cores) * family.threads,
        # The model lets a tile hold three times its sums: sums, inputs and weights fit the registers.
        sums=family.registers // 3,
        local_bytes=family.local // 2,  # so that a core holds two groups
        largest_group=max(family.work_group, _power_of_two(family.threads // 4)),
    )


def _gpu(name: str, chip: _Chip) -> Gpu:
    """Make a row of a chip's facts."""
    return Gpu(
        name,
        wave=chip.wave,
        # Two waves, or one of Qualcomm's double ones: enough to share a sum, and small enough that
        # several groups lie in a core, so that it has work while one of them waits at a barrier.
        work_group=2 * chip.wave,
        # A core holds that many only of kernels with few registers; a kernel that uses as many as
        # :attr:`Gpu.sums` allows leaves room for a quarter.
        items=chip.cores * chip.fibers // 4,
        # With as many registers again for what is multiplied and for indices, four waves are left.
        sums=_power_of_two(chip.registers // 4),
        # So that a core holds two groups.
        local_bytes=chip.local // 2,
    )


def _chip(number: str) -> _Chip:
    """Return the facts of the Adreno *number*; of one without a row its generation's usual."""
    chips = {number: chip for chip in _CHIPS for number in chip.models.split()}
    return chips.get(number) or chips[_TYPICAL[number[0]]]


def _power_of_two(limit: int) -> int:
    """Return the greatest power of two that is not above *limit*."""
    return 1 << (limit.bit_length() - 1)


ANY_ADRENO = gpu_of("", {})  # for a package that is to run on each of them
