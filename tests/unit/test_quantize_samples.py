"""Samples for calibration: pictures, arrays, and made-up inputs only where they are asked for."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from adt.errors import ConfigError, InputError
from adt.package.inputs.pictures import PictureOptions
from adt.package.manifest import Entry, TensorSpec
from adt.quantization.samples import Samples, read_samples

ENTRY = Entry("main", (TensorSpec("x", (1, 3, 4, 4), "float32"),), (), ())
PAIR = Entry("main", (*ENTRY.inputs, TensorSpec("n", (1,), "int64")), (), ())


def picture(path: Path, grey: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (6, 6), (grey, grey, grey)).save(path)
    return path


def npz(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


def read(*sources: object, entry: Entry = ENTRY, picture: PictureOptions | None = None) -> Samples:
    return read_samples("m.onnx", entry, list(map(str, sources)), picture)


def test_pictures_below_a_directory_in_their_order_and_as_the_options_say(tmp_path: Path) -> None:
    picture(tmp_path / "b.png", 255)
    picture(tmp_path / "a/z.png", 0)
    picture(tmp_path / ".hidden.png", 90)
    samples = read(tmp_path, picture=PictureOptions(mean=(0.5,), std=(0.5,)))
    assert [float(sample["x"].mean()) for sample in samples.arrays] == [-1.0, 1.0]
    assert samples.arrays[0]["x"].shape == (1, 3, 4, 4) and not samples.made_up


@pytest.mark.parametrize(("count", "every", "held_back"), [(2, 2, [2]), (4, 4, [4]), (11, 5, [5, 10])])
def test_every_fifth_is_held_back_or_the_last(
    tmp_path: Path, count: int, every: int, held_back: list[int]
) -> None:
    files = [
        npz(tmp_path / f"{n:02}.npz", x=np.full((1, 3, 4, 4), n, np.float32)) for n in range(1, count + 1)
    ]
    samples = read(*files)
    assert samples.every == every
    assert [int(sample["x"].max()) for sample in samples.held_back] == held_back
    assert [int(sample["x"].max()) for sample in samples.calibrating] == [
        n for n in range(1, count + 1) if n not in held_back
    ]


def test_one_file_may_have_many_samples(tmp_path: Path) -> None:
    x = np.arange(5 * 48, dtype=np.float32).reshape(5, 3, 4, 4)
    samples = read(npz(tmp_path / "all.npz", x=x, n=np.arange(5)), entry=PAIR)
    assert len(samples.arrays) == 5
    assert np.array_equal(samples.arrays[3]["x"], x[3:4]) and samples.arrays[3]["n"].tolist() == [3]


def test_made_up_ones_are_asked_for_by_name_and_always_the_same() -> None:
    first, second = read("random:3"), read("random:3")
    assert first.made_up and len(first.arrays) == 3
    assert all(np.array_equal(a["x"], b["x"]) for a, b in zip(first.arrays, second.arrays, strict=True))
    assert not np.array_equal(first.arrays[0]["x"], first.arrays[1]["x"])


GOOD = np.zeros((1, 3, 4, 4), np.float32)
NAN = np.where(np.arange(48).reshape(1, 3, 4, 4) == 7, np.nan, 0).astype(np.float32)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((1, 3, 4, 5), np.float32)}, r"bad.npz: input x: m.onnx takes float32\[1, 3, 4, 4\]"),
        ({"x": GOOD.astype(np.float64)}, r"given: float64"),
        ({"y": GOOD}, r"m.onnx takes x; given: y"),
        ({"x": NAN}, r"bad.npz: x has NaN or infinity"),
    ],
)
def test_a_sample_that_does_not_fit(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(npz(tmp_path / "good.npz", x=GOOD), npz(tmp_path / "bad.npz", **arrays))


def test_arrays_of_different_numbers_of_samples(tmp_path: Path) -> None:
    x = np.zeros((4, 3, 4, 4), np.float32)
    with pytest.raises(InputError, match=r"input x: m\.onnx takes"):
        read(npz(tmp_path / "odd.npz", x=x, n=np.arange(3)), entry=PAIR)


def test_what_is_no_sample(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"there is no file in .*empty"):
        read(tmp_path / "empty", picture=PictureOptions(mean=(0.5,)))
    with pytest.raises(InputError, match="has 1 samples"):
        read(npz(tmp_path / "one.npz", x=GOOD))
    with pytest.raises(InputError, match="there is no file or directory random:N"):
        read("random:N")
    picture(tmp_path / "some/a.png", 1)
    (tmp_path / "some/labels.txt").write_text("cat\n")
    with pytest.raises(InputError, match=r"labels.txt is no picture"):
        read(tmp_path / "some")
    with pytest.raises(InputError, match="options of pictures are given, and no picture"):
        read(tmp_path / "one.npz", picture=PictureOptions(mean=(0.5,)))


@pytest.mark.parametrize("shapes", [[(4, 3, 4, 4)], [(1, 3, 4, 4), (1, 3, 8, 8)], [(1, 16), (1, 16)]])
def test_pictures_that_are_no_sample_may_be_arrays(shapes: list[tuple[int, ...]], tmp_path: Path) -> None:
    """Take the arrays that the error names, for a batch, for one of two inputs, and for none."""
    specs = tuple(TensorSpec(f"x{number}", shape, "float32") for number, shape in enumerate(shapes))
    entry = Entry("main", specs, (), ())
    with pytest.raises(InputError) as caught:
        read(picture(tmp_path / "pictures/a.png", 1).parent, entry=entry)
    assert caught.value.remedy.startswith("Give an .npz file")
    arrays = {spec.name: np.zeros((2 * spec.shape[0], *spec.shape[1:]), np.float32) for spec in specs}
    assert len(read(npz(tmp_path / "samples.npz", **arrays), entry=entry).arrays) == 2


def test_random_inputs_are_no_calibration_unless_they_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to calibrate") as caught:
        read()
    assert "--calibrate random:16" in caught.value.remedy
    with pytest.raises(ConfigError, match="made-up samples beside real ones"):
        read(npz(tmp_path / "one.npz", x=GOOD), "random:4")
