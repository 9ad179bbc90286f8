"""Reference of adt/image.h with numpy, in double precision and with no regard to speed."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FITS = ("stretch", "crop", "letterbox")
LAYOUTS = ("NCHW", "NHWC")
COLORS = ("RGB", "BGR", "GRAY")
MATRICES = ("bt601", "bt709", "bt601 video", "bt709 video")
LUMA = np.array([0.299, 0.587, 0.114])


@dataclass(frozen=True)
class Format:
    """Format of the input."""

    height: int
    width: int
    layout: str = "NCHW"
    color: str = "RGB"
    dtype: str = "float32"
    scale: float = 1.0
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Placement:
    """Placement of a picture in the input."""

    fit: str = "stretch"
    rotation: int = 0
    crop: tuple[int, int, int, int] | None = None
    """Left, top, width, height; None: the whole."""
    border: int = 114


@dataclass(frozen=True)
class Yuv:
    """A camera's frame by its samples; how they lie in memory is not seen here."""

    y: Array
    """Luma, uint8[height, width]."""
    u: Array
    """Chroma, uint8[ceil(height / 2), ceil(width / 2)]."""
    v: Array
    matrix: str = "bt601"
    size: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.y.shape[::-1])


def weights(begin: float, length: float, lower: int, upper: int, elements: int) -> Array:
    """Return the triangle filter on a part of an axis of pixels, float64[elements, upper - lower]."""
    scale = length / elements
    centers = begin + (np.arange(elements) + 0.5) * scale
    pixels = np.arange(lower, upper) + 0.5
    values = np.maximum(0, 1 - np.abs(pixels - centers[:, None]) / max(scale, 1.0))
    return values / values.sum(axis=1, keepdims=True)


def levels(image: Yuv | Array, format_: Format, placement: Placement) -> Array:
    """Return the values that are normalised, from 0 to 255, float64[height, width, channels].

    Args:
        image: a camera's frame, or uint8[height, width, 3 or 1] in the order red, green, blue.
    """
    width, height = image.size if isinstance(image, Yuv) else image.shape[1::-1]
    left, top, width, height = placement.crop or (0, 0, width, height)
    sideways = placement.rotation in (90, 270)
    upright = (height, width) if sideways else (width, height)
    area = (format_.width, format_.height)
    factors = [area[i] / upright[i] for i in (0, 1)]
    shown, covered = list(map(float, upright)), list(area)
    if placement.fit == "crop":
        shown = [area[i] / max(factors) for i in (0, 1)]
    elif placement.fit == "letterbox":
        covered = [max(1, int(upright[i] * min(factors) + 0.5 + 1e-9)) for i in (0, 1)]
    part, elements = (shown[::-1], covered[::-1]) if sideways else (shown, covered)

    def resized(plane: Array, pixels: int) -> Array:
        across, down = (
            weights(
                (begin + (length - part[i]) / 2) / pixels,
                part[i] / pixels,
                begin // pixels,
                -(-(begin + length) // pixels),
                elements[i],
            )
            for i, (begin, length) in enumerate([(left, width), (top, height)])
        )
        rows = slice(top // pixels, -(-(top + height) // pixels))
        columns = slice(left // pixels, -(-(left + width) // pixels))
        return down @ plane[rows, columns].astype(np.float64) @ across.T

    if isinstance(image, Yuv):
        y, u, v = resized(image.y, 1), resized(image.u, 2) - 128, resized(image.v, 2) - 128
        colors = to_rgb(y, u, v, image.matrix, gray=format_.color == "GRAY")
    else:
        colors = np.stack([resized(image[..., c], 1) for c in range(image.shape[2])], axis=-1)
        if format_.color == "GRAY" and image.shape[2] == 3:
            colors = (colors @ LUMA)[..., None]
        elif format_.color != "GRAY" and image.shape[2] == 1:
            colors = np.repeat(colors, 3, axis=2)
    if format_.color == "BGR":
        colors = colors[..., ::-1]
    colors = np.rot90(colors, -placement.rotation // 90)
    area_levels = np.full((format_.height, format_.width, colors.shape[2]), float(placement.border))
    x, y0 = (format_.width - covered[0]) // 2, (format_.height - covered[1]) // 2
    area_levels[y0 : y0 + covered[1], x : x + covered[0]] = colors
    return area_levels


def to_rgb(y: Array, u: Array, v: Array, matrix: str, *, gray: bool) -> Array:
    """Solve ITU-R's equations for the colours."""
    kr, kb = (0.299, 0.114) if "601" in matrix else (0.2126, 0.0722)
    if "video" in matrix:
        y, u, v = (y - 16) * 255 / 219, u * 255 / 224, v * 255 / 224
    if gray:
        return np.clip(y, 0, 255)[..., None]
    red, blue = y + 2 * (1 - kr) * v, y + 2 * (1 - kb) * u
    green = (y - kr * red - kb * blue) / (1 - kr - kb)
    return np.clip(np.stack([red, green, blue], axis=-1), 0, 255)


def elements(values: Array, format_: Format) -> Array:
    """Return the input's elements in float64, or uint8, in its layout, of :func:`levels`."""
    if format_.dtype == "uint8":
        values = np.floor(values + 0.5)
    else:
        channels = values.shape[2]
        values = (values * format_.scale - np.array(format_.mean)[:channels]) / np.array(format_.std)[
            :channels
        ]
    return values.transpose(2, 0, 1) if format_.layout == "NCHW" else values
