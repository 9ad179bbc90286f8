"""Draw the figures of adreno.md: how the tensors of a model lie in arrays of OpenCL images."""

from __future__ import annotations

from dataclasses import dataclass

STEP = 26
"""Pixels of a texel."""
ACROSS, DOWN, DEEP = 6, 4, 3
"""Texels of the drawn image, and images of the drawn array."""
SHIFT = 16
"""Pixels from one image of the array to the next."""
LANE = 58
"""Width in pixels of a lane in the texel that is drawn large."""


@dataclass(frozen=True)
class Figure:
    """An array of images, as it is drawn."""

    tensor: str
    """The tensor, with its shape."""
    width: str
    """Axis along the image's x."""
    height: str
    """Axis along the image's y."""
    layer: str
    """Axis over the images of the array."""
    lanes: tuple[str, str, str, str]
    """Contents of the four lanes of a texel."""


FIGURES = {
    "activation": Figure(
        "activation (N, C, H, W)",
        "x: W",
        "y: H",
        "layers: N × ceil(C/4)",
        ("c = 4b", "4b + 1", "4b + 2", "4b + 3"),
    ),
    "convolution-weight": Figure(
        "weight of a convolution (O, I, KH, KW)",
        "x: input channel, I",
        "y: tap, KH × KW",
        "layers: ceil(O/4)",
        ("o = 4b", "4b + 1", "4b + 2", "4b + 3"),
    ),
    "depthwise-weight": Figure(
        "weight of a depthwise convolution (C, 1, KH, KW)",
        "x: tap, KH × KW",
        "y: block, ceil(C/4)",
        "layers: 1",
        ("c = 4y", "4y + 1", "4y + 2", "4y + 3"),
    ),
}


def figure(name: str) -> str:
    """Draw the figure *name* of :data:`FIGURES` as an SVG document."""
    drawn = FIGURES[name]
    deep = 1 if drawn.layer.endswith(" 1") else DEEP
    left, top = 130, 62 + (deep - 1) * SHIFT
    lines = [_text(16, 24, drawn.tensor, "title")]
    for layer in reversed(range(deep)):
        lines.append(_rect(left + layer * SHIFT, top - layer * SHIFT, ACROSS * STEP, DOWN * STEP, "image"))
    for row in range(DOWN):
        for column in range(ACROSS):
            kind = "chosen" if (row, column) == (1, ACROSS - 1) else "texel"
            lines.append(_rect(left + column * STEP, top + row * STEP, STEP, STEP, kind))
    right, bottom = left + ACROSS * STEP, top + DOWN * STEP
    lines.append(_text(left + ACROSS * STEP / 2, bottom + 22, drawn.width, "axis", "middle"))
    lines.append(_text(left - 10, top + DOWN * STEP / 2 + 4, drawn.height, "axis", "end"))
    lines.append(_text(right + deep * SHIFT, top - (deep - 1) * SHIFT + 12, drawn.layer, "axis"))
    large = right + 120
    for corner, to in ((top + STEP, top + 30), (top + 2 * STEP, top + 64)):
        lines.append(f'<line class="zoom" x1="{right}" y1="{corner}" x2="{large}" y2="{to}"/>')
    for lane, (channel, what) in enumerate(zip("RGBA", drawn.lanes, strict=True)):
        x = large + lane * LANE
        lines.append(_rect(x, top + 30, LANE, 34, "chosen"))
        lines.append(_text(x + LANE / 2, top + 52, what, "lane", "middle"))
        lines.append(_text(x + LANE / 2, top + 82, channel, "axis", "middle"))
    width, height = large + len(drawn.lanes) * LANE + 16, bottom + 36
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="{drawn.tensor} in an array of images">\n'
        f"<style>{STYLE}</style>\n" + "\n".join(lines) + "\n</svg>\n"
    )


STYLE = (
    "rect{stroke:#57606a}.image{fill:#d0d7de}.texel{fill:#f6f8fa}.chosen{fill:#ffd8b5}"
    ".zoom{stroke:#bc4c00;stroke-dasharray:4 3}text{font:13px sans-serif;fill:#57606a}"
    ".title{font-weight:bold}.lane{font-size:12px;fill:#24292f}"
)
"""Colours that can be read on a light page and on a dark one."""


def _rect(x: float, y: float, width: float, height: float, kind: str) -> str:
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>'


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{text}</text>'
