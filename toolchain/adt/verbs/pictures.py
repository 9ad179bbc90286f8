"""Options that say how pictures become inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from adt.errors import InputError
from adt.options.option import Options, option

if TYPE_CHECKING:
    from adt.package.inputs.pictures import PictureOptions

CENTER = "center"


class PictureFlags(Options):
    """Preparation of pictures."""

    resize: str | None = option(
        "Width x height; with --crop also the shorter side alone. Default: what the input takes.",
        default=None,
        metavar="224x224|256",
    )
    crop: str | None = option("Keep the proportions and cut out the middle.", default=None, metavar=CENTER)
    resample: str | None = option(
        "Default: bilinear.", default=None, choices=["nearest", "bilinear", "bicubic", "lanczos"]
    )
    scale: float | None = option("Pixels are divided by it; default for floats: 255.", default=None)
    value_range: str | None = option(
        "Instead: what 0 and 255 become.", "--range", default=None, metavar="LOW,HIGH"
    )
    mean: str | None = option("Then subtracted, for each channel.", default=None, metavar="0.485,0.456,0.406")
    std: str | None = option("Then divided by, for each channel.", default=None, metavar="0.229,0.224,0.225")
    layout: str | None = option("Default: as the shape says.", default=None, metavar="NCHW|NHWC")
    color: str | None = option("Order of the channels; default: RGB.", default=None, metavar="RGB|BGR|GRAY")


def picture_options(flags: PictureFlags) -> PictureOptions | None:
    """Return how pictures are prepared; None without such an option."""
    from adt.package.inputs.pictures import PictureOptions, parse_numbers, parse_size

    if flags.crop not in (None, CENTER):
        raise InputError(f"a picture is not cut {flags.crop!r}", remedy=f"Use --crop {CENTER}.")

    def read(text: str | None, reader: Callable[..., Any], *arguments: str) -> Any:
        return None if text is None else reader(text, *arguments)

    options = {
        "resize": read(flags.resize, parse_size),
        "crop": flags.crop is not None or None,
        "resample": flags.resample,
        "scale": flags.scale,
        "range": read(flags.value_range, parse_numbers, "--range"),
        "mean": read(flags.mean, parse_numbers, "--mean"),
        "std": read(flags.std, parse_numbers, "--std"),
        "layout": read(flags.layout, str.upper),
        "color": read(flags.color, str.upper),
    }
    chosen = {name: value for name, value in options.items() if value is not None}
    return PictureOptions(**chosen) if chosen else None
