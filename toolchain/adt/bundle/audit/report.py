"""What an audit found."""

from __future__ import annotations

from dataclasses import dataclass

from adt.host.elf import ElfFacts

OK, WARNING, REFUSED = "ok", "warning", "would not load"
"""Verdicts, best first."""


@dataclass(frozen=True)
class Finding:
    """One reason for a verdict."""

    verdict: str
    """``warning`` or ``would not load``."""
    code: str
    """Short name that stays the same: ``missing-library``, ``pages``, …"""
    what: str
    remedy: str


@dataclass(frozen=True)
class Need:
    """One DT_NEEDED entry and who provides it."""

    name: str
    provider: str
    """``file`` (one of those given), ``bundle``, ``android``, ``glibc``, ``ndk``, ``vendor``,
    ``not-public`` (Android's own, of a newer Android, or glibc's), ``missing``."""
    where: str
    """The file that was found, or a word on the provider; may be empty."""


@dataclass(frozen=True)
class Symbols:
    """The symbols that a file needs from others."""

    imported: int
    missing: tuple[str, ...]
    """Nobody that its dynamic linker asks has them."""
    unchecked: int
    """They may be in libraries whose symbols are not known here."""
    weak_missing: tuple[str, ...]
    """Nobody has them, and the file says that it works without."""


@dataclass(frozen=True)
class FileAudit:
    """One file."""

    name: str
    facts: ElfFacts | None
    """None: it is no ELF file, or a damaged one."""
    system: str
    """``android``, ``glibc``, ``kernel`` (a static program)."""
    api_level: int | None
    """Android API level that it was judged at."""
    page_sizes: tuple[int, ...]
    """Bytes: page sizes of kernels that it loads on, of 4096, 16384 and 65536."""
    needs: tuple[Need, ...]
    symbols: Symbols
    findings: tuple[Finding, ...]

    @property
    def reasons(self) -> tuple[Finding, ...]:
        """The findings that its verdict comes from."""
        return tuple(finding for finding in self.findings if finding.verdict == self.verdict)

    @property
    def verdict(self) -> str:
        """The worst of its findings."""
        verdicts = {finding.verdict for finding in self.findings}
        return next((verdict for verdict in (REFUSED, WARNING) if verdict in verdicts), OK)


@dataclass(frozen=True)
class Deploy:
    """A file that must be on the device beside those given."""

    name: str
    machine: str
    source: str
    """Where to take it from; empty: it was not found."""
    needed_by: tuple[str, ...]


@dataclass(frozen=True)
class ElfReport:
    """All files."""

    files: tuple[FileAudit, ...]
    deploy: tuple[Deploy, ...]
    system_symbols: str
    """What the symbols of the system's own libraries were checked against, in words."""

    @property
    def verdict(self) -> str:
        """The worst of its files."""
        verdicts = {file.verdict for file in self.files}
        return next((verdict for verdict in (REFUSED, WARNING) if verdict in verdicts), OK)

    @property
    def refused(self) -> tuple[FileAudit, ...]:
        """The files that would not load."""
        return tuple(file for file in self.files if file.verdict == REFUSED)
