"""A directory that is served on 127.0.0.1."""

import contextlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def served(
    tmp_path: Path, patch: pytest.MonkeyPatch, kind: type[http.server.SimpleHTTPRequestHandler] | None = None
) -> Iterator[tuple[Path, str]]:
    """Serve a directory; yield it and its address; downloads go to a cache below *tmp_path*.

    Args:
        kind: what answers; None: one that gives the files.
    """
    root = tmp_path / "site"
    root.mkdir()

    class Handler(kind or http.server.SimpleHTTPRequestHandler):  # type: ignore[misc]
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(root))  # type: ignore[arg-type]

        def log_message(self, *_args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    patch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    patch.setenv("PIP_CERT", str(tmp_path))
    patch.setenv("ADT_CACHE_DIR", str(tmp_path / "cache"))
    patch.setenv("NO_PROXY", "127.0.0.1")
    try:
        yield root, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
