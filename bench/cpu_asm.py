"""Share of an Arm processor's peak that the kernels' innermost loops reach, by llvm-mca's model of it.

    python bench/cpu_asm.py --llvm-mca FILE [--models resnet18,mobilenet_v2,…] [--layers 3x3,points,…]
                            [--cpus cortex-a55,cortex-a76,…] [--for linux-aarch64] [--least 8]
                            [--precision float16] [--quantized]

Each network or layer (``depthwise+relu6``: with another activation; --quantized: to 8 bits) is compiled. Of
each kernel the innermost loop with most multiply-adds of vectors is taken from the assembly, by its back
edge, and given to llvm-mca (19 or newer):

    share   multiply-adds for each cycle, of what the processor's units can start
    spills  loads and stores of the loop on the stack
    held    vector registers that the loop uses

It is a model, in which no load misses the cache: nothing is measured. Exits with 1 where a loop spills.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from layers import LAYERS, PRODUCTS, layer_file

MODELS = {
    "cortex-a53": ("cortex-a53", 1),
    "cortex-a55": ("cortex-a55", 1),
    "cortex-a72": ("cortex-a72", 1),
    "cortex-a76": ("neoverse-n1", 2),
    "cortex-a710": ("neoverse-n2", 2),
    "cortex-x3": ("neoverse-v2", 4),
}
"""Processor to the model that LLVM has of it or of its server core, and the multiply-adds of 128 bits that
it starts in a cycle (LLVM's model of the a55 starts two). The models that LLVM lends other cores (a76: a57's)
show half of their peak."""
MULTIPLY_ADDS = re.compile(r"\s(?:fmla|s(?:dot|mmla|mull|mlal)2?|v(?:fma|mla|mul)\.f32)\s+[vq]\d")
"""Also those that multiply what others add."""
ON_STACK = re.compile(r"\[sp\b|\sadd\s+\w+, sp\b")
"""Armv7's loads and stores of vectors take their address from a register."""
VECTOR_REGISTER = re.compile(r"\b[vqs](\d+)\b")


@dataclass(frozen=True)
class Loop:
    """The innermost loop of a kernel with most multiply-adds."""

    lines: tuple[str, ...]

    @property
    def multiply_adds(self) -> int:
        return len(MULTIPLY_ADDS.findall(self.text))

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def spills(self) -> int:
        return sum(bool(ON_STACK.search(line)) for line in self.lines)

    @property
    def held(self) -> int:
        return len(set(VECTOR_REGISTER.findall(self.text)))

    def share(self, llvm_mca: Path, model: str, units: int) -> float:
        """Return the multiply-adds of each cycle, of *units*, by *model*."""
        times = 200
        command = [llvm_mca, "-mtriple=aarch64", f"-mcpu={model}", f"-iterations={times}"]
        done = subprocess.run(command, input=self.text, capture_output=True, text=True, check=True)
        cycles = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
        assert cycles, done.stdout
        return min(1.0, self.multiply_adds * times / (int(cycles[1]) * units))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--llvm-mca", type=Path, default=Path("llvm-mca"))
    parser.add_argument("--models", default="")
    parser.add_argument("--layers", default="")
    parser.add_argument("--cpus", default="cortex-a76")
    parser.add_argument("--for", dest="platform", default="linux-aarch64")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--quantized", action="store_true")
    parser.add_argument("--least", type=int, default=8, help="multiply-adds of a loop that is shown")
    given = parser.parse_args(argv)
    layers = [*LAYERS, *PRODUCTS] if not given.models + given.layers else given.layers.split(",")
    names = [*filter(None, given.models.split(",")), *filter(None, layers)]
    spills = 0
    with tempfile.TemporaryDirectory() as place:
        for cpu in given.cpus.split(","):
            model, units = MODELS.get(cpu, ("", 0))
            for name in names:
                code = assembly(
                    Path(place), name, cpu, given.platform, given.precision, quantized=given.quantized
                )
                for kernel, loop in kernel_loops(code):
                    if loop.multiply_adds < given.least:
                        continue
                    spills += loop.spills
                    share = f"{loop.share(given.llvm_mca, model, units):4.0%}" if model else "   –"
                    sys.stdout.write(
                        f"{cpu:12} {name:16} {kernel:42.42} share {share}  spills {loop.spills:3}  "
                        f"multiply-adds {loop.multiply_adds:4}  held {loop.held:3}\n"
                    )
                    sys.stdout.flush()
    return int(spills > 0)


def assembly(
    place: Path, name: str, cpu: str, platform: str, precision: str = "float32", *, quantized: bool = False
) -> str:
    """Compile a network or layer to its code, by adt's own compile."""
    import adt

    package = place / f"{name}-{cpu}"
    file = layer_file(place, name, followed=precision != "float32")
    if quantized:
        given = {"calibrate": ["random:2"], "activations": "int8", "per_channel": True}
        file = adt.quantize(file, **given, out=file.with_suffix(".q.onnx")).path
    adt.compile(file, out=package, platform=platform, cpu=cpu, precision=precision, accuracy=False)
    return adt.inspect(package).assembly()


def kernel_loops(text: str) -> Iterator[tuple[str, Loop]]:
    """Yield each kernel, and the loop with most multiply-adds of its code and of what it gives to threads."""
    kernel, loops = "", dict[str, list[Loop]]()
    for name, lines in split_functions(text):
        if name.endswith("_compute_"):
            kernel = name.removesuffix("_compute_")
        if kernel:  # what is given to threads is a function without a name of its own, behind the kernel's
            loops.setdefault(kernel, []).extend(innermost_loops(lines))
    for kernel, own in loops.items():
        if own:
            yield kernel, max(own, key=lambda loop: loop.multiply_adds)


def split_functions(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each function's name and instructions, with labels and without directives."""
    for part in re.split(r"^\s*\.type\s+(?=\S+,[@%]function)", text, flags=re.M)[1:]:
        name = part.partition(",")[0]
        lines = part.partition(f"\n{name}:")[2].partition(".size\t")[0].splitlines()
        yield name, [line for line in lines if re.match(r"\.LBB\w+:|\s+[a-z]", line)]


def innermost_loops(lines: Sequence[str]) -> Iterator[Loop]:
    """Yield the loops that no other loop lies in: from a label to a branch back to it."""
    labels = {line.partition(":")[0]: at for at, line in enumerate(lines) if line.startswith(".L")}
    edges = []
    for at, line in enumerate(lines):
        label = re.match(r"\s+(?:b\S*|cbn?z|tbn?z)\s.*?(\.LBB\w+)", line)
        if label and labels.get(label[1], at) < at:
            edges.append((labels[label[1]], at))
    for first, last in edges:
        if not any((first, last) != edge and first <= edge[0] and edge[1] <= last for edge in edges):
            yield Loop(tuple(line for line in lines[first : last + 1] if not line.startswith(".L")))


if __name__ == "__main__":
    sys.exit(main())
