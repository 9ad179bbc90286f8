"""Fetch a file from an address, known by its sha256."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from adt.errors import AdtError, ConfigError, DownloadError
from adt.host import registry
from adt.host.cache import downloaded, file_sha256
from adt.host.disk import scratch_directory

log = logging.getLogger("adt")

SCHEMES = ("https", "http")
"""Schemes of addresses. What http brings is checked against its sha256 all the same."""
DIGEST = "sha256="
"""Before the digest, in an address' fragment."""
NO_DIGEST = "--insecure-no-digest"


def is_address(text: str) -> bool:
    """Return True if *text* is an address rather than a path."""
    return "://" in text


def download(url: str, sha256: str, *, most_bytes: int) -> Path:
    """The local copy of the file at *url*, downloaded when it is absent or damaged.

    Args:
        sha256: of its bytes, 64 hex digits; any other file is refused.
        most_bytes: a larger file is refused.

    Raises:
        ConfigError: *url* or *sha256* is none.
        DownloadError: it cannot be had, is too large, or its bytes differ.
        DiskError: there is no room or no access.
    """
    return _checked(url, sha256, lambda partial: registry.receive(url, partial, most_bytes))


def _checked(url: str, sha256: str, fetch: Callable[[Path], object]) -> Path:
    """Return the local copy of the file at *url*, which *fetch* writes where there is none; see above."""
    name, digest = _file_name(url), sha256.lower()
    check_digest(digest)
    return downloaded(
        name,
        digest,
        fetch,
        not_had=lambda reason: _not_had(url, reason),
        differs=lambda found: DownloadError(
            f"{url} has sha256 {found}, expected {digest}",
            remedy="It is not the file that was meant: do not use it; ask who published it.",
        ),
    )


def _file_name(url: str) -> str:
    """Return the name of the file at *url*, which names a server and a port that can be.

    Raises:
        ConfigError: it is no address.
    """
    with contextlib.suppress(ValueError):  # of brackets around no address, or of a port
        parts = urlsplit(url)
        if parts.scheme in SCHEMES and parts.hostname and parts.port != 0:
            return Path(parts.path.replace("\0", "")).name or "file"
    raise ConfigError(f"{url} is no address to download from", remedy="Give https://… or a path.")


def local_file(address: str | os.PathLike[str], *, any_digest: bool, most_bytes: int) -> Path:
    """The local copy of the file at *address*, ``https://…/model.onnx#sha256=…``; a path of it will do.

    Args:
        any_digest: an address may be without; what was had is then told.

    Raises:
        ConfigError: the digest is missing, or is none.
        DownloadError, DiskError: see :func:`download`.
    """
    scheme, _, rest = os.fspath(address).partition(":")
    url, _, fragment = f"{scheme}://{rest.lstrip('/')}".partition("#")  # a Path has one slash
    if fragment.startswith(DIGEST):
        return download(url, fragment.removeprefix(DIGEST), most_bytes=most_bytes)
    if not any_digest:
        raise ConfigError(
            f"{url} could be anything: its sha256 is missing",
            remedy=f"Add #{DIGEST}… to the address; {NO_DIGEST} downloads it as it is, and says the digest.",
        )
    _file_name(url)
    with scratch_directory("download") as scratch:
        copy = scratch / "copy"
        try:
            registry.receive(url, copy, most_bytes)
        except AdtError:
            raise
        except Exception as error:  # of requests and urllib3
            raise _not_had(url, error) from error
        digest = file_sha256(copy)
        log.warning("%s was taken as it came; next time: '%s#%s%s'", url, url, DIGEST, digest)
        return _checked(url, digest, lambda partial: shutil.move(copy, partial))


def _not_had(url: str, reason: Exception) -> DownloadError:
    return DownloadError(
        f"could not download {url}: {reason}",
        remedy="Check the address and the network, then run this again.",
    )


def check_digest(text: str) -> None:
    """Refuse what is no sha256.

    Raises:
        ConfigError: *text* has not 64 hex digits.
    """
    if len(text) != 64 or set(text.lower()) - set("0123456789abcdef"):
        raise ConfigError(f"{text!r} is no sha256", remedy="Give all of its 64 hexadecimal digits.")
