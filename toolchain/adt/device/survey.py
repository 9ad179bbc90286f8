"""Survey of a device: one shell script, whose parts are asked for by name, and the meaning of its answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from adt.device.scripts import script
from adt.host.process import run
from adt.limits import natural
from adt.package.compatibility import common_features

TEMP = "/data/local/tmp"
"""Directory in which the shell user may write and execute."""

FACTS = ("machine", "page", "features", "properties")
"""Parts of the script from which :attr:`Survey.facts` is read."""
HARDWARE = ("boot", "kernel", "selinux", "memory", "cpuinfo", "cpus", "thermal", "gpu", "board")
"""Parts that ``adt probe`` shows."""
CONDITIONS = ("governors", "thermal", "processor", "board", "battery", "screen")
"""Parts that tell the state of the machine before something is measured on it."""
STORAGE = ("space", "programs", "libraries", "public", "deployments", "store")
"""Parts that tell whether the machine takes what adt sends, and what of that is there."""

PLAUSIBLE = (-40.0, 200.0)
"""°C: what a thermal zone of a phone that is on can have; a sensor that is off reports something else."""


@dataclass(frozen=True)
class DeviceFacts:
    properties: Mapping[str, str]
    """Everything ``getprop`` prints."""
    machine: str
    """``uname -m``."""
    page_size: int | None
    """Bytes; None when the device does not say."""
    cpu_features: frozenset[str] = frozenset()
    """Features of every CPU, in the kernel's names (``asimddp``); empty when the device does not say."""

    @property
    def abis(self) -> tuple[str, ...]:
        """Android's ABI names, the preferred one first; empty on a device that is not Android."""
        first = self.properties.get("ro.product.cpu.abi", "")
        listed = self.properties.get("ro.product.cpu.abilist") or first
        return tuple(abi for abi in listed.split(",") if abi)

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms whose bundles run here, the preferred one first.

        A virtual device names its own (``ro.adt.platform``); Android runs one
        for each of its ABIs; anything else is a Linux of its machine.
        """
        if own := self.properties.get("ro.adt.platform"):
            return (own,)
        return tuple(f"android-{abi}" for abi in self.abis) or (f"linux-{self.machine}",)

    @property
    def api_level(self) -> int | None:
        """Android's API level; None on a device that is not Android."""
        level = natural(self.properties.get("ro.build.version.sdk", ""))
        return level if self.platforms[0].startswith("android-") else None

    @property
    def virtual(self) -> bool:
        """Return True if this is adt's virtual device: its numbers count, its times do not."""
        return "ro.adt.platform" in self.properties

    @property
    def emulated(self) -> bool:
        """Return True if a program emulates the processor: a virtual device, or an Android emulator."""
        qemu = (self.properties.get(key) for key in ("ro.kernel.qemu", "ro.boot.qemu"))
        hardware = self.properties.get("ro.hardware", "")
        return self.virtual or "1" in qemu or hardware in ("goldfish", "ranchu")

    @property
    def label(self) -> str:
        model = self.properties.get("ro.product.model", "unknown model")
        if self.virtual:
            return f"{model} (virtual device: {self.platforms[0]} behind ADB, no speed)"
        level = f", API {self.api_level}" if self.api_level is not None else ""
        return f"{model} ({', '.join(self.platforms)}{level})"


@dataclass(frozen=True)
class CpuCluster:
    """CPUs of one kind with one clock."""

    cpus: tuple[int, ...]
    core: str
    """``Cortex-A55``, …; empty when adt's table does not know the part."""
    part: str
    """Implementer and part as the CPU's ID register gives them (``0x41/0xd05``); empty when not told."""
    min_khz: int | None
    max_khz: int | None
    """Lowest and highest clock of the hardware, kHz."""
    current_khz: int | None
    """Highest clock of its CPUs at the moment of the probe, kHz."""
    governor: str
    """Empty when not told."""


@dataclass(frozen=True)
class Cpu:
    clusters: tuple[CpuCluster, ...]
    """The slowest first."""
    features: tuple[str, ...]
    """Features of every CPU, as the kernel names them (``asimddp``, ``fphp``, …)."""


@dataclass(frozen=True)
class Memory:
    total: int
    """Bytes."""
    available: int | None
    """Bytes that can be had without swapping; None on kernels that do not say."""


@dataclass(frozen=True)
class ThermalZone:
    kind: str
    """The zone's type, named by the vendor."""
    celsius: float


@dataclass(frozen=True)
class Thermal:
    zones: tuple[ThermalZone, ...]
    unreadable: int
    """Zones that the shell may not read, or that report no plausible temperature."""


@dataclass(frozen=True)
class Gpu:
    name: str
    source: str
    """Source of the name: a file of the kernel, ``OpenCL`` or a property."""


@dataclass(frozen=True)
class Survey:
    """The script's output; what was not asked for, or could not be read, is empty or None."""

    text: Mapping[str, str]
    """Output of each part."""

    def __getitem__(self, part: str) -> str:
        """Return the output of *part*, without blanks around it."""
        return self.text.get(part, "").strip()

    @cached_property
    def facts(self) -> DeviceFacts:
        """Return what decides which bundles and packages the device takes."""
        # a value may have line breaks in it; it ends at a "]" that ends a line
        properties = re.findall(r"^\[([^\]\n]+)\]: \[(.*?)\]$", self["properties"], re.MULTILINE | re.DOTALL)
        features = common_features(self["features"], self["machine"])
        return DeviceFacts(dict(properties), self["machine"], natural(self["page"]), features)

    @property
    def selinux(self) -> str | None:
        """``Enforcing``, ``Permissive`` or ``Disabled``."""
        return self["selinux"] if self["selinux"] in ("Enforcing", "Permissive", "Disabled") else None

    @cached_property
    def cpu(self) -> Cpu | None:
        return _cpu(self["cpuinfo"], self["cpus"])

    @cached_property
    def memory(self) -> Memory | None:
        """Main memory, of /proc/meminfo, which counts in KiB and calls them kB."""
        rows = re.findall(r"^(MemTotal|MemAvailable):\s+(\d{1,18}) kB", self["memory"], re.MULTILINE)
        sizes = {name: int(size) * 1024 for name, size in rows}
        return Memory(sizes["MemTotal"], sizes.get("MemAvailable")) if "MemTotal" in sizes else None

    @cached_property
    def thermal(self) -> Thermal | None:
        """The temperatures, of ``TEMPERATURE TYPE`` rows (millidegrees Celsius); None without any zone."""
        zones, unreadable = [], 0
        for row in self["thermal"].splitlines():
            temperature, _, kind = row.strip().partition(" ")
            celsius = int(temperature) / 1000 if re.fullmatch(r"-?\d{1,9}", temperature) else None
            if celsius is None or not PLAUSIBLE[0] <= celsius <= PLAUSIBLE[1]:
                unreadable += 1
            else:
                zones.append(ThermalZone(kind, celsius))
        return Thermal(tuple(zones), unreadable) if zones or unreadable else None

    @property
    def hottest(self) -> ThermalZone | None:
        """The hottest thermal zone; None where none can be read."""
        return max(self.thermal.zones, key=lambda zone: zone.celsius, default=None) if self.thermal else None

    @cached_property
    def gpu(self) -> Gpu | None:
        """The graphics processor, where a file of the kernel names it: the first of ``FILE NAME`` rows."""
        for row in self["gpu"].splitlines():
            path, _, name = row.partition(" ")
            if name.strip():
                # Mali's driver goes on with cores, revision and identifier: "Mali-G78 20 cores r0p1 0x9202"
                return Gpu(re.sub(r" \d+ cores? .*", "", name.strip()), path)
        return None

    @property
    def board(self) -> str:
        """Return the name of the machine in the device tree; empty without one."""
        return self.text.get("board", "").partition("\n")[0].strip()

    @property
    def board_soc(self) -> str:
        """The most general name in the device tree's list: the system on chip."""
        return (self.text.get("board", "").partition("\n")[2].split() or [""])[-1]

    @property
    def processor(self) -> str:
        """The processor's name, where the kernel gives one."""
        return self["processor"].partition(":")[2].strip()

    @property
    def free_space(self) -> int | None:
        """Bytes left in the directory that was asked for; None when it does not say."""
        return parse_free(self["space"])

    @property
    def missing(self) -> dict[str, str]:
        """Return why a part of the hardware is None, by its name."""
        reasons = {
            "selinux": self._instead("selinux", "getenforce"),
            "cpu": self._instead("cpuinfo", "/proc/cpuinfo"),
            "memory": self._instead("memory", "/proc/meminfo"),
            "thermal": "there is no zone in /sys/class/thermal, or it may not be listed",
            "gpu": "no GPU driver's file in /sys names it",
        }
        return {name: reason for name, reason in reasons.items() if getattr(self, name) is None}

    def _instead(self, part: str, source: str) -> str:
        """Return what *source* said instead of anything of use, shortened."""
        line = self[part].partition("\n")[0]
        return f"{source}: {line[:120]}" if line else f"{source} says nothing"


def arguments(parts: Sequence[str], libraries: Sequence[str] = ()) -> list[str]:
    """Build the arguments of ``survey.sh``; *libraries* are files to look for."""
    # a property may hold any text, lines that look like a heading, too: so it comes last
    ordered = sorted(dict.fromkeys(parts), key=lambda part: part == "properties")
    return [" ".join(ordered), TEMP, *libraries]


def parse(text: str) -> Survey:
    """Read what ``survey.sh`` printed."""
    head, mark, properties = text.replace("\r\n", "\n").partition("==properties==\n")
    pieces = re.split(r"^==(\w+)==\n", head, flags=re.MULTILINE)
    parts = dict(zip(pieces[1::2], pieces[2::2], strict=False))
    return Survey({**parts, "properties": properties} if mark else parts)


def survey_host(*parts: str, seconds: float) -> Survey:
    """Ask this machine."""
    done = run(["sh", "-c", script("survey"), "sh", *arguments(parts)], timeout=seconds, check=False)
    return parse(done.stdout)


def parse_free(text: str) -> int | None:
    """Parse the bytes available from the output of ``df -k PATH``; None when it cannot be read."""
    # a long file system name may push the numbers onto a line of their own
    row = re.search(r"\s\d+\s+\d+\s+(\d{1,18})\s+\d+%", " ".join(text.splitlines()[1:]))
    return int(row[1]) * 1024 if row else None


def _cpu(cpuinfo: str, rows: str) -> Cpu | None:
    """Group the CPUs to clusters.

    *rows* have number, lowest, highest and present clock (kHz), governor and ID register of each CPU.
    """
    online = _cpuinfo(cpuinfo)
    table = [words for row in rows.splitlines() if (words := row.split())]
    clocks = {number: rest for first, *rest in table if (number := natural(first)) is not None}
    numbers = sorted({*online, *clocks})
    cpus = [_row(number, online.get(number, {}), clocks.get(number, [])) for number in numbers]
    if not cpus:
        return None
    features = [(cpu.get("Features") or cpu.get("flags") or "").split() for cpu in online.values() if cpu]
    common = set.intersection(*map(set, features)) if features else set()
    clusters = sorted(_clusters(cpus), key=lambda cluster: (cluster.max_khz or 0, cluster.cpus))
    return Cpu(tuple(clusters), tuple(name for name in (features or [[]])[0] if name in common))


def _cpuinfo(text: str) -> dict[int, dict[str, str]]:
    """Parse the fields of each online CPU; fields outside of any CPU's block are every CPU's."""
    shared: dict[str, str] = {}
    online: dict[int, dict[str, str]] = {}
    for block in re.split(r"\n\s*\n", text.strip()):
        pairs = [line.partition(":") for line in block.splitlines() if ":" in line]
        fields = {key.strip(): value.strip() for key, _, value in pairs}
        number = natural(fields.get("processor", ""))
        if number is not None:
            online[number] = fields
        else:
            shared.update(fields)
    return {number: {**shared, **fields} for number, fields in online.items()}


def _row(number: int, fields: Mapping[str, str], clock: list[str]) -> CpuCluster:
    """Describe one CPU as a cluster of its own."""
    lowest, highest, current, governor, midr = (clock + ["-"] * 5)[:5]
    implementer, part = _hex(fields.get("CPU implementer")), _hex(fields.get("CPU part"))
    if (implementer is None or part is None) and (register := _hex(midr)) is not None:
        implementer, part = register >> 24 & 0xFF, register >> 4 & 0xFFF
    core, identity = fields.get("model name", ""), ""
    if implementer is not None and part is not None:
        core, identity = core_name(implementer, part), f"{implementer:#x}/{part:#05x}"
    return CpuCluster(
        (number,),
        core=core,
        part=identity,
        min_khz=natural(lowest),
        max_khz=natural(highest),
        current_khz=natural(current),
        governor="" if governor == "-" else governor,
    )


def _hex(text: str | None) -> int | None:
    return int(text, 16) if text and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text) else None


def _clusters(cpus: list[CpuCluster]) -> Iterator[CpuCluster]:
    """Group the CPUs of one kind and highest clock; an offline CPU joins the only possible cluster."""
    groups: dict[tuple[str, int | None], list[CpuCluster]] = {}
    for cpu in cpus:
        groups.setdefault((cpu.part or cpu.core, cpu.max_khz), []).append(cpu)
    for key in [key for key in groups if not key[0] or key[1] is None]:
        kind, clock = key
        known = [other for other in groups if all(other)]
        fitting = [other for other in known if kind in ("", other[0]) and clock in (None, other[1])]
        if len(fitting) == 1:
            groups[fitting[0]] += groups.pop(key)
    for (_, clock), members in groups.items():
        yield CpuCluster(
            cpus=tuple(sorted(number for cpu in members for number in cpu.cpus)),
            core=next((cpu.core for cpu in members if cpu.core), ""),
            part=next((cpu.part for cpu in members if cpu.part), ""),
            min_khz=min((cpu.min_khz for cpu in members if cpu.min_khz), default=None),
            max_khz=clock,
            current_khz=max((cpu.current_khz for cpu in members if cpu.current_khz), default=None),
            governor=next((cpu.governor for cpu in members if cpu.governor), ""),
        )


# Sources of the names of cores: Arm's technical reference manuals of each, and the tables in
# arch/arm64/include/asm/cputype.h of Linux and sys-utils/lscpu-arm.c of util-linux.
_ARM = {
    0xC07: "Cortex-A7", 0xC09: "Cortex-A9", 0xC0D: "Cortex-A12", 0xC0E: "Cortex-A17", 0xC0F: "Cortex-A15",
    0xD02: "Cortex-A34", 0xD03: "Cortex-A53", 0xD04: "Cortex-A35", 0xD05: "Cortex-A55", 0xD07: "Cortex-A57",
    0xD08: "Cortex-A72", 0xD09: "Cortex-A73", 0xD0A: "Cortex-A75", 0xD0B: "Cortex-A76", 0xD0C: "Neoverse-N1",
    0xD0D: "Cortex-A77", 0xD0E: "Cortex-A76AE", 0xD40: "Neoverse-V1", 0xD41: "Cortex-A78",
    0xD42: "Cortex-A78AE", 0xD44: "Cortex-X1", 0xD46: "Cortex-A510", 0xD47: "Cortex-A710", 0xD48: "Cortex-X2",
    0xD49: "Neoverse-N2", 0xD4B: "Cortex-A78C", 0xD4C: "Cortex-X1C", 0xD4D: "Cortex-A715", 0xD4E: "Cortex-X3",
    0xD4F: "Neoverse-V2", 0xD80: "Cortex-A520", 0xD81: "Cortex-A720", 0xD82: "Cortex-X4",
    0xD84: "Neoverse-V3", 0xD85: "Cortex-X925", 0xD87: "Cortex-A725", 0xD8E: "Neoverse-N3",
}  # fmt: skip
_QUALCOMM = {
    0x001: "Oryon", 0x205: "Kryo", 0x211: "Kryo", 0x800: "Kryo 2xx Gold", 0x801: "Kryo 2xx Silver",
    0x802: "Kryo 3xx Gold", 0x803: "Kryo 3xx Silver", 0x804: "Kryo 4xx Gold", 0x805: "Kryo 4xx Silver",
}  # fmt: skip
_SAMSUNG = {0x001: "Exynos M1", 0x002: "Exynos M3", 0x003: "Exynos M4", 0x004: "Exynos M5"}
_CORES = {
    0x41: _ARM,
    0x48: {0xD01: "TaiShan v110", 0xD40: "Cortex-A76"},
    0x4E: {0x003: "Denver 2", 0x004: "Carmel"},
    0x51: _QUALCOMM,
    0x53: _SAMSUNG,
    0x61: {0x022: "Icestorm", 0x023: "Firestorm"},
    0xC0: {0xAC3: "Ampere-1", 0xAC4: "Ampere-1a"},
}


def core_name(implementer: int, part: int) -> str:
    """Return the core's name; empty when the table does not know it."""
    return _CORES.get(implementer, {}).get(part, "")
