"""What mod.json says of the records that a package was compiled with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TuningReport:
    """Where the tuned kernels' schedules come from, and why others have none."""

    digest: str
    """sha256 of the records; the same records give the same."""
    device: str
    """On which they were taken."""
    driver: str
    """Of its GPU; empty for a CPU."""
    emulated: bool = False
    """They were taken under emulation: the times that chose them are no device's."""
    kept: tuple[str, ...] = ()
    """Kernels whose untuned schedule was faster than any candidate; they have that one."""
    refused: tuple[str, ...] = ()
    """Kernels to which their record does not apply; they have the untuned schedule."""

    @property
    def told(self) -> str:
        """Whose records they are, in a few words."""
        driver = f", driver {self.driver}" if self.driver else ""
        return f"records of {self.device}{driver}" + ", taken under emulation" * self.emulated
