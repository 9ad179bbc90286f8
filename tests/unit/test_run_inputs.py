"""Inputs from files: arrays, plain bytes, and pictures against a computation with numpy and Pillow alone."""

import warnings
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

from adt.errors import InputError, ToolNotFound
from adt.host import extras
from adt.package.inputs.files import read_inputs
from adt.package.inputs.pictures import PictureOptions, parse_numbers, parse_size, pictures_as_input
from adt.package.manifest import Entry, TensorSpec, check_inputs, taken_inputs

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def spec(*shape: int | str, dtype: str = "float32", name: str = "x") -> TensorSpec:
    return TensorSpec(name, shape, dtype)


def entry(*specs: TensorSpec) -> Entry:
    return Entry("main", specs, (), ())


@pytest.fixture
def pixels() -> np.ndarray[Any, Any]:
    """Return a picture 48 pixels high and 64 wide."""
    return np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)


@pytest.fixture
def png(tmp_path: Path, pixels: np.ndarray[Any, Any]) -> Path:
    Image.fromarray(pixels).save(tmp_path / "p.png")
    return tmp_path / "p.png"


def prepared(file: Path, declared: TensorSpec, **options: Any) -> np.ndarray[Any, Any]:
    array = pictures_as_input([file], declared, PictureOptions(**options))[0]
    check_inputs("model", entry(declared), {declared.name: array})
    assert array.flags.c_contiguous
    return array


def test_the_walk_through_of_imagenet(png: Path) -> None:
    """Resize, normalise, transpose: as TVM's tutorials compute it."""
    array = prepared(png, spec(1, 3, 24, 20), mean=MEAN, std=STD)
    resized = np.asarray(Image.open(png).resize((20, 24), Image.Resampling.BILINEAR)).astype("float32")
    expected = (resized.transpose(2, 0, 1) / 255 - np.reshape(MEAN, (3, 1, 1))) / np.reshape(STD, (3, 1, 1))
    np.testing.assert_allclose(array, expected[np.newaxis], rtol=1e-5, atol=1e-6)


def test_the_middle_as_torchvision_cuts_it(png: Path) -> None:
    """Resize(32) and CenterCrop(24): the shorter side exact, then the middle."""
    array = prepared(png, spec(1, 24, 24, 3), crop=True, resize=(32,))
    resized = np.asarray(Image.open(png).resize((42, 32), Image.Resampling.BILINEAR))
    np.testing.assert_allclose(array[0], resized[4:28, 9:33] / 255.0, rtol=1e-6)


def test_the_middle_covers_the_input(png: Path) -> None:
    array = prepared(png, spec(1, 24, 24, 3, dtype="uint8"), crop=True, resample="nearest")
    resized = np.asarray(Image.open(png).resize((32, 24), Image.Resampling.NEAREST))
    np.testing.assert_array_equal(array[0], resized[:, 4:28])


@pytest.mark.parametrize(
    ("shape", "layout", "picked"),
    [
        ((1, 3, 48, 64), "", (0, 2, 3, 1)),
        ((1, 48, 64, 3), "", (0, 1, 2, 3)),
        ((3, 48, 64), "", (1, 2, 0)),
        ((48, 64, 3), "", (0, 1, 2)),
        (("n", "c", 48, 64), "NCHW", (0, 2, 3, 1)),
        ((1, 3, "h", "w"), "", (0, 2, 3, 1)),
    ],
)
def test_layouts(
    png: Path, pixels: np.ndarray[Any, Any], shape: Any, layout: str, picked: tuple[int, ...]
) -> None:
    array = prepared(png, spec(*shape, dtype="uint8"), layout=layout).transpose(picked)
    np.testing.assert_array_equal(array[0] if array.ndim == 4 else array, pixels)


def test_a_layout_that_may_be_either_is_asked_for(png: Path) -> None:
    for shape in ((1, 3, 64, 3), (1, "c", 48, 64), (1, 4, 4, 4)):
        with pytest.raises(InputError, match="NCHW and NHWC") as caught:
            prepared(png, spec(*shape))
        assert "--layout" in caught.value.remedy
    assert prepared(png, spec(1, 3, 64, 3), layout="NHWC").shape == (1, 3, 64, 3)
    with pytest.raises(InputError, match="64 channels"):
        prepared(png, spec(1, 3, 48, 64), layout="NHWC")


def test_colours(png: Path, pixels: np.ndarray[Any, Any], tmp_path: Path) -> None:
    as_is = spec(1, 48, 64, 3, dtype="uint8")
    np.testing.assert_array_equal(prepared(png, as_is, color="BGR")[0], pixels[..., ::-1])
    grey = np.asarray(Image.open(png).convert("L"))
    np.testing.assert_array_equal(prepared(png, spec(1, 1, 48, 64, dtype="uint8"))[0, 0], grey)
    widened = prepared(png, as_is, color="GRAY")[0]
    np.testing.assert_array_equal(widened, np.repeat(grey[..., np.newaxis], 3, axis=2))
    with pytest.raises(InputError, match="one channel"):
        prepared(png, spec(1, 1, 48, 64), color="BGR")
    Image.fromarray(grey).save(tmp_path / "grey.png")
    np.testing.assert_array_equal(prepared(tmp_path / "grey.png", as_is)[0], widened)


def test_alpha_is_dropped_and_sixteen_bits_are_scaled(pixels: np.ndarray[Any, Any], tmp_path: Path) -> None:
    alpha = np.full((48, 64, 1), 7, np.uint8)
    Image.fromarray(np.concatenate([pixels, alpha], axis=2)).save(tmp_path / "rgba.png")
    np.testing.assert_array_equal(prepared(tmp_path / "rgba.png", spec(48, 64, 3, dtype="uint8")), pixels)
    palette = Image.fromarray(pixels).quantize(16)
    palette.save(tmp_path / "p.png", transparency=b"\0" * 16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        array = prepared(tmp_path / "p.png", spec(48, 64, 3, dtype="uint8"))
    np.testing.assert_array_equal(array, np.asarray(palette.convert("RGB")))
    deep = pixels[..., 0].astype(np.uint16) * 257
    Image.fromarray(deep).save(tmp_path / "deep.png")
    np.testing.assert_array_equal(
        prepared(tmp_path / "deep.png", spec(1, 48, 64, dtype="uint8"))[0], pixels[..., 0]
    )


@pytest.mark.parametrize(("orientation", "turn"), [(1, 0), (3, 2), (6, 3), (8, 1)])
def test_pictures_are_turned_as_their_exif_says(
    pixels: np.ndarray[Any, Any], tmp_path: Path, orientation: int, turn: int
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels).save(tmp_path / "e.png", exif=exif)
    upright = np.rot90(pixels, turn)
    array = prepared(tmp_path / "e.png", spec(*upright.shape, dtype="uint8"))
    np.testing.assert_array_equal(array, upright)


def test_values(png: Path, pixels: np.ndarray[Any, Any]) -> None:
    shape = (48, 64, 3)
    np.testing.assert_allclose(prepared(png, spec(*shape)), pixels / 255.0, rtol=1e-6)
    np.testing.assert_array_equal(prepared(png, spec(*shape), scale=1.0), pixels)
    expected = pixels / 127.5 - 1
    np.testing.assert_allclose(prepared(png, spec(*shape), range=(-1.0, 1.0)), expected, atol=1e-6)
    np.testing.assert_allclose(
        prepared(png, spec(*shape), scale=1.0, mean=(127.5,), std=(127.5,)), expected, atol=1e-6
    )
    half = prepared(png, spec(*shape, dtype="float16"))
    np.testing.assert_array_equal(half, (pixels / 255.0).astype(np.float16))
    int8 = prepared(png, spec(*shape, dtype="int8"), range=(-128.0, 127.0))
    np.testing.assert_array_equal(int8, (pixels.astype(int) - 128).astype(np.int8))


@pytest.mark.parametrize(
    ("dtype", "options", "message"),
    [
        ("uint8", {"mean": MEAN}, "pixels as they are"),
        ("uint8", {"scale": 255.0}, "pixels as they are"),
        ("int8", {}, "cannot hold"),
        ("bool", {}, "no picture"),
        ("int32", {}, "no picture"),
        ("float32", {"mean": (1.0, 2.0)}, "3 channels"),
        ("float32", {"scale": 255.0, "range": (0.0, 1.0)}, "contradict"),
        ("float32", {"std": (1.0, 0.0, 1.0)}, "divided by 0"),
        ("float32", {"range": (1.0,)}, "two numbers"),
        ("float32", {"layout": "NCWH"}, "NCWH"),
        ("float32", {"resize": (32,)}, "shorter side"),
        ("float32", {"resize": (32, 32)}, "not of 32x32"),
        ("float32", {"resize": (32,), "crop": True}, "smaller than"),
    ],
)
def test_options_that_cannot_be(png: Path, dtype: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        prepared(png, spec(48, 64, 3, dtype=dtype), **options)


def test_a_batch_of_pictures(png: Path, pixels: np.ndarray[Any, Any], tmp_path: Path) -> None:
    other = 255 - pixels
    Image.fromarray(other).save(tmp_path / "q.png")
    files = [png, tmp_path / "q.png"]
    batch = pictures_as_input(files, spec(2, 48, 64, 3, dtype="uint8"), PictureOptions())[0]
    np.testing.assert_array_equal(batch, [pixels, other])
    assert pictures_as_input(files, spec("n", 48, 64, 3), PictureOptions())[0].shape[0] == 2
    for shape in ((3, 48, 64, 3), (1, 48, 64, 3), (48, 64, 3)):
        with pytest.raises(InputError, match="given: 2"):
            pictures_as_input(files, spec(*shape), PictureOptions())
    Image.fromarray(pixels[:-1]).save(tmp_path / "q.png")
    with pytest.raises(InputError, match="different sizes"):
        pictures_as_input(files, spec(2, "h", "w", 3), PictureOptions())


def test_a_missing_picture_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no picture"):
        prepared(tmp_path / "p.png", spec(1, 3, 8, 8))
    with pytest.raises(InputError, match="directory"):
        prepared(tmp_path, spec(1, 3, 8, 8))


def test_without_pillow_the_way_to_get_it_is_said(png: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras.importlib, "import_module", Mock(side_effect=ImportError("No module named x")))
    with pytest.raises(ToolNotFound, match="reading a picture") as caught:
        prepared(png, spec(1, 3, 8, 8))
    assert "-m pip install 'pillow>=" in caught.value.remedy


@pytest.mark.parametrize(("text", "size"), [("224x160", (224, 160)), ("256", (256,)), (" 8X9 ", (8, 9))])
def test_sizes(text: str, size: tuple[int, ...]) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "x", "0x5", "-4", "224x", "1x2x3", "100000x100000", "999999"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(InputError):
        parse_size(text)


def test_numbers() -> None:
    assert parse_numbers("0.5, -1,2e-3", "--mean") == (0.5, -1.0, 2e-3)
    for text in ("", "a", "1,,2", "nan", "inf"):
        with pytest.raises(InputError, match="list of numbers"):
            parse_numbers(text, "--mean")


# files of arrays ----------------------------------------------------------------------------------

TWO = entry(spec(2, 3, name="a"), spec(4, name="b=c", dtype="int16"))
A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.arange(4, dtype=np.int16)


def read(model_entry: Entry, *texts: str) -> dict[str, np.ndarray[Any, Any]]:
    return {tensor.name: tensor.array for tensor in read_inputs(model_entry, texts)}


def test_arrays_from_every_kind_of_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("all.npz", **{"a": A, "b=c": B})
    np.save("a.npy", A)
    np.savez("one.npz", anything=A)
    A.astype("<f4").tofile("a.raw")
    B.astype("<i2").tofile("b=c.bin")
    for texts in (
        ("all.npz",),
        ("a=a.npy", "b=c=b=c.bin"),
        ("a=a.raw", "b=c=all.npz"),
        ("a=one.npz", "b=c=b=c.bin"),
    ):
        arrays = read(TWO, *texts)
        check_inputs("model", TWO, arrays)
        np.testing.assert_array_equal(arrays["a"], A)
        np.testing.assert_array_equal(arrays["b=c"], B)
    np.testing.assert_array_equal(read(entry(spec(2, 3)), "a.npy")["x"], A)
    np.testing.assert_array_equal(read(entry(spec("n", 3)), "a.raw")["x"], A)
    np.array(7, np.float64).tofile("scalar.raw")
    scalar = read(entry(spec(dtype="float64")), "scalar.raw")["x"]
    assert isinstance(scalar, np.ndarray) and scalar.shape == () and scalar == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=short.raw", "23 bytes.*takes 24"),
        ("a=long.raw", "28 bytes.*takes 24"),
        ("short.raw", "for one input"),
        ("z=short.raw", "no input 'z'"),
        ("a=missing.raw", "there is no input file"),
        ("a=picture.png", "no file of arrays"),
        ("a=damaged.npz", "not an .npz"),
        ("a=damaged.npy", "not an .npy"),
        ("a=pickled.npy", "not an .npy"),
        ("a=many.npz", "no array a, but p, q"),
    ],
)
def test_files_that_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short.raw").write_bytes(bytes(23))
    Path("long.raw").write_bytes(bytes(28))
    Path("damaged.npz").write_bytes(b"PK\3\4 no archive")
    Path("damaged.npy").write_bytes(b"\x93NUMPY\1\0 no header")
    np.save("pickled.npy", np.array([{}], dtype=object))
    np.savez("many.npz", p=A, q=A)
    with pytest.raises(InputError, match=message):
        read(TWO, text)


def test_raw_bytes_of_open_dimensions(tmp_path: Path) -> None:
    (tmp_path / "x.raw").write_bytes(bytes(20))
    for shape, message in ((("n", 3), "a multiple of 12"), (("n", "m"), "open dimensions")):
        with pytest.raises(InputError, match=message):
            read(entry(spec(*shape)), str(tmp_path / "x.raw"))
    with pytest.raises(InputError, match="numpy knows no bytes"):
        read(entry(spec(10, dtype="posit16")), str(tmp_path / "x.raw"))


def test_an_input_that_is_given_twice(tmp_path: Path, png: Path) -> None:
    np.savez(tmp_path / "x.npz", x=A)
    with pytest.raises(InputError, match="given twice"):
        read_inputs(entry(spec(1, 3, 8, 8)), [str(tmp_path / "x.npz")], [str(png)])


def test_which_input_a_picture_is_for(png: Path) -> None:
    both = entry(spec(1, 3, 8, 8, name="p"), spec(1, name="threshold"))
    assert [tensor.name for tensor in read_inputs(both, [], [str(png)])] == ["p"]
    assert [tensor.name for tensor in read_inputs(both, [], [f"p={png}"])] == ["p"]
    two = entry(spec(1, 3, 8, 8, name="p"), spec(1, 3, 8, 8, name="q"))
    with pytest.raises(InputError, match="several inputs may take"):
        read_inputs(two, [], [str(png)])
    assert [tensor.name for tensor in read_inputs(two, [], [f"q={png}", f"p={png}"])] == ["q", "p"]
    with pytest.raises(InputError, match=r"x is int32\[1, 2048\], which is no picture") as caught:
        read_inputs(entry(spec(1, 2048, dtype="int32")), [], [str(png)])
    assert "--input FILE.npy" in caught.value.remedy
    with pytest.raises(InputError, match="which is no picture"):
        read_inputs(both, [], [f"threshold={png}"])


def test_lists_and_numbers_take_the_type_of_the_input() -> None:
    function = entry(
        spec(3, dtype="int32", name="ids"), spec(1, 2), spec(name="scale"), spec(2, dtype="bool", name="on")
    )
    values = {"ids": [1, 2, 3], "x": ((0.5, 2),), "scale": 3, "on": [True, False]}
    arrays = taken_inputs(function, values)
    check_inputs("model", function, arrays)
    assert {name: array.tolist() for name, array in arrays.items()} == {**values, "x": [[0.5, 2.0]]}
    for value, dtype in ((np.zeros(3), "float64"), ([1.5, 2, 3], "float64"), ([1 << 40, 0, 0], "int64")):
        assert taken_inputs(function, {"ids": value})["ids"].dtype == dtype  # nothing is rounded or cut off
    with pytest.raises(InputError, match="input x is no array"):
        taken_inputs(function, {"x": [[1, 2], [3]]})
