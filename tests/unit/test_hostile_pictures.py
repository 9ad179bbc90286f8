"""Pictures and labels that were made to fill the memory, to hang, or to reach the terminal."""

import io
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from adt.errors import InputError
from adt.package.classes import MAX_LABEL, read_labels
from adt.package.inputs.pictures import PictureOptions, pictures_as_input
from adt.package.manifest import TensorSpec

READ = """
import resource, sys
from pathlib import Path
from adt.errors import InputError
from adt.package.inputs.pictures import PictureOptions, pictures_as_input
from adt.package.manifest import TensorSpec
try:
    spec = TensorSpec("x", (1, 8, 8, 3), "uint8")
    print("mean", pictures_as_input([Path(sys.argv[1])], spec, PictureOptions())[0].mean())
except InputError as error:
    print(error.what)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
MOST_KILOBYTES = 1 << 20
"""Memory that the process may take; Python, numpy and Pillow take 60,000."""


def read_picture(path: Path) -> str:
    """Read *path* as an input, in a process of its own: what is said, which takes little memory and time."""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, timeout=120, check=True
    )
    *lines, memory = done.stdout.splitlines()
    assert int(memory) < MOST_KILOBYTES
    return "\n".join(lines)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(*more: bytes, size: tuple[int, int] = (16, 16), rows: bytes = b"") -> bytes:
    """Return a black picture with further chunks before its pixels."""
    rows = rows or zlib.compress(bytes((3 * size[0] + 1) * size[1]))
    header = struct.pack(">IIBBBBB", *size, 8, 2, 0, 0, 0)
    chunks = (chunk(b"IHDR", header), *more, chunk(b"IDAT", rows), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def zeros(size: int) -> bytes:
    """Return *size* zeros, a multiple of a megabyte, compressed: one megabyte, whose bits come again."""
    pack = zlib.compressobj(9, wbits=-15)
    megabyte = pack.compress(bytes(1 << 20)) + pack.flush(zlib.Z_FULL_FLUSH)
    checksum = struct.pack(">HH", size % 65521, 1)  # Adler-32
    return b"\x78\xda" + (size >> 20) * megabyte + pack.flush() + checksum


def test_zeros_are_what_zlib_reads() -> None:
    assert zlib.decompress(zeros(3 << 20)) == bytes(3 << 20)


def saved(picture: Image.Image, form: str, **options: object) -> bytes:
    data = io.BytesIO()
    picture.save(data, form, **options)
    return data.getvalue()


def scans(count: int) -> bytes:
    """Return a JPEG whose last scan is repeated."""
    data = saved(Image.new("L", (6000, 6000), 128), "JPEG", progressive=True)
    last = data[data.rindex(b"\xff\xc4", 0, data.rindex(b"\xff\xda")) : -2]
    return data[:-2] + count * last + data[-2:]


def icon() -> bytes:
    """Return an ICO that claims 16 x 16, of a PNG with 100 million pixels."""
    inside = png(size=(1, 1)).replace(struct.pack(">II", 1, 1), struct.pack(">II", 10_000, 10_000))
    head = inside[:12] + chunk(b"IHDR", inside[16:29])[4:]
    inside = head + inside[len(head) :]
    entry = struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(inside), 22)
    return struct.pack("<HHH", 0, 1, 1) + entry + inside


def tiff(width: int, height: int) -> bytes:
    """Return a TIFF of one deflated strip."""
    strip = zeros(8 << 20)
    tags = [
        (256, 4, width),
        (257, 4, height),
        (258, 3, 8),
        (259, 3, 8),
        (262, 3, 1),
        (273, 4, 8),
        (277, 3, 1),
    ]
    tags += [(278, 4, height), (279, 4, len(strip))]
    rows = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    return (
        b"II*\0" + struct.pack("<I", 8 + len(strip)) + strip + struct.pack("<H", len(tags)) + rows + bytes(4)
    )


def animated(form: str, mode: str, frames: int, **options: object) -> bytes:
    first, *others = (Image.new(mode, (64, 64), number % 200) for number in range(frames))
    return saved(first, form, save_all=True, append_images=others, **options)


def animated_webp() -> bytes:
    return animated("WEBP", "RGB", 25, lossless=True)


def turned(orientation: bytes) -> bytes:
    """Return a JPEG with an EXIF orientation of a strange kind."""
    entry = struct.pack("<HHI", 0x0112, 3, 1) + orientation
    exif = b"Exif\0\0II*\0" + struct.pack("<I", 8) + struct.pack("<H", 1) + entry + bytes(4)
    return saved(Image.new("RGB", (16, 16)), "JPEG", exif=exif)


BLACK = "mean 0.0"
PICTURES: dict[str, tuple[Callable[[], bytes], str]] = {
    "iCCP bomb": (lambda: png(chunk(b"iCCP", b"x\0\0" + zeros(1 << 30))), ""),
    "zTXt bomb": (lambda: png(chunk(b"zTXt", b"x\0\0" + zeros(1 << 30))), ""),
    "iTXt bomb": (lambda: png(chunk(b"iTXt", b"x\0\1\0\0\0" + zeros(1 << 30))), ""),
    "many texts": (lambda: png(*(20_000 * [chunk(b"tEXt", b"x\0" + b"y" * 4000)])), ""),
    "pixels bomb": (lambda: png(rows=zeros(1 << 30)), BLACK),
    "scans": (lambda: scans(2000), "more than 64 scans"),
    "usual scans": (lambda: saved(Image.new("RGB", (64, 64)), "JPEG", progressive=True), BLACK),
    "icon": (icon, "far too many pixels"),
    "TIFF": (lambda: tiff(0x7FFFFFFF, 0x7FFFFFFF), "far too many pixels"),
    "cut TIFF": (lambda: tiff(16, 16)[:-40], "picture"),
    "cut WebP": (lambda: animated_webp()[:200], "picture"),
    "animated GIF": (lambda: animated("GIF", "P", 3000), BLACK),
    "animated WebP": (animated_webp, BLACK),
    "strange orientation": (lambda: turned(struct.pack("<HH", 99, 0)), BLACK),
    "orientation without end": (lambda: turned(b"\xff\xff\xff\xff"), BLACK),
    "16 bits": (lambda: saved(Image.fromarray(np.full((16, 16), 257 * 7, np.uint16)), "PNG"), "mean 7.0"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_read_or_refused_soon_and_with_little_memory(tmp_path: Path, name: str) -> None:
    """Expect either where no text is given: which of them Pillow does is its own business."""
    make, expected = PICTURES[name]
    (tmp_path / "picture").write_bytes(make())
    assert expected in read_picture(tmp_path / "picture")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no picture in a format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n", "no picture in a format"),
        (saved(Image.new("RGB", (640, 640)), "JPEG")[:700], "cannot be read"),
        (png(size=(64, 64), rows=zlib.compress(b"")), "cannot be read"),
        *((png(size=size, rows=b"x"), "far too many pixels") for size in ((8_001, 10_000), (60_000, 60_000))),
    ],
    ids=["empty", "other", "cut off", "no pixels", "large", "bomb"],
)
def test_files_that_are_no_good_pictures(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "p").write_bytes(data)
    with pytest.raises(InputError, match=message):
        pictures_as_input([tmp_path / "p"], TensorSpec("x", (1, 3, 8, 8), "float32"), PictureOptions())


def no_files(directory: Path) -> list[Path]:
    os.mkfifo(directory / "fifo")
    with (directory / "sparse").open("wb") as file:
        file.truncate(10 << 30)
    return [directory / "fifo", Path("/dev/zero"), directory / "sparse"]


def test_what_is_no_regular_file_or_too_large_is_no_picture_and_has_no_labels(tmp_path: Path) -> None:
    for path in no_files(tmp_path):
        assert "it is no regular file" in (message := read_picture(path)) or "it has more than" in message
        with pytest.raises(InputError, match=r"it is no regular file|it has more than"):
            read_labels(path)


@pytest.mark.parametrize(
    "label", ["a\0b", "\x1b]0;x\x07", "\x1b[31mred", "a\x7f", "\u202egpj", "a\x85b", "a\u2028b", "x" * 1001]
)
def test_labels_that_cannot_be_shown_are_refused(tmp_path: Path, label: str) -> None:
    path = tmp_path / "labels.txt"
    path.write_text(f"fine\n{label}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"the label of class 1 in .* has control characters"):
        read_labels(path)


def test_one_long_line_and_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.txt"
    for data in (b"x" * (100 << 20), b"x" * (60 << 20), b"caf\xe9\n", b"\xed\xa0\x80\n"):
        path.write_bytes(data)
        with pytest.raises(InputError):
            read_labels(path)
    labels = ("Grüße\t日本 🐈", "👩\u200d🚀 n\u00b0\u00a01", "x" * MAX_LABEL)
    path.write_text("\r\n".join(labels), encoding="utf-8")
    assert read_labels(path) == labels
