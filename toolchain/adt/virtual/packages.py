"""Fetch a device's packages with a private apt: own configuration, own state, nothing of the system touched.

apt checks every package against the signed index of its archive, so what arrives
is what the distribution published. The system's list of architectures stays as it is.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from adt.errors import DownloadError, ToolNotFound
from adt.host import process
from adt.host.cache import file_sha256
from adt.virtual import sources
from adt.virtual.abis import Abi

log = logging.getLogger("adt.virtual.packages")

VARIABLE = "ADT_EMULATOR_APT_SOURCE"
"""A one-line ``deb ...`` source that is used instead of the host's."""

REMEDY = (
    f"Check the network and the machine's apt sources (`apt-get update` must work), set {VARIABLE} to a "
    "one-line deb source that has the architecture, or give a file system of your own with --rootfs."
)
ACQUIRE = re.compile(
    r"^Acquire::(https?|ftp|socks|Retries|ForceIPv|Check-|Max-ValidTime|Proxy|By-Hash)", re.I
)
"""Settings of the host's apt that are needed to reach its archive: proxies, certificates, clocks."""


@dataclass(frozen=True)
class Package:
    """One package as it was fetched."""

    name: str
    version: str
    sha256: str


def host_sources(abi: Abi) -> tuple[sources.Source, ...]:
    """The sources of packages for *abi*: the environment's, else derived from the host's own.

    Raises:
        DownloadError: there are none.
    """
    if line := os.environ.get(VARIABLE):
        chosen = tuple(sources.parse_one_line(line))
        if not chosen:
            raise DownloadError(
                f"{VARIABLE} is not a one-line deb source: {line!r}",
                remedy="Write it as in sources.list: deb [signed-by=KEYRING] URI SUITE COMPONENT...",
            )
        return chosen
    etc = Path("/etc/apt")
    lists = [etc / "sources.list", *etc.glob("sources.list.d/*.list"), *etc.glob("sources.list.d/*.sources")]
    files = {str(path): path.read_text(errors="replace") for path in lists if path.is_file()}
    chosen = sources.for_device(files, os_release(), native=abi.native)
    if not chosen:
        raise DownloadError("this machine's apt sources name no archive of its own release", remedy=REMEDY)
    return chosen


def os_release() -> dict[str, str]:
    """The host's /etc/os-release; empty when there is none."""
    path = Path("/etc/os-release")
    return sources.parse_os_release(path.read_text()) if path.is_file() else {}


def release() -> str:
    """The host's release, such as ``debian bookworm``."""
    fields = os_release()
    return f"{fields.get('ID', 'unknown')} {fields.get('VERSION_CODENAME', 'unknown')}"


class PrivateApt:
    """An apt of its own in an empty directory.

    Raises:
        ToolNotFound: this machine has no apt.
    """

    def __init__(self, directory: Path, chosen: Sequence[sources.Source], architecture: str) -> None:
        if not shutil.which("apt-get"):
            raise ToolNotFound(
                "`apt-get` is not on this machine; the virtual device's userland is made of Debian packages",
                remedy="Use a Debian or Ubuntu machine, or give a file system of your own with --rootfs.",
            )
        self.directory, self.architecture = directory, architecture
        for part in ("parts", "preferences", "sources", "lists/partial", "archives/partial"):
            (directory / part).mkdir(parents=True)
        for number, source in enumerate(chosen):
            (directory / f"sources/{number:02d}.sources").write_text(source.stanza(architecture))
        (directory / "status").touch()
        (directory / "empty").touch()
        (directory / "apt.conf").write_text(self._configuration())
        (directory / "apt.conf").chmod(0o600)  # a proxy's address may hold a password

    def _configuration(self) -> str:
        here = self.directory
        rows = [
            f'Dir::State "{here}";',
            f'Dir::State::status "{here}/status";',
            f'Dir::Cache "{here}";',
            f'Dir::Etc::parts "{here}/parts";',
            f'Dir::Etc::main "{here}/empty";',
            f'Dir::Etc::sourcelist "{here}/empty";',
            f'Dir::Etc::sourceparts "{here}/sources";',
            f'Dir::Etc::preferences "{here}/empty";',
            f'Dir::Etc::preferencesparts "{here}/preferences";',
            f'APT::Architecture "{self.architecture}";',
            f'APT::Architectures {{ "{self.architecture}"; }};',
            'APT::Install-Recommends "false";',
            # the unprivileged user _apt could not write into a directory of ours
            'APT::Sandbox::User "root";',
            'Acquire::Languages "none";',
        ]
        dump = process.run(["apt-config", "dump"], error=DownloadError, remedy=REMEDY)
        return "\n".join(rows + [row for row in dump.stdout.splitlines() if ACQUIRE.match(row)]) + "\n"

    def _run(self, *argv: str, what: str) -> process.Finished:
        return process.run(
            argv,
            env={
                "APT_CONFIG": f"{self.directory}/apt.conf",
                "LC_ALL": "C.UTF-8",
                "DEBIAN_FRONTEND": "noninteractive",
            },
            timeout=900,
            error=DownloadError,
            what=what,
            remedy=REMEDY,
        )

    def update(self) -> None:
        """Read the archives' indices.

        Raises:
            DownloadError: one cannot be read or its signature does not fit.
        """
        done = self._run(
            "apt-get", "update", "-q", what=f"the index of {self.architecture} packages cannot be read"
        )
        # apt-get update ends with 0 when some archives fail; its warnings say so
        failed = [line for line in done.stderr.splitlines() if line.startswith(("E:", "W: Failed to fetch"))]
        if failed:
            raise DownloadError(
                f"the index of {self.architecture} packages cannot be read",
                remedy=REMEDY,
                details="\n".join(failed),
            )

    def offered(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Every version of each package that the archives have, the best first."""
        done = self._run("apt-cache", "madison", *names, what="the package index cannot be searched")
        versions: dict[str, list[str]] = {}
        for line in done.stdout.splitlines():
            fields = [field.strip() for field in line.split("|")]
            if len(fields) == 3:
                versions.setdefault(fields[0], []).append(fields[1])
        return versions

    def download(self, names: Sequence[str], known: Mapping[str, str]) -> list[Path]:
        """Fetch *names* and what they depend on, at the version in *known* where the archives have it.

        Raises:
            DownloadError: a package does not exist or cannot be fetched.
        """
        versions = self.offered(sorted({*names, *known}))
        if missing := [name for name in names if name not in versions]:
            raise DownloadError(
                f"the archives have no {self.architecture} package {', '.join(missing)}", remedy=REMEDY
            )
        wanted = []
        for name in dict.fromkeys([*names, *(name for name in known if name in versions)]):
            if known.get(name) in versions[name]:
                wanted.append(f"{name}={known[name]}")
            elif name in names:
                wanted.append(name)
                tried = known.get(name)
                why = f"do not have {tried}, the version" if tried else "have no version that"
                log.info("%s %s is taken: the archives %s adt was tried with", name, versions[name][0], why)
        self._run(
            "apt-get",
            "install",
            "-q",
            "-y",
            "--download-only",
            "--allow-downgrades",
            *wanted,
            what=f"the {self.architecture} packages cannot be fetched",
        )
        return sorted((self.directory / "archives").glob("*.deb"))


def describe(archive: Path) -> Package:
    """Name, version and sha256 of a .deb file.

    Raises:
        ProcessFailed: it is damaged.
    """
    done = process.run(["dpkg-deb", "--showformat=${Package} ${Version}", "--show", archive])
    name, version = done.stdout.split()
    return Package(name, version, file_sha256(archive))


def unpack(archive: Path, directory: Path) -> None:
    """Unpack a .deb file's tree into *directory*; none of its scripts run.

    Raises:
        ProcessFailed: it is damaged.
    """
    process.run(["dpkg-deb", "-x", archive, directory])
