"""Pictures as inputs of a model: decoded, turned upright, resized, cut, normalised, in the model's layout.

A picture goes through these steps, in this order; :class:`PictureOptions` has what each does::

    decode, turn as its EXIF says    8 bits a channel; of several frames the first
    colour                           RGB, BGR or grey; alpha is dropped, grey is widened
    resize, cut                      to the input's height and width
    scale, mean, std                 y = (x / scale - mean) / std, floats only
    layout, dtype, batch             NCHW or NHWC, as the input's shape is
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adt.errors import InputError
from adt.host.extras import load
from adt.limits import open_regular
from adt.numerics import Array
from adt.package.manifest import TensorSpec, kind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL.Image import Image


log = logging.getLogger("adt.run")

MAX_PIXELS = 80_000_000
"""A picture with more is refused before it is decoded: so are files that were made to fill the memory."""
MAX_FILE = 1 << 30  # bytes of a picture's file
MAX_SCANS = 64
"""Passes over a JPEG; each takes as long as all pixels do, and no bytes. Usual ones have ten at most."""
MAX_SIDE = 1 << 15
FORMATS = ("PNG", "JPEG", "MPO", "WEBP", "AVIF", "BMP", "GIF", "TIFF", "PPM", "JPEG2000", "TGA", "ICO")
"""Formats that are read of all that Pillow knows; for some others it starts programs (EPS)."""
JPEG = ("JPEG", "MPO")
SCAN = b"\xff\xda"  # begins a scan, and occurs nowhere else in what is decoded
LAYOUTS = ("NCHW", "NHWC")
COLORS = ("RGB", "BGR", "GRAY")
RESAMPLING = ("nearest", "bilinear", "bicubic", "lanczos")
PROBLEM = "Give this input as an array: --input FILE.npy."


@dataclass(frozen=True)
class PictureOptions:
    """Conversion of a picture to an input; the defaults suit floats in [0, 1] of the input's own size."""

    resize: tuple[int, ...] = ()
    """Width and height; with *crop* also one number, the length of the shorter side before the cut. Empty: as
    the input needs it."""
    crop: bool = False
    """Keep the proportions: resize until the input's area is covered, then cut it out of the middle."""
    resample: str = "bilinear"
    """Filter of the resizing: one of :data:`RESAMPLING`."""
    mean: tuple[float, ...] = ()
    """Subtracted after *scale*, one for each channel in the order of *color*, or one for all."""
    std: tuple[float, ...] = ()
    """Divided by after that, likewise."""
    scale: float | None = None
    """Pixels, 0 to 255, are divided by it. None: 255 for floats."""
    range: tuple[float, float] | None = None
    """Values of 0 and 255, instead of *scale*."""
    layout: str = ""
    """One of :data:`LAYOUTS`; empty: found from the shape."""
    color: str = ""
    """One of :data:`COLORS`; empty: RGB for three channels, GRAY for one."""

    @property
    def normalises(self) -> bool:
        """True if values are to be changed."""
        return bool(self.mean or self.std or self.scale is not None or self.range)


def parse_size(text: str) -> tuple[int, ...]:
    """Parse ``224x224`` (width x height) or ``256``; InputError if it is neither, or too large."""
    match = re.fullmatch(r"(\d{1,6})(?:[xX×](\d{1,6}))?", text.strip())
    size = tuple(int(number) for number in match.groups() if number) if match else ()
    if not size or min(size) < 1 or max(size) > MAX_SIDE or math.prod(size) > MAX_PIXELS:
        raise InputError(
            f"{text!r} is no size of a picture",
            remedy="Give width and height, --resize 224x224, or with --crop the shorter side, --resize 256.",
        )
    return size


def parse_numbers(text: str, option: str) -> tuple[float, ...]:
    """Parse ``0.485,0.456,0.406``."""
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or not all(map(math.isfinite, numbers)):
        raise InputError(
            f"{text!r} is no list of numbers", remedy=f"Give one for each channel: {option} 0.5,0.5,0.5"
        )
    return numbers


def pictures_as_input(files: Sequence[Path], spec: TensorSpec, options: PictureOptions) -> tuple[Array, str]:
    """Make the array for the input *spec* from the pictures of its batch; InputError if they do not fit.

    Describe the conversion, too: ``640x480 resized to 224x224, RGB, / 255, NCHW``.
    """
    import numpy as np

    load("PIL.Image", "image", "reading a picture")
    check_options(options)
    form = _form(spec, options)
    check_channels(spec, options, form.channels)
    _check_values(spec, options)
    pixels, notes = zip(*(_pixels(file, form, options) for file in files), strict=True)
    if len({array.shape for array in pixels}) > 1:
        raise InputError("the pictures have different sizes", remedy="Make them equal: --resize WIDTHxHEIGHT")
    if isinstance(form.batch, int) and form.batch != len(pixels):
        raise InputError(
            f"input {spec.name} is {kind(spec)}, a batch of {form.batch}; given: {len(pixels)} pictures",
            remedy=f"Give an .npz file with an array of {form.batch}, or to adt run as many --image; or fix "
            "another batch: --shape.",
        )
    if form.batch is None and len(pixels) > 1:
        what = f"input {spec.name} is {kind(spec)}, one picture; given: {len(pixels)}"
        raise InputError(what, remedy="Give one --image.")
    values, scaling = _normalised(np.stack(pixels), spec, options)
    if form.layout == "NCHW":
        values = values.transpose(0, 3, 1, 2)
    if form.batch is None:
        values = values[0]
    how = f"{'; '.join(notes)}, {form.color}, {scaling}, {form.layout}"
    return np.ascontiguousarray(values), how


@dataclass(frozen=True)
class _Form:
    """Form of pictures that an input takes; an extent that is no number is open."""

    batch: int | str | None  # none: it has no such dimension
    height: int | str
    width: int | str
    channels: int
    layout: str
    color: str


def _form(spec: TensorSpec, options: PictureOptions) -> _Form:
    """Return the form that *spec* takes, by its shape."""
    shape, what = spec.shape, f"input {spec.name} is {kind(spec)}"
    if len(shape) not in (3, 4) or not re.fullmatch(r"u?int8|float(16|32|64)", spec.dtype):
        raise InputError(
            f"{what}, which is no picture: those have 3 or 4 axes of floats or 8-bit integers", remedy=PROBLEM
        )
    fitting = [layout for layout, axis in zip(LAYOUTS, (-3, -1), strict=True) if shape[axis] in (1, 3)]
    layouts = [options.layout] if options.layout else fitting
    if len(layouts) != 1:
        raise InputError(
            f"{what}: {'both' if layouts else 'neither'} of NCHW and NHWC can be its layout",
            remedy="Say which: --layout NCHW or --layout NHWC.",
        )
    (layout,) = layouts
    batch = shape[0] if len(shape) == 4 else None
    channels, height, width = shape[-3:] if layout == "NCHW" else (shape[-1], *shape[-3:-1])
    if isinstance(channels, str):
        channels = 1 if options.color == "GRAY" else 3
    elif channels not in (1, 3):
        raise InputError(
            f"{what}: {channels} channels as {layout}, where pictures have 1 or 3",
            remedy=f"Try --layout {LAYOUTS[layout == 'NCHW']}. {PROBLEM}",
        )
    color = options.color or ("RGB" if channels == 3 else "GRAY")
    if channels == 1 and color != "GRAY":
        raise InputError(
            f"{what}: one channel, which cannot be {color}",
            remedy="Leave --color away, or give --color GRAY.",
        )
    return _Form(batch, height, width, channels, layout, color)


def check_options(options: PictureOptions) -> None:
    """Refuse words and numbers that fit no input, or contradict each other."""
    for name, known in (("layout", LAYOUTS), ("color", COLORS), ("resample", RESAMPLING)):
        if (value := getattr(options, name)) and value not in known:
            raise InputError(f"--{name} {value!r} is unknown", remedy=f"Use {', '.join(known)}.")
    if options.range is not None and len(options.range) != 2:
        raise InputError("--range takes two numbers", remedy="Say what 0 and 255 become: --range -1,1")
    if len(options.resize) == 1 and not options.crop:
        raise InputError(
            f"--resize {options.resize[0]} is the length of the shorter side, which goes with --crop center",
            remedy="Give width and height, --resize 224x224, or add --crop center:",
            options=("--crop", "center"),
        )
    if options.scale is not None and options.range is not None:
        raise InputError("--scale and --range contradict each other", remedy="Give one of them.")
    if options.scale == 0 or 0 in options.std:
        raise InputError("a picture cannot be divided by 0", remedy="Check --scale and --std.")


def check_channels(spec: TensorSpec, options: PictureOptions, channels: int) -> None:
    """Refuse a mean or a deviation that has neither one number nor one for each of the *channels*."""
    for name, numbers in (("--mean", options.mean), ("--std", options.std)):
        if len(numbers) not in (0, 1, channels):
            what = f"{name} has {len(numbers)} numbers, the input {spec.name} has {channels} channels"
            raise InputError(what, remedy="Give one for each channel, or one for all.")


def _check_values(spec: TensorSpec, options: PictureOptions) -> None:
    if spec.dtype == "uint8" and options.normalises:
        raise InputError(
            f"input {spec.name} is uint8: it takes pixels as they are",
            remedy="Leave --mean, --std, --scale and --range away: the model normalises by itself.",
        )
    if spec.dtype == "int8" and not options.range:
        raise InputError(
            f"input {spec.name} is int8, which cannot hold pixels from 0 to 255",
            remedy="Say what 0 and 255 become:",
            options=("--range", "-128,127"),
        )


def _pixels(file: Path, form: _Form, options: PictureOptions) -> tuple[NDArray[np.uint8], str]:
    """Read the picture as uint8[height, width, channels]; say what was done, too."""
    import numpy as np

    picture = _upright(file, form.color)
    before = f"{picture.width}x{picture.height}"
    picture, note = _sized(picture, _size(form, options, picture), options)
    array = np.asarray(picture, dtype=np.uint8)
    if array.ndim == 2:  # grey is widened where it was asked for
        array = np.repeat(array[..., np.newaxis], form.channels, axis=2)
    if form.color == "BGR":
        array = array[..., ::-1]
    return array, f"{file.name}: {before}{note}"


def _upright(file: Path, color: str) -> Image:
    """Decode the picture as its EXIF orientation wants it, in mode RGB or L."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    smaller = "Make it smaller in another program first, if you trust it."
    try:
        Image.init()
        formats = [name for name in FORMATS if name in Image.OPEN]
        with open_regular(file, MAX_FILE) as data, _bounded(), Image.open(data, formats=formats) as opened:
            if opened.format in JPEG and file.read_bytes().count(SCAN) > MAX_SCANS:
                raise InputError(f"{file} has more than {MAX_SCANS} scans", remedy=smaller)
            opened.load()
            picture = ImageOps.exif_transpose(opened)
            return _eight_bits(picture).convert("L" if color == "GRAY" else "RGB")
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"there is no picture {file}", remedy="Check --image.") from error
    except IsADirectoryError as error:
        raise InputError(f"{file} is a directory", remedy="Name a file: --image FILE") from error
    except PermissionError as error:
        raise InputError(f"{file} may not be read", remedy="Check its permissions.") from error
    except UnidentifiedImageError as error:
        raise InputError(
            f"{file} is no picture in a format that is read",
            remedy="Convert it to PNG or JPEG, or leave it out; arrays are .npz, .npy files "
            "(adt run: --input).",
        ) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(f"{file} has far too many pixels: {error}", remedy=smaller) from error
    except Exception as error:  # a decoder's own, too: OSError, SyntaxError, EOFError, struct.error, …
        raise InputError(
            f"the picture {file} cannot be read: {error}",
            remedy="It may be damaged: get it again, or save it anew as PNG.",
        ) from error


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    """Have Pillow refuse what has too many pixels, also pictures within pictures, as those of an ICO."""
    from PIL import Image

    before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, MAX_PIXELS
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    finally:
        Image.MAX_IMAGE_PIXELS = before


def _eight_bits(picture: Image) -> Image:
    """Convert 16 bits a pixel to 8, where Pillow would cut off what is above 255, and palettes to colours."""
    import numpy as np
    from PIL import Image

    if picture.mode == "F":
        raise ValueError("its pixels are floats, of no known range")
    if not picture.mode.startswith("I"):
        # a palette's transparency would be warned of
        return picture.convert("RGBA") if picture.mode == "P" else picture
    values = np.clip(np.asarray(picture), 0, 0xFFFF).astype(np.int32)
    return Image.fromarray(((values + 128) // 257).astype(np.uint8))


def _size(form: _Form, options: PictureOptions, picture: Image) -> tuple[int, int]:
    """Return width and height that the input has; where it is open those of --resize, else the picture's."""
    default = options.resize if len(options.resize) == 2 else picture.size
    width = form.width if isinstance(form.width, int) else default[0]
    height = form.height if isinstance(form.height, int) else default[1]
    if not options.crop and options.resize and options.resize != (width, height):
        size = "x".join(map(str, options.resize))
        larger = options.resize[0] >= width and options.resize[1] >= height
        raise InputError(
            f"the input takes pictures of {width}x{height} (width x height), not of {size}",
            remedy="Leave --resize away"
            + ("; or add --crop center, to cut the middle out." if larger else "."),
        )
    return width, height


def _sized(picture: Image, size: tuple[int, int], options: PictureOptions) -> tuple[Image, str]:
    """Resize the picture, and cut it where that is asked for; say what was done, too."""
    from PIL import Image

    resample, (width, height) = Image.Resampling[options.resample.upper()], size
    if not options.crop:
        if picture.size == size:
            return picture, ""
        return picture.resize(size, resample), f" resized to {width}x{height}"
    if len(options.resize) == 1:
        factor = options.resize[0] / min(picture.size)
    else:
        over = options.resize or size
        factor = max(over[0] / picture.width, over[1] / picture.height)
    # the side that decides comes out exact, the other one is cut off, as torchvision's Resize does
    larger = (int(picture.width * factor + 1e-6), int(picture.height * factor + 1e-6))
    if math.prod(larger) > MAX_PIXELS:
        raise InputError(
            f"resized, the picture would have {larger[0]} x {larger[1]} pixels",
            remedy="Its sides are too different: leave --crop away, or cut it before.",
        )
    if larger[0] < width or larger[1] < height:
        raise InputError(
            f"resized to {larger[0]}x{larger[1]}, the picture is smaller than the {width}x{height} to cut",
            remedy=f"Resize to more: --resize {max(size)}",
        )
    if larger != picture.size:
        picture = picture.resize(larger, resample)
    left, top = round((larger[0] - width) / 2), round((larger[1] - height) / 2)
    cut = picture.crop((left, top, left + width, top + height))
    return cut, f" resized to {larger[0]}x{larger[1]}, the middle {width}x{height}"


def _normalised(pixels: NDArray[Any], spec: TensorSpec, options: PictureOptions) -> tuple[NDArray[Any], str]:
    """Convert the batch to the dtype of *spec*; say what was done, too."""
    import numpy as np

    floating = spec.dtype.startswith("float")
    if not floating and not options.normalises:
        return pixels.astype(spec.dtype), "pixels as they are"
    values = pixels.astype(np.float64)
    if options.range is not None:
        low, high = options.range
        values = low + values * ((high - low) / 255)
        scaling = f"0..255 to {low:g}..{high:g}"
    else:
        scale = options.scale if options.scale is not None else 255.0 if floating else 1.0
        values = values / scale
        scaling = f"/ {scale:g}" if scale != 1 else "not scaled"
    for sign, numbers in (("-", options.mean), ("/", options.std)):
        if numbers:
            values = values - np.array(numbers) if sign == "-" else values / np.array(numbers)
            scaling += f" {sign} ({', '.join(f'{number:g}' for number in numbers)})"
    if floating:
        return values.astype(spec.dtype), scaling
    limits = np.iinfo(spec.dtype)
    return np.clip(np.rint(values), limits.min, limits.max).astype(spec.dtype), scaling
