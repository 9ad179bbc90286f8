"""Fetch files as pip is set up here; those of a package index by their sha256, never their name alone."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from adt.errors import DownloadError
from adt.host.cache import downloaded
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
    """Name of the project in the index."""
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
    """Refuse a redirect from the public network to this machine or its neighbours, who trust the inside.

    Raises:
        DownloadError: it leads there.
    """
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
    """Write the file at *url* to *partial*, by the client *index*, or one of its own.

    A thread receives it: a server that sends a byte now and then, of its headers, too, would hold us.

    Raises:
        DownloadError: it is larger than *most_bytes*, or comes too slowly.
        Exception: of requests and of the disk.
    """
    failures: list[Exception] = []
    total = 0

    def receive_all(client: PyPISimple, file: IO[bytes]) -> None:
        nonlocal total
        try:
            with client.s.get(url, stream=True, timeout=TIMEOUT) as answer:
                answer.raise_for_status()
                for piece in answer.iter_content(PIECE):
                    total += len(piece)
                    if total > most_bytes:
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
            if time.monotonic() - began > PATIENCE + total / SLOWEST:
                raise DownloadError(
                    f"{url} sent {total} bytes in {time.monotonic() - began:.0f} s",
                    remedy="Try again later, or download it by other means and give its path.",
                )
    if failures:
        raise failures[0]


def fetch(file: RegistryFile) -> Path:
    """Return the local copy of *file*, downloading it when it is absent or damaged.

    Raises:
        DownloadError: the index cannot be reached, does not list the file, or its bytes differ.
    """

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
        not_had=lambda reason: DownloadError(
            f"could not download {file.filename}: {reason}",
            remedy="Check the network and pip's index (`pip config list`), then run this again.",
        ),
        differs=lambda found: DownloadError(
            f"{file.filename} has sha256 {found}, expected {file.sha256}",
            remedy="The index serves another file under this name: do not use it; check the index.",
        ),
    )
