"""Take the screenshots of the pages that `adt profile`, `inspect` and `report` write, and of terminals.

python docs/screenshots.py PACKAGE MODEL [DIRECTORY]     PACKAGE is MODEL compiled for host, DIRECTORY is docs/figures
"""

from __future__ import annotations

import contextlib
import html
import io
import os
import pty
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyte
from PIL import Image

import adt
from adt.host.cache import cache_dir

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
WIDTH, HEIGHT = 1100, 640
COLORS = 48
"""Colors of a picture: few, so that the files are small."""
LABEL = "screenshot"
"""Label of the benchmarks, by which the report finds them."""
BENCHMARKS = 3
"""Points of the time line in the report."""
MODEL = "model.onnx"
TERMINALS = {
    "up": ["up", MODEL, "--for", "host"],
    "tune": ["tune", MODEL, "--for", "host", "--trials", "16", "--db", "records"],
}
"""Commands whose terminals are shown, by the name of the picture."""
COLUMNS, LINES = 120, 36
COLORS_OF = {"default": "#ddd", "red": "#f66", "green": "#6d6", "brown": "#ec5", "cyan": "#5cd"}
"""Color of a page by pyte's name."""
PAGE = "<body style='background:#1c1c1c;margin:16px'><pre style='font-size:14px'>{}</pre>"


def write_pages(package: Path, directory: Path) -> list[Path]:
    """Profile, inspect and benchmark *package* on this machine, and write a page of each into *directory*."""
    profile, inspect, report = (directory / f"{name}.html" for name in ("profile", "inspect", "report"))
    adt.profile_html(adt.profile(package), profile)
    adt.inspect_html(package, inspect)
    for _ in range(BENCHMARKS):
        adt.bench(package, protocol="quick", label=LABEL)
    adt.report_html(adt.report(label=LABEL), report)
    return [profile, inspect, report]


def write_terminal(words: list[str], model: Path, page: Path) -> Path:
    """Run adt with *words* on a terminal, on a copy of *model*, and write the end of what it shows to *page*."""
    shutil.copy(model, page.parent / MODEL)
    leader, follower = pty.openpty()
    size = {"COLUMNS": str(COLUMNS), "LINES": str(LINES), "TERM": "xterm"}
    child = subprocess.Popen(
        [sys.executable, "-m", "adt", *words], stdin=subprocess.DEVNULL, stdout=follower, stderr=follower,
        cwd=page.parent, env=os.environ | size,
    )  # fmt: skip
    os.close(follower)
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    screen.set_mode(pyte.modes.LNM)
    stream.feed(f"$ adt {' '.join(words)}\n".encode())
    with contextlib.suppress(OSError):  # the end of a terminal
        while data := os.read(leader, 1 << 16):
            stream.feed(data.replace(str(cache_dir()).encode(), b"~/.cache/adt"))
    os.close(leader)
    if child.wait(60):
        sys.exit("\n".join(screen.display))
    page.write_text(PAGE.format("\n".join(map(_styled, map(screen.buffer.__getitem__, range(LINES))))))
    return page


def _styled(line: Mapping[int, pyte.screens.Char]) -> str:
    """Return a line of the screen as HTML."""
    return "".join(
        f"<span style='color:{COLORS_OF.get(char.fg, char.fg)}'>{html.escape(char.data)}</span>"
        for char in map(line.__getitem__, range(COLUMNS))
    ).rstrip()


def take(page: Path, out: Path) -> Path:
    """Take a picture of the upper part of *page* into the directory *out*."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not program:
        sys.exit("no Chromium is installed: apt-get install chromium-headless-shell")
    with tempfile.TemporaryDirectory() as scratch:
        picture = Path(scratch) / "page.png"
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--user-data-dir={scratch}/profile"]
        words = [
            program,
            *options,
            f"--window-size={WIDTH},{HEIGHT}",
            f"--screenshot={picture}",
            page.as_uri(),
        ]
        subprocess.run(words, check=True, capture_output=True, timeout=120)
        image = Image.open(io.BytesIO(picture.read_bytes())).convert("RGB").quantize(COLORS)
    file = out / f"{page.stem}.png"
    image.save(file, optimize=True)
    return file


def main(package: str, model: str, directory: str = str(Path(__file__).parent / "figures")) -> None:
    """Write profile.png, inspect.png, report.png, up.png and tune.png into *directory*."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        terminals = (
            write_terminal(words, Path(model), place / f"{name}.html") for name, words in TERMINALS.items()
        )
        for page in (*write_pages(Path(package), place), *terminals):
            sys.stdout.write(f"{take(page, Path(directory))}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
