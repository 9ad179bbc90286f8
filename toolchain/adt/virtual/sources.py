"""Where a device's packages come from: this machine's own distribution sources, asked for its processor.

The same release as the host's is wanted, because the cross compiler's C and C++
libraries are of that release too. Sources of third parties are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

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
        """The source as a deb822 stanza for Debian's *architecture*."""
        rows = [
            "Types: deb",
            f"URIs: {self.uri}",
            f"Suites: {self.suite}",
            f"Components: {' '.join(self.components)}",
            f"Architectures: {architecture}",
        ]
        if self.signed_by:
            rows.append(f"Signed-By: {self.signed_by}")
        rows += [f"{key}: {value}" for key, value in self.other]
        return "\n".join(rows) + "\n"


KEPT = ("Trusted", "Check-Valid-Until", "Check-Date", "Allow-Insecure", "Allow-Weak")
"""Options of a source that stay: the machine's administrator decided them."""
ONE_LINE = re.compile(
    r"^deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s*(?P<components>.*)$"
)


def parse_one_line(text: str) -> list[Source]:
    """The ``deb`` lines of a sources.list."""
    found = []
    for line in text.splitlines():
        match = ONE_LINE.match(line.partition("#")[0].strip())
        if not match:
            continue
        options = {
            key.lower(): value
            for key, _, value in (word.partition("=") for word in (match["options"] or "").split())
        }
        kept = tuple((key, options[key.lower()]) for key in KEPT if key.lower() in options)
        components = tuple(match["components"].split())
        found.append(Source(match["uri"], match["suite"], components, options.get("signed-by", ""), kept))
    return found


def parse_deb822(text: str) -> list[Source]:
    """The enabled ``deb`` stanzas of a .sources file, one Source for each URI and suite."""
    found = []
    for paragraph in re.split(r"\n[ \t]*\n", text):
        fields: dict[str, str] = {}
        key = ""
        for line in paragraph.splitlines():
            if line.startswith("#"):
                continue
            if line[:1] in (" ", "\t") and key:
                fields[key] += "\n" + line
            elif ":" in line:
                key, _, value = line.partition(":")
                key = key.strip().lower()
                fields[key] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() == "no":
            continue
        kept = tuple((name, fields[name.lower()]) for name in KEPT if name.lower() in fields)
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                components = tuple(fields.get("components", "").split())
                found.append(Source(uri, suite, components, fields.get("signed-by", ""), kept))
    return found


def parse_os_release(text: str) -> dict[str, str]:
    """The fields of /etc/os-release."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}


def is_distribution(source: Source, codename: str) -> bool:
    """Whether *source* is the release's own archive and not a third party's."""
    suites = {codename, f"{codename}-updates", f"{codename}-security"}
    if source.suite.rstrip("/") not in suites or "main" not in source.components:
        return False
    if any(name in source.signed_by for name in KEYRINGS):
        return True
    if source.uri.startswith("mirror+file:"):
        return True
    parts = [part for part in urlsplit(source.uri).path.split("/") if part]
    while parts and re.fullmatch(r"\d{8}T\d{6}Z", parts[-1]):  # a dated snapshot of the archive
        parts.pop()
    return bool(parts) and parts[-1] in ARCHIVE_DIRECTORIES


def ports_twin(source: Source) -> Source:
    """Where Ubuntu keeps arm64: a separate archive, ``ubuntu-ports`` beside ``ubuntu``."""
    parts = urlsplit(source.uri)
    if parts.path.rstrip("/").endswith("ubuntu-ports"):
        return source
    # Ubuntu's own hosts (archive, security, the countries' archives) and mirror lists -> ports.ubuntu.com
    own = parts.scheme.startswith("mirror") or (parts.hostname or "").endswith(".ubuntu.com")
    host = "ports.ubuntu.com" if own else parts.netloc
    scheme = parts.scheme if parts.scheme in ("http", "https") else "http"
    uri = urlunsplit((scheme, host, "/ubuntu-ports/", "", ""))
    if not own:  # a mirror of the user's choice, which may have a directory above
        uri = urlunsplit((scheme, host, re.sub(r"/ubuntu/?$", "/ubuntu-ports/", parts.path), "", ""))
    return Source(uri, source.suite, source.components, source.signed_by, source.other)


def for_device(
    files: Mapping[str, str], os_release: Mapping[str, str], *, native: bool
) -> tuple[Source, ...]:
    """The sources to ask for a device's packages of this release.

    Args:
        files: name and text of the host's sources lists; ``.sources`` are deb822.
        os_release: the host's /etc/os-release.
        native: the device's processor is the host's: then the host's own archive has them, on Ubuntu too.

    Returns:
        Each source once, only ``main`` of it; nothing when the host names none.
    """
    codename = os_release.get("VERSION_CODENAME", "")
    all_sources: Iterable[Source] = (
        source
        for name, text in sorted(files.items())
        for source in (parse_deb822(text) if name.endswith(".sources") else parse_one_line(text))
    )
    chosen: list[Source] = []
    for source in all_sources:
        if not is_distribution(source, codename):
            continue
        # Ubuntu keeps half of what we take (mksh, toybox, busybox) in universe
        wanted = tuple(part for part in ("main", "universe") if part in source.components)
        taken = Source(source.uri, source.suite, wanted, source.signed_by, source.other)
        if os_release.get("ID") == "ubuntu" and not native:
            taken = ports_twin(taken)
        if taken not in chosen:
            chosen.append(taken)
    return tuple(chosen)
