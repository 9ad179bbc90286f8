"""Take the screenshots of the pages that `adt profile`, `inspect` and `report` write.

python docs/screenshots.py PACKAGE [DIRECTORY]     PACKAGE is compiled for host, DIRECTORY is docs/figures
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

import adt

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
WIDTH, HEIGHT = 1100, 640
COLORS = 48
"""Colors of a picture: few, so that the files are small."""
LABEL = "screenshot"
"""Label of the benchmarks, by which the report finds them."""
BENCHMARKS = 3
"""Points of the time line in the report."""


def write_pages(package: Path, directory: Path) -> list[Path]:
    """Profile, inspect and benchmark *package* on this machine, and write a page of each into *directory*."""
    profile, inspect, report = (directory / f"{name}.html" for name in ("profile", "inspect", "report"))
    adt.profile_html(adt.profile(package), profile)
    adt.inspect_html(package, inspect)
    for _ in range(BENCHMARKS):
        adt.bench(package, protocol="quick", label=LABEL)
    adt.report_html(adt.report(label=LABEL), report)
    return [profile, inspect, report]


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


def main(package: str, directory: str = str(Path(__file__).parent / "figures")) -> None:
    """Write profile.png, inspect.png and report.png into *directory*."""
    with tempfile.TemporaryDirectory() as scratch:
        for page in write_pages(Path(package), Path(scratch)):
            sys.stdout.write(f"{take(page, Path(directory))}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
