"""The header adt/image.h on pictures and camera frames of each kind, against numpy and Pillow, under
sanitizers."""

import itertools
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from adt.host.directories import resource
from support.codegen import image_reference as reference
from support.codegen.image_reference import COLORS, FITS, LAYOUTS, MATRICES, Format, Placement, Yuv
from support.devices.programs import run_program
from support.sampling import of_each_run

PROGRAM = Path(__file__).parents[1] / "support/codegen/image_fills.cc"
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror")
Array = NDArray[Any]
LEVEL = 1 / 255
WHOLE = Placement()
PHOTO = Format(16, 20, scale=LEVEL, mean=(0.5, 0.25, 0.125), std=(0.5, 1.0, 2.0))


@dataclass(frozen=True)
class Plane:
    """The place of samples in a buffer."""

    buffer: int
    offset: int
    bytes: int
    row_stride: int
    pixel_stride: int


@dataclass(frozen=True)
class Case:
    """A picture in memory, what it becomes, and how."""

    kind: str
    size: tuple[int, int]
    planes: tuple[Plane, ...]
    buffers: tuple[bytes, ...]
    format: Format = PHOTO
    placement: Placement = WHOLE
    matrix: str = "bt601"
    image: Yuv | Array = field(default_factory=lambda: np.zeros((1, 1, 3), np.uint8))

    def text(self) -> bytes:
        """Return the case as the program reads it."""
        crop = self.placement.crop or (0, 0, 0, 0)
        words: list[object] = [
            self.kind, MATRICES.index(self.matrix), *self.size,
            FITS.index(self.placement.fit), self.placement.rotation, *crop, self.placement.border,
            LAYOUTS.index(self.format.layout), COLORS.index(self.format.color), self.format.height,
            self.format.width, self.format.scale, *self.format.mean, *self.format.std, self.format.dtype,
            len(self.buffers), *map(len, self.buffers), len(self.planes),
        ]  # fmt: skip
        for plane in self.planes:
            words += [plane.buffer, plane.offset, plane.bytes, plane.row_stride, plane.pixel_stride]
        return " ".join(map(str, words)).encode() + b"\n" + b"".join(self.buffers)


def packed(samples: Array, row_stride: int, pixel_stride: int) -> bytes:
    """Return a plane that ends with its last sample; what lies between samples is of no use."""
    height, width = samples.shape
    memory = np.full((height - 1) * row_stride + (width - 1) * pixel_stride + 1, 201, np.uint8)
    for y in range(height):
        memory[y * row_stride :][: (width - 1) * pixel_stride + 1 : pixel_stride] = samples[y]
    return memory.tobytes()


def frame(width: int, height: int, kind: str) -> Case:
    random = np.random.default_rng(width * 1000 + height)
    half = ((height + 1) // 2, (width + 1) // 2)
    y = random.integers(0, 256, (height, width), np.uint8)
    u, v = (random.integers(0, 256, half, np.uint8) for _ in range(2))
    row, pixel, chroma_row, chroma_pixel = {
        "I420": (width, 1, half[1], 1),
        "NV12": (width, 1, 2 * half[1], 2),
        "NV21": (width, 1, 2 * half[1], 2),
        "padded": (width + 13, 1, half[1] + 5, 1),
        "sparse": (3 * width + 1, 3, 4 * half[1] + 7, 4),
    }[kind]
    luma = packed(y, row, pixel)
    places = [Plane(0, 0, len(luma), row, pixel)]
    buffers = [luma]
    if kind in ("NV12", "NV21"):
        first, second = (u, v) if kind == "NV12" else (v, u)
        both = np.stack([first, second], axis=-1).tobytes()
        buffers.append(both)
        offsets = (0, 1) if kind == "NV12" else (1, 0)
        places += [Plane(1, offset, len(both) - offset, chroma_row, chroma_pixel) for offset in offsets]
    else:
        for i, samples in enumerate((u, v), 1):
            buffers.append(packed(samples, chroma_row, chroma_pixel))
            places.append(Plane(i, 0, len(buffers[i]), chroma_row, chroma_pixel))
    return Case("yuv", (width, height), tuple(places), tuple(buffers), image=Yuv(y, u, v))


def pixels(picture: Array, channels: int, spare: int = 0, *, kind: str = "pixels") -> Case:
    """Return decoded pixels uint8[height, width, 3 or 1], *channels* bytes each, rows *spare* bytes apart."""
    height, width, depth = picture.shape
    memory = np.full((height, width * channels + spare), 77, np.uint8)
    for c in range(depth):
        at = depth - 1 - c if kind == "reversed" else c
        memory[:, at : width * channels : channels] = picture[..., c]
    data = memory.tobytes()
    place = Plane(0, 0, len(data), width * channels + spare, channels)
    return Case(kind, (width, height), (place,), (data,), image=picture)


@pytest.fixture(scope="module", params=["g++", "clang++"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile with vectors, as g++ makes them at -O3 and clang at -O2, and with the sanitizers."""
    place = tmp_path_factory.mktemp("image_fills") / "image_fills"
    include = resource("cpp_runner") / "include"
    watched = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    level = {"g++": "-O3", "clang++": "-O2"}[request.param]
    words = [request.param, "-std=c++17", level, *watched, *WARNINGS, f"-I{include}", PROGRAM, "-o", place]
    run_program(*words)
    return place


def answers(program: Path, directory: Path, cases: Sequence[Case]) -> list[tuple[str, bytes]]:
    """Return ``=`` and its elements for each case, or ``!`` and the reason of its refusal."""
    file = directory / "cases.bin"
    file.write_bytes(b"".join(case.text() for case in cases))
    done = subprocess.run([program, file], capture_output=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr.decode()
    rest, replies = done.stdout, []
    while rest:
        line, _, rest = rest.partition(b"\n")
        mark, size = line.split()
        replies.append((mark.decode(), rest[: int(size)]))
        rest = rest[int(size) :]
    assert len(replies) == len(cases)
    return replies


def check(program: Path, directory: Path, cases: Sequence[Case]) -> None:
    """Check that all *cases* are right to a level in 255: half of one, where elements are levels."""
    for case, (mark, data) in zip(cases, answers(program, directory, cases), strict=True):
        assert mark == "=", data
        expected = reference.elements(reference.levels(case.image, case.format, case.placement), case.format)
        filled = np.frombuffer(data, case.format.dtype).reshape(expected.shape).astype(np.float64)
        error = np.abs(filled - expected)
        if case.format.dtype == "uint8":
            assert error.max() <= 1, case
            assert (error > 0).mean() < 0.02, case  # halves that are rounded the other way
        else:
            step = case.format.scale / min(case.format.std)
            assert error.max() <= step * (0.01 if case.format.dtype == "float32" else 0.5), case


@pytest.mark.parametrize("step", of_each_run(1, 7, 1))
def test_frames_in_every_combination(program: Path, step: int, tmp_path: Path) -> None:
    """Vary strides, rotation, fit, layout and type; odd sizes; larger and smaller than the input.

    Every seventh combination has each pair of values, as no extent of the product is a multiple of seven.
    """
    sizes = ((48, 32), (37, 23), (9, 55), (1, 1), (8, 6))
    kinds = ("I420", "NV12", "NV21", "padded", "sparse")
    frames = {(size, kind): frame(*size, kind) for size, kind in itertools.product(sizes, kinds)}
    types = ("float32", "float16", "uint8")
    rotations = (0, 90, 180, 270)
    cases = [
        replace(
            picture,
            format=replace(PHOTO, layout=layout, dtype=dtype),
            placement=Placement(fit, rotation),
        )
        for picture, rotation, fit, layout, dtype in itertools.product(
            frames.values(), rotations, FITS, LAYOUTS, types
        )
    ]
    check(program, tmp_path, cases[::step])


def test_parts_of_frames_colors_and_matrices(program: Path, tmp_path: Path) -> None:
    """Read odd parts of odd frames, and nothing outside of the part."""
    parts = ((0, 0, 37, 23), (5, 3, 20, 11), (4, 2, 1, 1), (36, 0, 1, 23), (3, 22, 30, 1))
    cases = [
        replace(
            frame(37, 23, "NV21"),
            format=replace(PHOTO, color=color),
            placement=Placement(fit, 90, part, border=0),
        )
        for part, fit, color in itertools.product(parts, FITS, COLORS)
    ]
    for matrix, color in itertools.product(MATRICES, COLORS):
        picture = frame(24, 18, "I420")
        assert isinstance(picture.image, Yuv)
        image = replace(picture.image, matrix=matrix)
        cases.append(replace(picture, matrix=matrix, image=image, format=replace(PHOTO, color=color)))
    check(program, tmp_path, cases)


def test_a_camera_s_frames(program: Path, tmp_path: Path) -> None:
    """Resize frames of a camera's size, to a few elements, and to one."""
    hd = replace(frame(1280, 720, "NV21"), format=replace(PHOTO, height=224, width=224))
    cases = [
        replace(hd, placement=Placement("crop", 90)),
        replace(hd, placement=Placement("letterbox", 270)),
        replace(hd, format=replace(PHOTO, height=7, width=1)),
        replace(frame(4001, 3, "NV12"), format=replace(PHOTO, height=1, width=1)),
    ]
    check(program, tmp_path, cases)


def test_decoded_pixels(program: Path, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    colors, gray = (random.integers(0, 256, (23, 37, depth), np.uint8) for depth in (3, 1))
    pictures = (
        pixels(colors, 3),
        pixels(colors, 4, 8),
        pixels(colors, 4, kind="reversed"),
        pixels(gray, 1),
        pixels(gray, 1, 3),
    )
    cases = [
        replace(picture, format=replace(PHOTO, color=color), placement=Placement(fit, rotation))
        for picture, color, fit, rotation in itertools.product(pictures, COLORS, FITS, (0, 270))
    ]
    check(program, tmp_path, cases)


@pytest.mark.parametrize("size", [(5, 4), (64, 48), (20, 16), (21, 90)])
def test_pillow_resizes_alike(program: Path, size: tuple[int, int], tmp_path: Path) -> None:
    """Compare with Pillow, which rounds twice, so that a level may differ by one."""
    picture = np.random.default_rng(4).integers(0, 256, (48, 64, 3), np.uint8)
    format_ = Format(size[1], size[0], layout="NHWC", dtype="uint8")
    box = (8, 4, 56, 40)
    part = Placement(crop=(box[0], box[1], box[2] - box[0], box[3] - box[1]))
    case = replace(pixels(picture, 3), format=format_, placement=part)
    ((mark, data),) = answers(program, tmp_path, [case])
    assert mark == "="
    expected = Image.fromarray(picture).crop(box).resize(size, Image.Resampling.BILINEAR)
    filled = np.frombuffer(data, np.uint8).reshape(size[1], size[0], 3).astype(int)
    assert np.abs(filled - np.asarray(expected)).max() <= 1


def test_what_cannot_be_is_refused(program: Path, tmp_path: Path) -> None:
    good = frame(20, 10, "NV21")
    luma, blue, red = good.planes
    huge = 2**64 - 1

    def placed(**more: Any) -> Case:
        return replace(good, placement=Placement(**more))

    cases = {
        "a plane of 199 bytes, where 20 x 10": replace(good, planes=(replace(luma, bytes=199), blue, red)),
        "a plane of 98 bytes, where 10 x 5": replace(good, planes=(luma, replace(blue, bytes=98), red)),
        "a plane of 0 bytes": replace(good, planes=(luma, blue, replace(red, bytes=0))),
        "a picture of 0 x 10 pixels": replace(good, size=(0, 10)),
        "a picture of 20 x 0 pixels": replace(good, size=(20, 0)),
        "a picture of 32769 x 10": replace(good, size=(32769, 10)),
        f"a picture of {huge} x {huge}": replace(good, size=(huge, huge)),
        "a plane of 198 bytes, where 21 x 10": replace(good, size=(21, 10), planes=(replace(luma, row_stride=21, bytes=198), blue, red)),
        "a plane of 20 x 10 pixels with a row stride of 19": replace(good, planes=(replace(luma, row_stride=19), blue, red)),
        f"a row stride of {huge}": replace(good, planes=(replace(luma, row_stride=huge), blue, red)),
        "and a pixel stride of 0": replace(good, planes=(luma, replace(blue, pixel_stride=0), red)),
        f"and a pixel stride of {huge}": replace(good, planes=(luma, blue, replace(red, pixel_stride=huge))),
        "a rotation by 45": placed(rotation=45),
        "a rotation by -90": placed(rotation=-90),
        "the part of 21 x 10 pixels from 0, 0": placed(crop=(0, 0, 21, 10)),
        "the part of 1 x 1 pixels from 20, 0": placed(crop=(20, 0, 1, 1)),
        "the part of 0 x 3 pixels": placed(crop=(0, 0, 0, 3)),
        f"the part of {huge} x 1 pixels from 1": placed(crop=(1, 0, huge, 1)),
        "an input of 20 x 0 pixels": replace(good, format=replace(PHOTO, height=0)),
        "a picture of 2 channels": replace(good, kind="pixels", planes=(replace(luma, pixel_stride=2),)),
    }  # fmt: skip
    for problem, (mark, text) in zip(cases, answers(program, tmp_path, list(cases.values())), strict=True):
        message, _, remedy = text.decode(errors="replace").partition("\n")
        assert mark == "!" and problem in message, (problem, message)
        assert remedy.endswith(".")
