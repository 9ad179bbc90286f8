"""One shell script that reads what the kernel and Android say, and what its output means (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from adt.device.probe.cores import core_name
from adt.device.probe.facts import Cpu, CpuCluster, Gpu, Memory, Thermal, ThermalZone

SECTIONS = ("boot", "kernel", "selinux", "memory", "cpuinfo", "cpus", "thermal", "gpu", "board")

PLAUSIBLE = (-40.0, 200.0)
"""°C: what a thermal zone of a phone that is on can have; a sensor that is off reports something else."""


@dataclass(frozen=True)
class Survey:
    """What the script found; a part that it could not read is None, and *missing* says why."""

    boot: str
    kernel: str
    selinux: str | None
    cpu: Cpu | None
    memory: Memory | None
    thermal: Thermal | None
    gpu: Gpu | None
    board: str
    """What the device tree calls the machine; empty without one."""
    board_soc: str
    """The most general name in the device tree's list: the system on chip."""
    missing: Mapping[str, str]


def parse(text: str) -> Survey:
    """Read what ``probe_survey.sh`` printed."""
    part = _sections(text)
    missing: dict[str, str] = {}
    selinux = part["selinux"].strip()
    if selinux not in ("Enforcing", "Permissive", "Disabled"):
        missing["selinux"] = _said(selinux, "getenforce")
    cpu = parse_cpu(part["cpuinfo"], part["cpus"])
    if cpu is None:
        missing["cpu"] = _said(part["cpuinfo"], "/proc/cpuinfo")
    memory = parse_memory(part["memory"])
    if memory is None:
        missing["memory"] = _said(part["memory"], "/proc/meminfo")
    thermal = parse_thermal(part["thermal"])
    if thermal is None:
        missing["thermal"] = "there is no zone in /sys/class/thermal, or it may not be listed"
    gpu = parse_gpu(part["gpu"])
    if gpu is None:
        missing["gpu"] = "no GPU driver's file in /sys names it"
    board, _, compatible = part["board"].partition("\n")
    return Survey(
        boot=part["boot"].strip(),
        kernel=part["kernel"].strip(),
        selinux=None if "selinux" in missing else selinux,
        cpu=cpu,
        memory=memory,
        thermal=thermal,
        gpu=gpu,
        board=board.strip(),
        board_soc=(compatible.split() or [""])[-1],
        missing=missing,
    )


def _sections(text: str) -> dict[str, str]:
    found = dict.fromkeys(SECTIONS, "")
    pieces = re.split(r"^==(\w+)==\r?\n", text.replace("\r\n", "\n"), flags=re.MULTILINE)
    found.update(zip(pieces[1::2], pieces[2::2], strict=False))
    return found


def _said(text: str, source: str) -> str:
    """Why *source* gave nothing of use: what it said instead, shortened."""
    line = text.strip().partition("\n")[0]
    return f"{source}: {line[:120]}" if line else f"{source} says nothing"


def parse_memory(meminfo: str) -> Memory | None:
    """Read /proc/meminfo, which counts in KiB and calls them kB."""
    found = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", meminfo, re.MULTILINE))
    if "MemTotal" not in found:
        return None
    available = found.get("MemAvailable")
    return Memory(int(found["MemTotal"]) * 1024, int(available) * 1024 if available else None)


def parse_thermal(rows: str) -> Thermal | None:
    """Read ``TEMPERATURE TYPE`` rows (millidegrees Celsius); None when there is no zone at all."""
    zones, unreadable = [], 0
    for row in rows.splitlines():
        temperature, _, kind = row.strip().partition(" ")
        celsius = int(temperature) / 1000 if re.fullmatch(r"-?\d+", temperature) else None
        if celsius is None or not PLAUSIBLE[0] <= celsius <= PLAUSIBLE[1]:
            unreadable += 1
        else:
            zones.append(ThermalZone(kind, celsius))
    return Thermal(tuple(zones), unreadable) if zones or unreadable else None


def parse_gpu(rows: str) -> Gpu | None:
    """Read ``FILE NAME`` rows; the first one counts."""
    for row in rows.splitlines():
        path, _, name = row.partition(" ")
        if name.strip():
            # Mali's driver goes on with cores, revision and identifier: "Mali-G78 20 cores r0p1 0x9202"
            return Gpu(re.sub(r" \d+ cores? .*", "", name.strip()), path)
    return None


@dataclass(frozen=True)
class _Row:
    """One CPU."""

    number: int
    core: str
    part: str
    min_khz: int | None
    max_khz: int | None
    current_khz: int | None
    governor: str


def parse_cpu(cpuinfo: str, rows: str) -> Cpu | None:
    """Group the CPUs to clusters.

    Args:
        cpuinfo: /proc/cpuinfo, which lists the CPUs that are online.
        rows: number, lowest, highest and present clock (kHz), governor and ID register of each CPU.
    """
    online = _cpuinfo(cpuinfo)
    table = [words for row in rows.splitlines() if (words := row.split()) and words[0].isdigit()]
    clocks = {int(words[0]): words[1:] for words in table}
    numbers = sorted({*online, *clocks})
    cpus = [_row(number, online.get(number, {}), clocks.get(number, [])) for number in numbers]
    if not cpus:
        return None
    features = [(cpu.get("Features") or cpu.get("flags") or "").split() for cpu in online.values() if cpu]
    common = set.intersection(*map(set, features)) if features else set()
    clusters = sorted(_clusters(cpus), key=lambda cluster: (cluster.max_khz or 0, cluster.cpus))
    return Cpu(tuple(clusters), tuple(name for name in (features or [[]])[0] if name in common))


def _cpuinfo(text: str) -> dict[int, dict[str, str]]:
    """Each online CPU's fields; what stands outside of any CPU's block is every CPU's."""
    shared: dict[str, str] = {}
    found: dict[int, dict[str, str]] = {}
    for block in re.split(r"\n\s*\n", text.strip()):
        pairs = [line.partition(":") for line in block.splitlines() if ":" in line]
        fields = {key.strip(): value.strip() for key, _, value in pairs}
        number = fields.get("processor", "")
        if number.isdigit():
            found[int(number)] = fields
        else:
            shared.update(fields)
    return {number: {**shared, **fields} for number, fields in found.items()}


def _row(number: int, fields: Mapping[str, str], clock: list[str]) -> _Row:
    lowest, highest, current, governor, midr = (clock + ["-"] * 5)[:5]
    implementer, part = _hex(fields.get("CPU implementer")), _hex(fields.get("CPU part"))
    if (implementer is None or part is None) and (register := _hex(midr)) is not None:
        implementer, part = register >> 24 & 0xFF, register >> 4 & 0xFFF
    core, identity = fields.get("model name", ""), ""
    if implementer is not None and part is not None:
        core, identity = core_name(implementer, part), f"{implementer:#x}/{part:#05x}"
    return _Row(
        number,
        core=core,
        part=identity,
        min_khz=_khz(lowest),
        max_khz=_khz(highest),
        current_khz=_khz(current),
        governor="" if governor == "-" else governor,
    )


def _hex(text: str | None) -> int | None:
    return int(text, 16) if text and re.fullmatch(r"0x[0-9a-fA-F]+", text) else None


def _khz(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _clusters(cpus: list[_Row]) -> Iterator[CpuCluster]:
    """CPUs of one kind and highest clock; one that is offline joins the only cluster that it can be of."""
    groups: dict[tuple[str, int | None], list[_Row]] = {}
    for cpu in cpus:
        groups.setdefault((cpu.part or cpu.core, cpu.max_khz), []).append(cpu)
    for key in [key for key in groups if not key[0] or key[1] is None]:
        kind, clock = key
        fitting = [
            other
            for other in groups
            if all(other) and (not kind or other[0] == kind) and (clock is None or other[1] == clock)
        ]
        if len(fitting) == 1:
            groups[fitting[0]] += groups.pop(key)
    for (_, clock), members in groups.items():
        yield CpuCluster(
            cpus=tuple(sorted(cpu.number for cpu in members)),
            core=next((cpu.core for cpu in members if cpu.core), ""),
            part=next((cpu.part for cpu in members if cpu.part), ""),
            min_khz=min((cpu.min_khz for cpu in members if cpu.min_khz), default=None),
            max_khz=clock,
            current_khz=max((cpu.current_khz for cpu in members if cpu.current_khz), default=None),
            governor=next((cpu.governor for cpu in members if cpu.governor), ""),
        )
