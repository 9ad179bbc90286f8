"""Options that prepare pictures for inputs, and outputs: written to the files of ``--output``, and shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from adt.errors import InputError
from adt.host.disk import check_output, disk_errors
from adt.host.document import aligned
from adt.host.npz import npz_bytes
from adt.numerics import Array
from adt.options.option import Options, option

if TYPE_CHECKING:
    from adt.package.inputs.pictures import PictureOptions


def save_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays by name to an .npz file."""
    with disk_errors(f"writing {path}", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(npz_bytes(arrays))


def summary(name: str, array: Array) -> str:
    """Format an output: ``name: float32[1, 214] min … max … argmax …``."""
    import numpy as np

    text = f"{name}: {array.dtype.name}[{', '.join(map(str, array.shape))}]"
    if array.size and np.issubdtype(array.dtype, np.number):
        numbers: Any = array
        text += f" min {numbers.min():.6g} max {numbers.max():.6g} argmax {int(numbers.argmax())}"
    return text


RAW = (".raw", ".bin")
SUFFIXES = (".npz", ".npy", *RAW)
HEAD = 5
"""Values that the table shows of each output."""


def check_outputs(targets: Sequence[str]) -> None:
    """Check each ``[NAME=]FILE`` before the run: its format, and that its directory exists."""
    for text in targets:
        path = Path(text.rpartition("=")[2])
        if path.suffix.lower() not in SUFFIXES:
            raise InputError(
                f"{path} does not say in which format to write: it ends with none of {', '.join(SUFFIXES)}",
                remedy="Name it .npz for all outputs, .npy or .raw for one.",
            )
        if not any(file.absolute().parent.is_dir() for file in (path, Path(text))):
            raise InputError(
                f"there is no directory {path.parent}", remedy=f"mkdir -p {quote(str(path.parent))}"
            )
        check_output(path if path.absolute().parent.is_dir() else Path(text))


def save_outputs(targets: Sequence[str], outputs: Mapping[str, Array]) -> tuple[Path, ...]:
    """Write *outputs* to ``[NAME=]FILE`` each: .npz all or that one, .npy and .raw the only or that one."""
    return tuple(_save(text, outputs) for text in targets)


def _save(text: str, outputs: Mapping[str, Array]) -> Path:
    import numpy as np

    name, path = split_output(text, [*outputs])
    suffix = path.suffix.lower()
    with disk_errors(f"writing {path}", path), path.open("wb") as file:
        if suffix == ".npz":
            file.write(npz_bytes({name: outputs[name]} if name else outputs))
        elif suffix == ".npy":
            np.lib.format.write_array(file, np.asarray(outputs[name], order="C"), allow_pickle=False)
        else:
            array = np.asarray(outputs[name])
            file.write(array.astype(array.dtype.newbyteorder("<")).tobytes())
    return path


def split_output(text: str, outputs: Sequence[str]) -> tuple[str, Path]:
    """Return the name of the output that ``[NAME=]FILE`` is for, empty for all of *outputs*, and the file."""
    name, path = _split(text, outputs)
    if name or path.suffix.lower() == ".npz":
        return name, path
    if len(outputs) != 1:
        raise InputError(
            f"{path} is for one output, and the model gives {', '.join(outputs) or 'none'}",
            remedy=f"Say which: --output NAME={path}; or write all: --output FILE.npz",
        )
    return outputs[0], path


def _split(text: str, outputs: Sequence[str]) -> tuple[str, Path]:
    for name in sorted(outputs, key=len, reverse=True):
        if text.startswith(f"{name}="):
            return name, Path(text[len(name) + 1 :])
    name, equals, _ = text.partition("=")
    below = "/" in text and Path(text).parent.is_dir()
    if equals and "/" not in name and not below:
        raise InputError(
            f"the model has no output {name!r}",
            remedy=f"It gives {', '.join(outputs)}. A file with a = in its name: ./{text}",
        )
    return "", Path(text)


def table(outputs: Mapping[str, Array]) -> list[str]:
    """Format a row for each output: name, type and shape, smallest, largest, mean, and the first values."""
    rows = [("output", "", "min", "max", "mean", "first values")]
    for row in described(outputs):
        kind = f"{row['dtype']}[{', '.join(map(str, row['shape']))}]"
        figures = [_figure(row[key]) for key in ("min", "max", "mean")]
        odd = f"  ({row['not_finite']} not finite)" if row["not_finite"] else ""
        more = " …" if row["size"] > len(row["head"]) else ""
        head = " ".join(_figure(value) for value in row["head"]) + more + odd
        rows.append((row["name"], kind, *figures, head))
    return aligned(rows)


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "-" if value is None else str(value)


def described(outputs: Mapping[str, Array]) -> list[dict[str, Any]]:
    """Describe each output for JSON: name, dtype, shape, figures; null where not finite, and counted."""
    return [_described(name, array) for name, array in outputs.items()]


def _described(name: str, array: Array) -> dict[str, Any]:
    import numpy as np

    floating = np.issubdtype(array.dtype, np.floating)
    numbers: Any = array.astype(np.float64) if floating else np.asarray(array)
    finite = numbers[np.isfinite(numbers)] if floating else numbers.reshape(-1)
    some = bool(finite.size)
    head = numbers.reshape(-1)[:HEAD]
    return {
        "name": name,
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "size": int(array.size),
        "min": finite.min().item() if some else None,
        "max": finite.max().item() if some else None,
        "mean": float(finite.mean()) if some else None,
        "not_finite": int(array.size - finite.size),
        "head": [value.item() if not floating or np.isfinite(value) else None for value in head],
    }


CENTER = "center"
METHODS = ("nearest", "bilinear", "bicubic", "lanczos")
SCALE = "Number to divide pixels by first; else 255 for floats."
MEAN = "Number for each channel to subtract after --scale."
STD = "Number for each channel to divide by after --mean."
LAYOUT = "Order of a picture's dimensions in the input; else as the shape says."
COLOR = "Order of a picture's channels in the input; else RGB."


class PictureFlags(Options):
    """Preparation of pictures."""

    resize: str | None = option(
        "Width x height of pictures; with --crop also the shorter side alone; else what the input takes.",
        default=None,
        metavar="224x224|256",
    )
    crop: str | None = option("Keep the proportions and cut out the middle.", default=None, metavar=CENTER)
    resample: str | None = option("Method of resizing; else bilinear.", default=None, choices=METHODS)
    scale: float | None = option(SCALE, default=None, least=1e-6)
    value_range: str | None = option(
        "Values that 0 and 255 become, instead of --scale.", "--range", default=None, metavar="LOW,HIGH"
    )
    mean: str | None = option(MEAN, default=None, metavar="0.485,0.456,0.406")
    std: str | None = option(STD, default=None, metavar="0.229,0.224,0.225")
    layout: str | None = option(LAYOUT, default=None, metavar="{NCHW,NHWC}")
    color: str | None = option(COLOR, default=None, metavar="{RGB,BGR,GRAY}")


def picture_options(flags: PictureFlags) -> PictureOptions | None:
    """Parse how pictures are prepared; None without such an option."""
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
