"""Fetch files: from an address by their sha256, and of a package index as pip is set up here.

Files of an index are known by their sha256, too, never by their name alone.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import re
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from adt.errors import AdtError, ConfigError, DownloadError
from adt.host.cache import downloaded, file_sha256
from adt.host.disk import scratch_directory
from adt.host.process import run

if TYPE_CHECKING:
    from pypi_simple import PyPISimple
    from requests import Response


TIMEOUT = 60
"""Seconds without a byte."""
PATIENCE, SLOWEST = 120.0, 20e3
"""Seconds in which a download must begin, and bytes a second below which no connection is usable."""
PIECE = 1 << 16
MOST_BYTES = 2 << 30
"""A larger file of an index is refused."""


@dataclass(frozen=True)
class RegistryFile:
    """One file of one release in the package index, pinned."""

    project: str
    filename: str
    """Name of the file, as the index lists it."""
    sha256: str
    """The only contents we accept, in hex."""


def pip_settings() -> dict[str, str]:
    """Return what pip is set up with: the ``index-url`` and ``cert`` of ``PIP_*``, else of its files."""
    listing = run([sys.executable, "-P", "-m", "pip", "config", "list"], check=False).stdout
    files = dict(re.findall(r"^global\.(index-url|cert)='(.+)'$", listing, re.MULTILINE))
    variables = {"index-url": os.environ.get("PIP_INDEX_URL"), "cert": os.environ.get("PIP_CERT")}
    return files | {name: value for name, value in variables.items() if value}


def open_index() -> PyPISimple:
    """Open a client of the index that pip would use here, which trusts the certificates that pip trusts."""
    from pypi_simple import PyPISimple

    settings = pip_settings()
    index = PyPISimple(settings["index-url"]) if "index-url" in settings else PyPISimple()
    index.s.verify = settings.get("cert", True)
    index.s.hooks["response"].append(_stay_outside)
    return index


def _stay_outside(answer: Response, **_options: object) -> None:
    """Refuse a redirect from the public network to this machine or its neighbours, who trust the inside."""
    if answer.is_redirect and _public(answer.url):
        url = urljoin(answer.url, answer.headers["location"])
        if not _public(url):
            raise DownloadError(
                f"{answer.url} leads to {url}, which is no public address",
                remedy="Do not use it; if that server is yours, give its own address.",
            )


def _public(url: str) -> bool:
    """True if the host of *url* is in the public network, or known to a proxy alone."""
    try:
        answers = socket.getaddrinfo(urlsplit(url).hostname, None)
    except (OSError, ValueError):
        return True
    return all(ipaddress.ip_address(str(answer[4][0]).partition("%")[0]).is_global for answer in answers)


def receive(url: str, partial: Path, most_bytes: int, index: PyPISimple | None = None) -> None:
    """Write the file at *url* to *partial*, by the client *index* if any; DownloadError if too large or slow.

    A thread receives it: a server that sends a byte now and then, of its headers, too, would hold us.
    """
    failures: list[Exception] = []

    def receive_all(client: PyPISimple, file: IO[bytes]) -> None:
        try:
            with client.s.get(url, stream=True, timeout=TIMEOUT) as answer:
                answer.raise_for_status()
                for piece in answer.iter_content(PIECE):
                    if file.tell() + len(piece) > most_bytes:
                        raise DownloadError(
                            f"{url} has more than {most_bytes >> 20} MB",
                            remedy="It is not what it should be: do not use it.",
                        )
                    file.write(piece)
        except Exception as error:
            failures.append(error)

    began = time.monotonic()
    # Once the file is closed, the thread ends with its next piece.
    with nullcontext(index) if index else open_index() as client, partial.open("wb") as file:
        thread = threading.Thread(target=receive_all, args=(client, file), daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.2)
            if (seconds := time.monotonic() - began) > PATIENCE + file.tell() / SLOWEST:
                raise DownloadError(
                    f"{url} sent {file.tell()} bytes in {seconds:.0f} s",
                    remedy="Try again later, or download it by other means and give its path.",
                )
    if failures:
        raise failures[0]


def fetch(file: RegistryFile) -> Path:
    """Return the local copy of *file*, downloaded when absent or damaged; DownloadError if that fails."""

    def download(partial: Path) -> None:
        with open_index() as index:
            page = index.get_project_page(file.project, timeout=TIMEOUT)
            listed = next((p for p in page.packages if p.filename == file.filename), None)
            if listed is None:
                raise DownloadError(
                    f"the package index does not list {file.filename}",
                    remedy="Check which index pip uses (`pip config list`); it must carry it.",
                )
            receive(listed.url, partial, MOST_BYTES, index)

    return downloaded(
        file.filename,
        file.sha256,
        download,
        file.filename,
        remedy="Check the network and pip's index (`pip config list`), then run this again.",
        wrong="The index serves another file under this name: do not use it; check the index.",
    )


log = logging.getLogger("adt")

DIGEST = "sha256="
"""Before the digest, in an address' fragment."""
NOT_HAD = "Check the address and the network, then run this again."
"""Remedy for an address whose file cannot be downloaded."""


def is_address(text: str) -> bool:
    """Return True if *text* is an address rather than a path."""
    return "://" in text


def download(url: str, sha256: str, *, most_bytes: int) -> Path:
    """Return the local copy of the file at *url*, downloaded when it is absent or damaged."""
    return _checked(url, sha256, lambda partial: receive(url, partial, most_bytes))


def _checked(url: str, sha256: str, fetch: Callable[[Path], object]) -> Path:
    """Return the local copy of the file at *url*, which *fetch* writes where there is none; see above."""
    name, digest = _file_name(url), sha256.lower()
    check_digest(digest)
    wrong = "It is not the file that was meant: do not use it; ask who published it."
    return downloaded(name, digest, fetch, url, remedy=NOT_HAD, wrong=wrong)


def _file_name(url: str) -> str:
    """Return the name of the file at *url*, which names a server and a port that can be."""
    with contextlib.suppress(ValueError):  # of brackets around no address, or of a port
        parts = urlsplit(url)
        # what http brings is checked against its sha256 all the same
        if parts.scheme in ("https", "http") and parts.hostname and parts.port != 0:
            return Path(parts.path.replace("\0", "")).name or "file"
    raise ConfigError(f"{url} is no address to download from", remedy="Give https://… or a path.")


def local_file(address: str | os.PathLike[str], *, any_digest: bool, most_bytes: int) -> Path:
    """Return the local copy of the file at *address*, ``https://…/model.onnx#sha256=…``, or a path of it.

    With *any_digest* an address may lack it; the digest of what came is then logged.
    """
    scheme, _, rest = os.fspath(address).partition(":")
    url, _, fragment = f"{scheme}://{rest.lstrip('/')}".partition("#")  # a Path has one slash
    if fragment.startswith(DIGEST):
        return download(url, fragment.removeprefix(DIGEST), most_bytes=most_bytes)
    if not any_digest:
        raise ConfigError(
            f"{url} could be anything: its sha256 is missing",
            remedy=f"Add #{DIGEST}… to the address; --insecure-no-digest downloads it as it is, and says the "
            "digest.",
        )
    _file_name(url)
    with scratch_directory("download") as scratch:
        copy = scratch / "copy"
        try:
            receive(url, copy, most_bytes)
        except AdtError:
            raise
        except Exception as error:  # of requests and urllib3
            raise DownloadError(f"could not download {url}: {error}", remedy=NOT_HAD) from error
        digest = file_sha256(copy)
        log.warning("%s was taken as it came; next time: '%s#%s%s'", url, url, DIGEST, digest)
        return _checked(url, digest, lambda partial: shutil.move(copy, partial))


def check_digest(text: str) -> None:
    """Refuse what is no sha256; raises ConfigError if *text* has not 64 hex digits."""
    if len(text) != 64 or set(text.lower()) - set("0123456789abcdef"):
        raise ConfigError(f"{text!r} is no sha256", remedy="Give all of its 64 hexadecimal digits.")
