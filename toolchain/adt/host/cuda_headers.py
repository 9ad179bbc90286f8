"""NVIDIA's headers of CUDA, which a bundle's runtime is compiled with: of a package of the index, pinned."""

from __future__ import annotations

import zipfile
from pathlib import Path

from adt.host import cache, registry

WHEEL = registry.RegistryFile(
    project="nvidia-cuda-runtime-cu12",
    filename="nvidia_cuda_runtime_cu12-12.9.79-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl",
    sha256="25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3",
)
"""Package of CUDA's headers, which are the same for each machine. 3.5 MB."""
HEADER = "nvidia/cuda_runtime/include/cuda.h"


def directory() -> Path:
    """The directory with ``cuda.h``, fetched once.

    Raises:
        DownloadError: the package cannot be had.
        SourceError: it has no such header.
    """
    path, _ = cache.entry(f"cuda-headers/{WHEEL.sha256[:12]}", _unpack)
    return path


def _unpack(directory: Path) -> None:
    archive = registry.fetch(WHEEL)
    try:
        with zipfile.ZipFile(archive) as wheel:
            text = wheel.read(HEADER)
    except (zipfile.BadZipFile, KeyError) as error:
        raise cache.damaged(archive, error) from error
    (directory / "cuda.h").write_bytes(text)
