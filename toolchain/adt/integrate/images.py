"""Inputs that take a picture: recognised by their shape, with the normalisation that the user gives."""

from __future__ import annotations

from adt.errors import InputError
from adt.integrate.describe import ImageInput
from adt.model.inputs.pictures import COLORS, LAYOUTS, PictureOptions
from adt.model.inputs.validation import kind
from adt.model.package.manifest import TensorSpec

DTYPES = ("uint8", "float16", "float32")
"""Of inputs that a camera's or a file's pixels go into."""
SMALLEST = 8
"""Pixels: an input with a shorter side is some other array."""


def image_input(spec: TensorSpec, options: PictureOptions) -> ImageInput | None:
    """How one picture becomes the input *spec*; None: it takes none.

    It does when it has 1 or 3 channels where one layout has them, a fixed height and width, and a batch of
    one or of any size. An input of uint8 takes the pixels as they are: its model normalises by itself.

    Raises:
        InputError: *options* are for another number of channels.
    """
    if spec.dtype not in DTYPES or len(spec.shape) != 4:
        return None
    batch = spec.shape[0]
    if isinstance(batch, int) and batch != 1:
        return None
    layout = _layout(spec, options)
    if layout is None:
        return None
    extents = spec.shape[1:] if layout == "NHWC" else (*spec.shape[2:], spec.shape[1])
    height, width, channels = extents
    if isinstance(height, str) or isinstance(width, str) or isinstance(channels, str):
        return None
    if channels not in (1, 3) or min(height, width) < SMALLEST:
        return None
    color = options.color or ("RGB" if channels == 3 else "GRAY")
    if (color == "GRAY") != (channels == 1):
        raise InputError(
            f"input {spec.name} is {kind(spec)}, which cannot be {color}",
            remedy="Leave --color away, or give RGB or BGR for three channels and GRAY for one.",
        )
    floats = spec.dtype != "uint8"
    if not floats:
        return ImageInput(layout, height, width, channels, None, None, 1.0, color)
    divisor = 255.0 if options.scale is None else options.scale
    return ImageInput(
        layout,
        height,
        width,
        channels,
        _each(options.mean, channels, "--mean", spec),
        _each(options.std, channels, "--std", spec),
        1.0 / divisor,
        color,
    )


def check_options(options: PictureOptions) -> None:
    """Refuse words and numbers that fit no input.

    Raises:
        InputError: an unknown layout or colour, or a division by zero.
    """
    for option, given, known in (("--layout", options.layout, LAYOUTS), ("--color", options.color, COLORS)):
        if given and given not in known:
            raise InputError(f"{option} {given!r} is unknown", remedy=f"Use {', '.join(known)}.")
    if options.scale == 0 or 0 in options.std:
        raise InputError("a picture cannot be divided by 0", remedy="Check --scale and --std.")


def _layout(spec: TensorSpec, options: PictureOptions) -> str | None:
    fits = [
        one for one, extent in zip(LAYOUTS, (spec.shape[1], spec.shape[3]), strict=True) if extent in (1, 3)
    ]
    if options.layout:
        return options.layout if options.layout in fits else None
    return fits[0] if len(fits) == 1 else None


def _each(
    numbers: tuple[float, ...], channels: int, option: str, spec: TensorSpec
) -> tuple[float, ...] | None:
    if len(numbers) not in (0, 1, channels):
        raise InputError(
            f"{option} has {len(numbers)} numbers, the input {spec.name} has {channels} channels",
            remedy="Give one for each channel, or one for all.",
        )
    return (numbers * channels if len(numbers) == 1 else numbers) or None
