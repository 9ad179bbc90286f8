"""Libraries that compute operators of a model on the device, instead of TVM's kernels: a row for each.

A library joins with

- its row here;
- a setting of a build that builds it in (``build.NAME``), and a field of the row's name in
  :class:`~adt.bundle.bundle.BundleOptions` and in what BuildInfo.cmake writes;
- ``adt/compiler/passes/offload/NAME.py``, whose function ``rules`` says what it takes;
- its runtime in ``cmake_presets``, and its code generator: Python beside the rules, or a plugin of
  TVM's sources in ``cmake_presets/plugins``.
"""

from __future__ import annotations

from dataclasses import dataclass

from adt.errors import ConfigError


@dataclass(frozen=True)
class Library:
    """One library."""

    name: str
    title: str
    device: str
    """Device of the targets that it goes with: ``cpu``, ``opencl`` or ``cuda``."""
    targets: str
    """Names of these targets for people."""
    variable: str
    build_option: str
    """Option of `adt build-target` that builds it in."""
    setting: str
    separate: bool = False
    """True if it changes nothing of the rest: a bundle with it is built where that without is, of the same
    objects, and can be one library."""
    plugin: str = "json"
    """Plugin that TVM's wheel needs for its code generator: one of TVM's own, or the one that keeps adt's
    graphs."""


_ROWS = (
    Library(
        "clml",
        "CLML",
        "opencl",
        "adreno, adreno-buffer or opencl",
        "ADT_CLML",
        "--clml SDK (Qualcomm's; docs/clml.md)",
        "clml",
        plugin="clml",
    ),
    Library("xnnpack", "XNNPACK", "cpu", "cpu", "ADT_XNNPACK", "--xnnpack", "xnnpack", separate=True),
    # Both come with CUDA: they link nothing, and are small.
    Library("cudnn", "cuDNN", "cuda", "cuda:ARCH", "ADT_CUDA", "--cuda", "cuda"),
    Library("cublas", "cuBLAS", "cuda", "cuda:ARCH", "ADT_CUDA", "--cuda", "cuda"),
)
LIBRARIES = {row.name: row for row in _ROWS}
NONE = "none"
"""``--offload`` without a library."""
AUTO = "auto"
"""``--offload`` as benchmarks decide (:mod:`adt.measure.history`)."""


def parse_libraries(text: str) -> tuple[Library, ...]:
    """Return the libraries of an ``--offload`` such as ``cudnn,cublas``, each once, by precedence."""
    names = [name.strip() for name in text.split(",")]
    if names == [NONE]:
        return ()
    if unknown := [name for name in names if name not in LIBRARIES]:
        raise ConfigError(
            f"unknown offload {unknown[0]!r}",
            remedy=f"Choose {NONE}, or some of: {', '.join(LIBRARIES)} (the first takes what it can first).",
        )
    if len(set(names)) < len(names):
        raise ConfigError(f"--offload {text} names a library twice", remedy="Name each once.")
    return tuple(LIBRARIES[name] for name in names)


def join_libraries(libraries: tuple[Library, ...]) -> str:
    """Join libraries to a text that :func:`parse_libraries` reads."""
    return ",".join(library.name for library in libraries) or NONE


def titles(libraries: tuple[Library, ...]) -> str:
    """Join the titles of *libraries*, for people."""
    return " and ".join(library.title for library in libraries)
