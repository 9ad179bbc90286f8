"""Times of the calls of a package on a device, as `adt inspect --html --profile` takes them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adt.errors import MismatchError
from adt.host import manifest
from adt.model.files import LIBRARY
from adt.model.package import PackageManifest

SCHEMA = "adt.profile"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class CallTime:
    """How long one call of the graph took."""

    index: int
    """Its place in the graph's calls."""
    name: str
    mean_us: float
    min_us: float
    max_us: float
    """Microseconds, over the runs."""


@dataclass(frozen=True)
class Profile:
    """Times of one package on one device."""

    library_sha256: str
    """The mod.so that ran."""
    device: str
    """What it ran on, for people."""
    emulated: bool
    """It ran on a virtual device: the times say nothing about a phone."""
    runs: int
    calls: tuple[CallTime, ...]
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION

    @property
    def total_us(self) -> float:
        """The means of all calls together."""
        return sum(call.mean_us for call in self.calls)


def load_profile(path: Path, package: PackageManifest) -> Profile:
    """Read a profile of *package*.

    Raises:
        PackageError: it is no profile.
        MismatchError: it is another package's.
    """
    found = manifest.load(
        Profile, path, schema=SCHEMA, version=SCHEMA_VERSION, remedy="Profile the package again."
    )
    if found.library_sha256 != package.files[LIBRARY].sha256:
        raise MismatchError(
            f"{path} has the times of another compile than {package.name}",
            remedy="Profile this package, or name the package that was profiled.",
        )
    return found
