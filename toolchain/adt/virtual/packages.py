"""Fetch a device's packages with a private apt: own configuration, own state, nothing of the system touched.

The sources are this machine's own distribution, asked for the device's processor: the same release, because
the cross compiler's C and C++ libraries are of that release too. Sources of third parties are left out. apt
checks every package against its archive's signed index; the system's list of architectures stays as it is.
"""

from __future__ import annotations

import logging
import os
import platform
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from adt.errors import DownloadError, ToolNotFound
from adt.host import process
from adt.host.cache import file_sha256
from adt.virtual.abis import Abi

ARCHIVE_DIRECTORIES = ("debian", "debian-security", "ubuntu", "ubuntu-ports", "raspbian")
"""Last directory of a distribution's archive on its mirrors."""
KEYRINGS = ("debian-archive", "ubuntu-archive")
"""Names in Signed-By that only the distributions themselves have."""


@dataclass(frozen=True)
class Source:
    """One line of a sources list: an archive, a suite and components, with its options."""

    uri: str
    suite: str
    components: tuple[str, ...]
    signed_by: str = ""
    """Path of a keyring, or an armored key with newlines; empty for apt's own keyrings."""
    other: tuple[tuple[str, str], ...] = ()
    """Further deb822 fields that are kept, such as Trusted or Check-Valid-Until."""

    def stanza(self, architecture: str) -> str:
        """Write the source as a deb822 stanza for Debian's *architecture*."""
        fields = {
            "Types": "deb",
            "URIs": self.uri,
            "Suites": self.suite,
            "Components": " ".join(self.components),
            "Architectures": architecture,
            "Signed-By": self.signed_by,
            **dict(self.other),
        }
        return "".join(f"{name}: {value}\n" for name, value in fields.items() if value)


KEPT = ("Trusted", "Check-Valid-Until", "Check-Date", "Allow-Insecure", "Allow-Weak")
"""Options of a source that stay: the machine's administrator decided them."""
ONE_LINE = re.compile(
    r"^deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s*(?P<components>.*)$"
)


def _source(uri: str, suite: str, components: str, options: Mapping[str, str]) -> Source:
    """Make a source with the *options*, by name in lower case, that count."""
    other = tuple((name, options[name.lower()]) for name in KEPT if name.lower() in options)
    return Source(uri, suite, tuple(components.split()), options.get("signed-by", ""), other)


def parse_one_line(text: str) -> list[Source]:
    """Parse the ``deb`` lines of a sources.list."""
    sources = []
    for line in text.splitlines():
        if match := ONE_LINE.match(line.partition("#")[0].strip()):
            pairs = (word.partition("=") for word in (match["options"] or "").split())
            options = {key.lower(): value for key, _, value in pairs}
            sources.append(_source(match["uri"], match["suite"], match["components"], options))
    return sources


def parse_deb822(text: str) -> list[Source]:
    """Parse the enabled ``deb`` stanzas of a .sources file, one Source for each URI and suite."""
    sources = []
    for paragraph in re.split(r"\n[ \t]*\n", text):
        lines = "\n".join(line for line in paragraph.splitlines() if not line.startswith("#"))
        pairs = re.findall(r"^(\S[^:\n]*):(.*(?:\n[ \t].*)*)", lines, re.MULTILINE)
        fields = {key.strip().lower(): value.strip(" \t") for key, value in pairs}
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() == "no":
            continue
        for uri, suite in product(fields.get("uris", "").split(), fields.get("suites", "").split()):
            sources.append(_source(uri, suite, fields.get("components", ""), fields))
    return sources


def is_distribution(source: Source, codename: str) -> bool:
    """True if *source* is the release's own archive and not a third party's."""
    try:
        path = urlsplit(source.uri).path
    except ValueError:  # brackets around no address
        return False
    suites = {codename, f"{codename}-updates", f"{codename}-security"}
    if source.suite.rstrip("/") not in suites or "main" not in source.components:
        return False
    if source.uri.startswith("mirror+file:") or any(name in source.signed_by for name in KEYRINGS):
        return True
    parts = [part for part in path.split("/") if part]
    while parts and re.fullmatch(r"\d{8}T\d{6}Z", parts[-1]):  # a dated snapshot of the archive
        parts.pop()
    return bool(parts) and parts[-1] in ARCHIVE_DIRECTORIES


def ports_twin(source: Source) -> Source:
    """Return Ubuntu's archive for arm64, which is a separate one: ``ubuntu-ports`` beside ``ubuntu``."""
    parts = urlsplit(source.uri)
    if parts.path.rstrip("/").endswith("ubuntu-ports"):
        return source
    # Ubuntu's own hosts (archive, security, the countries' archives) and mirror lists -> ports.ubuntu.com
    own = parts.scheme.startswith("mirror") or (parts.hostname or "").endswith(".ubuntu.com")
    host, path = "ports.ubuntu.com", "/ubuntu-ports/"
    if not own:  # a mirror of the user's choice, which may have a directory above
        host, path = parts.netloc, re.sub(r"/ubuntu/?$", path, parts.path)
    scheme = parts.scheme if parts.scheme in ("http", "https") else "http"
    return replace(source, uri=urlunsplit((scheme, host, path, "", "")))


def for_device(
    files: Mapping[str, str], os_release: Mapping[str, str], *, native: bool
) -> tuple[Source, ...]:
    """Select the sources of a device's packages of this release, each once, only ``main``; perhaps none.

    *files* has name and text of the host's lists (``.sources`` are deb822). A *native* device has the host's
    processor: the host's own archive has its packages, on Ubuntu too.
    """
    codename = os_release.get("VERSION_CODENAME", "")
    chosen: dict[Source, None] = {}
    for name, text in sorted(files.items()):
        parse = parse_deb822 if name.endswith(".sources") else parse_one_line
        for source in parse(text):
            if not is_distribution(source, codename):
                continue
            # Ubuntu keeps half of what we take (mksh, toybox, busybox) in universe
            components = tuple(part for part in ("main", "universe") if part in source.components)
            candidate = replace(source, components=components)
            if os_release.get("ID") == "ubuntu" and not native:
                candidate = ports_twin(candidate)
            chosen[candidate] = None
    return tuple(chosen)


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
    name: str
    version: str
    sha256: str


def host_sources(abi: Abi) -> tuple[Source, ...]:
    """Return the sources of packages for *abi*: the environment's, else derived from the host's own."""
    if line := os.environ.get(VARIABLE):
        sources = tuple(parse_one_line(line))
        if not sources:
            raise DownloadError(
                f"{VARIABLE} is not a one-line deb source: {line!r}",
                remedy="Write it as in list: deb [signed-by=KEYRING] URI SUITE COMPONENT...",
            )
        return sources
    etc = Path("/etc/apt")
    lists = [etc / "sources.list", *etc.glob("sources.list.d/*.list"), *etc.glob("sources.list.d/*.sources")]
    files = {str(path): path.read_text(errors="replace") for path in lists if path.is_file()}
    sources = for_device(files, os_release(), native=abi.native)
    if not sources:
        raise DownloadError("this machine's apt sources name no archive of its own release", remedy=REMEDY)
    return sources


def os_release() -> dict[str, str]:
    """Read the host's /etc/os-release; empty when there is none."""
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def release() -> str:
    """Return the host's release, such as ``debian bookworm``."""
    fields = os_release()
    return f"{fields.get('ID', 'unknown')} {fields.get('VERSION_CODENAME', 'unknown')}"


class PrivateApt:
    """An apt of its own in an empty directory; raises ToolNotFound if this machine has no apt."""

    def __init__(self, directory: Path, sources: Sequence[Source], architecture: str) -> None:
        if not shutil.which("apt-get"):
            raise ToolNotFound(
                "`apt-get` is not on this machine; the virtual device's userland is made of Debian packages",
                remedy="Use a Debian or Ubuntu machine, or give a file system of your own with --rootfs.",
            )
        self.directory, self.architecture = directory, architecture
        for part in ("parts", "preferences", "sources", "lists/partial", "archives/partial"):
            (directory / part).mkdir(parents=True)
        for number, source in enumerate(sources):
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
        config = {"APT_CONFIG": f"{self.directory}/apt.conf"}
        env = config | {"LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        return process.run(argv, env=env, timeout=900, error=DownloadError, what=what, remedy=REMEDY)

    def update(self) -> None:
        what = f"the index of {self.architecture} packages cannot be read"
        done = self._run("apt-get", "update", "-q", what=what)
        # apt-get update ends with 0 when some archives fail; its warnings say so
        failed = [line for line in done.stderr.splitlines() if line.startswith(("E:", "W: Failed to fetch"))]
        if failed:
            raise DownloadError(what, remedy=REMEDY, details="\n".join(failed))

    def offered(self, names: Sequence[str]) -> dict[str, list[str]]:
        """List every version of each package that the archives have, the best first."""
        done = self._run("apt-cache", "madison", *names, what="the package index cannot be searched")
        versions: dict[str, list[str]] = {}
        for line in done.stdout.splitlines():
            fields = [field.strip() for field in line.split("|")]
            if len(fields) == 3:
                versions.setdefault(fields[0], []).append(fields[1])
        return versions

    def download(self, names: Sequence[str], known: Mapping[str, str]) -> list[Path]:
        """Fetch *names* and what they depend on, at the version in *known* where the archives have it."""
        versions = self.offered(sorted({*names, *known}))
        if missing := [name for name in names if name not in versions]:
            raise DownloadError(
                f"the archives have no {self.architecture} package {', '.join(missing)}", remedy=REMEDY
            )
        words = []
        for name in dict.fromkeys([*names, *(name for name in known if name in versions)]):
            if known.get(name) in versions[name]:
                words.append(f"{name}={known[name]}")
            elif name in names:
                words.append(name)
                tried = known.get(name)
                reason = f"do not have {tried}, the version" if tried else "have no version that"
                text = "%s %s is taken: the archives %s adt was tried with"
                log.info(text, name, versions[name][0], reason)
        install = ("apt-get", "install", "-q", "-y", "--download-only", "--allow-downgrades")
        self._run(*install, *words, what=f"the {self.architecture} packages cannot be fetched")
        return sorted((self.directory / "archives").glob("*.deb"))


def describe(archive: Path) -> Package:
    """Read name, version and sha256 of a .deb file."""
    done = process.run(["dpkg-deb", "--showformat=${Package} ${Version}", "--show", archive])
    name, version = done.stdout.split()
    return Package(name, version, file_sha256(archive))
