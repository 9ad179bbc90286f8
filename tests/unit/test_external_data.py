"""Tensors of ONNX whose data lies in other files: all of them are in the digest, and only the model's own are read."""

import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from adt.compiler.importers import model_store
from adt.compiler.importers.importer import import_model
from adt.compiler.importers.onnx.comparison import run
from adt.compiler.importers.onnx.file import data_files, open_data, read_onnx
from adt.errors import ModelError
from support.models.onnx_graphs import node

pytestmark = pytest.mark.usefixtures("own_cache")

VALUES = np.arange(4, dtype=np.float32)
DATA = "w.bin"


def outside(location: str = DATA, **entries: str) -> onnx.TensorProto:
    """Return a tensor of four floats whose data is elsewhere."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def value(name: str, extents: list[int] | None = [4]) -> onnx.ValueInfoProto:  # noqa: B006
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, extents)


def model_of(
    nodes: list[onnx.NodeProto],
    initializers: list[onnx.TensorProto] = [],  # noqa: B006
    functions: list[onnx.FunctionProto] = [],  # noqa: B006
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [value("x")], [value("y")], initializers)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9)


ADD = node("Add", ["x", "w"], ["y"])


def constant() -> onnx.NodeProto:
    return node("Constant", [], ["w"], value=outside())


def branch(nodes: list[onnx.NodeProto], initializers: list[onnx.TensorProto] = []) -> onnx.ModelProto:  # noqa: B006
    """Return a model that adds in both branches of an If."""
    condition = node("Constant", [], ["always"], value=numpy_helper.from_array(np.array(True)))
    graph = helper.make_graph(nodes, "branch", [], [value("y")], initializers)
    return model_of(
        [
            condition,
            node("If", ["always"], ["z"], then_branch=graph, else_branch=graph),
            node("Identity", ["z"], ["y"]),
        ]
    )


def function() -> onnx.ModelProto:
    body = [constant(), ADD]
    own = helper.make_function("own", "AddOwn", ["x"], ["y"], body, [helper.make_opsetid("", 17)])
    return model_of([node("AddOwn", ["x"], ["y"], domain="own")], functions=[own])


def sparse() -> onnx.ModelProto:
    model = model_of([ADD])
    tensor = model.graph.sparse_initializer.add(dims=[4], values=outside())
    tensor.indices.CopyFrom(numpy_helper.from_array(np.arange(4)))
    return model


PLACES: dict[str, Callable[[], onnx.ModelProto]] = {
    "initializer": lambda: model_of([ADD], [outside()]),
    "constant": lambda: model_of([constant(), ADD]),
    "branch's initializer": lambda: branch([ADD], [outside()]),
    "branch's constant": lambda: branch([constant(), ADD]),
    "function": function,
}
"""Places of a tensor in a model."""


def written(model: onnx.ModelProto, directory: Path, values: np.ndarray = VALUES) -> Path:
    """Write *model* and its data file."""
    directory.mkdir(parents=True, exist_ok=True)
    values.tofile(directory / DATA)
    (directory / "m.onnx").write_bytes(model.SerializeToString())
    return directory / "m.onnx"


@pytest.mark.parametrize("place", PLACES)
def test_the_digest_and_the_numbers_are_those_of_the_data_wherever_it_is(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(PLACES[place](), tmp_path / "model")
    written(PLACES[place](), tmp_path / "here", VALUES - 7)  # not read: it is in the working directory
    monkeypatch.chdir(tmp_path / "here")
    assert data_files(path) == (DATA,)
    first = model_store.model_sha256(path)
    x = np.ones(4, np.float32)
    assert np.array_equal(run(read_onnx(path), {"x": x})["y"], VALUES + 1)
    (VALUES + 1).tofile(path.with_name(DATA))
    assert model_store.model_sha256(path) != first
    assert np.array_equal(run(read_onnx(path), {"x": x})["y"], VALUES + 2)
    stored = model_store.keep(path, model_store.model_sha256(path))
    assert np.array_equal(run(read_onnx(stored), {"x": x})["y"], VALUES + 2)


def test_such_a_model_is_imported(tmp_path: Path) -> None:
    assert import_model(written(function(), tmp_path), {}).outputs[0].shape == (4,)


def test_data_of_a_sparse_constant_counts_too(tmp_path: Path) -> None:
    """Hash what is there, and refuse the file: ONNX has no such data outside of it."""
    path = written(sparse(), tmp_path)
    first = model_store.model_sha256(path)
    (VALUES + 1).tofile(path.with_name(DATA))
    assert data_files(path) == (DATA,) and model_store.model_sha256(path) != first
    with pytest.raises(ModelError, match="is not a valid ONNX graph"):
        read_onnx(path)


def test_sparse_constants_are_written_out(tmp_path: Path) -> None:
    """Write them out in one dimension and two, as initializers and as nodes."""
    flat = onnx.SparseTensorProto(dims=[2, 2])
    flat.values.CopyFrom(numpy_helper.from_array(np.array([5, 6], np.float32), "w"))
    flat.indices.CopyFrom(numpy_helper.from_array(np.array([1, 2])))
    pairs = onnx.SparseTensorProto()
    pairs.CopyFrom(flat)
    pairs.indices.CopyFrom(numpy_helper.from_array(np.array([[0, 1], [1, 0]])))
    for tensor in (flat, pairs):
        initializer = model_of([ADD])
        initializer.graph.sparse_initializer.append(tensor)
        for model in (initializer, model_of([node("Constant", [], ["w"], sparse_value=tensor), ADD])):
            for held in (*model.graph.input, *model.graph.output):
                held.CopyFrom(value(held.name, [2, 2]))
            (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
            y = run(read_onnx(tmp_path / "m.onnx"), {"x": np.zeros((2, 2), np.float32)})["y"]
            assert y.tolist() == [[0, 5], [6, 0]]
            assert import_model(tmp_path / "m.onnx", {}).outputs[0].shape == (2, 2)


def test_a_sparse_constant_is_not_written_out_beyond_all_bounds(tmp_path: Path) -> None:
    model = sparse()
    model.graph.sparse_initializer[0].values.CopyFrom(numpy_helper.from_array(VALUES, "w"))
    model.graph.sparse_initializer[0].dims[:] = [10**11]
    with pytest.raises(ModelError, match="'w' has more than"):
        read_onnx(written(model, tmp_path))


def fifo(path: Path) -> None:
    os.mkfifo(path)


ODD: dict[str, Callable[[Path], object]] = {
    "absent": lambda path: None,
    "directory": lambda path: path.mkdir(),
    "FIFO": fifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link": lambda path: path.symlink_to(path.parent.parent / "secret"),
    "link to a neighbour": lambda path: path.symlink_to("other.bin"),
}


@pytest.mark.parametrize("kind", ODD)
def test_only_regular_files_are_read(kind: str, tmp_path: Path) -> None:
    VALUES.tofile(tmp_path / "secret")
    path = written(model_of([ADD], [outside()]), tmp_path / "model")
    shutil.move(path.with_name(DATA), path.with_name("other.bin"))
    ODD[kind](path.with_name(DATA))
    for read in (
        data_files,
        read_onnx,
        model_store.model_sha256,
        lambda path: model_store.keep(path, "0" * 64),
    ):
        with pytest.raises(ModelError, match=r"a data file of m\.onnx cannot be read"):
            read(path)


@pytest.mark.parametrize(
    "location",
    [
        "../secret",
        "./../secret",
        "./../../../../../../../dev/zero",
        "/dev/zero",
        "*/_ORT_MEM_ADDR_/*",
        "a\nb",
    ],
)
def test_only_files_below_the_model_are_read(location: str, tmp_path: Path) -> None:
    VALUES.tofile(tmp_path / "secret")
    path = written(model_of([constant(), ADD], [outside(location)]), tmp_path / "model")
    if location.startswith("*"):
        written(model_of([]), path.parent / "*/_ORT_MEM_ADDR_")
        shutil.move(path.parent / "*/_ORT_MEM_ADDR_/m.onnx", path.parent / location)
    for read in (data_files, read_onnx, model_store.model_sha256):
        with pytest.raises(ModelError, match=r"a data file of m\.onnx cannot be read"):
            read(path)


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": "8"},
        {"offset": "8", "length": "16"},
        {"length": "17"},
        {"offset": "99"},
        {"offset": "-8"},
        {"length": "9" * 5000},
        {"length": "²"},
        {"location": ""},
    ],
)
def test_what_is_not_in_the_file_is_refused(entries: dict[str, str], tmp_path: Path) -> None:
    tensor = outside(**{"location": DATA, **entries})
    path = written(model_of([ADD], [tensor]), tmp_path)
    with pytest.raises(ModelError, match="truncated"):
        data_files(path)


def test_a_place_that_is_told_twice_is_refused(tmp_path: Path) -> None:
    tensor = outside()
    tensor.external_data.add(key="location", value="other.bin")
    with pytest.raises(ModelError, match="truncated"):
        data_files(written(model_of([ADD], [tensor]), tmp_path))


def test_one_file_by_two_spellings(tmp_path: Path) -> None:
    path = written(model_of([constant(), ADD], [outside(f"./{DATA}")]), tmp_path)
    assert data_files(path) == (DATA,)
    assert model_store.keep(path, model_store.model_sha256(path)).with_name(DATA).is_file()


def test_what_goes_wrong_with_the_copy_is_not_laid_to_the_data(tmp_path: Path) -> None:
    path = written(model_of([ADD], [outside()]), tmp_path)
    with pytest.raises(OSError, match="No space"), open_data(path, DATA):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("kind", "extent", "size"), [(TensorProto.INT4, 5, 3), (TensorProto.BFLOAT16, 5, 10)]
)
def test_small_elements(kind: int, extent: int, size: int, tmp_path: Path) -> None:
    tensor = outside(length=str(size))
    tensor.data_type, tensor.dims[:] = kind, [extent]
    path = written(model_of([node("Relu", ["x"], ["y"])], [tensor]), tmp_path)
    assert read_onnx(path).graph.initializer[0].raw_data == VALUES.tobytes()[:size]


# The cache of a hub


def hub(directory: Path, below: str = "") -> Path:
    """Lay the model out as the cache of a hub does: links to blobs."""
    path = written(model_of([ADD], [outside()]), directory / "snapshots/5f1c" / below)
    (directory / "blobs").mkdir()
    for file in (path, path.with_name(DATA)):
        blob = directory / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        shutil.move(file, blob)
        file.symlink_to(os.path.relpath(blob, file.parent))
    return path


@pytest.mark.parametrize("below", ["", "onnx", "onnx/fp32"])
def test_links_of_a_hubs_cache_are_followed(
    below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = hub(tmp_path / "hub", below)
    plain = written(model_of([ADD], [outside()]), tmp_path / "plain")
    assert model_store.model_sha256(path) == model_store.model_sha256(plain)
    assert numpy_helper.to_array(read_onnx(path).graph.initializer[0]).tolist() == VALUES.tolist()
    stored = model_store.keep(path, model_store.model_sha256(path))
    assert stored.with_name(DATA).is_file() and not stored.with_name(DATA).is_symlink()
    monkeypatch.chdir(path.parent)
    assert data_files(Path(path.name)) == (DATA,)
    (tmp_path / "short").symlink_to(path.parent)
    assert data_files(tmp_path / "short" / path.name) == (DATA,)


def test_other_links_in_such_a_cache_are_not_and_the_remedy_helps(tmp_path: Path) -> None:
    path, other = hub(tmp_path / "hub"), hub(tmp_path / "other")
    link, name = path.with_name(DATA), other.with_name(DATA).readlink().name
    (tmp_path / "hub/notes").mkdir()
    shutil.copyfile(other.with_name(DATA), tmp_path / "hub/notes" / name)
    chained = "0" * 64
    (tmp_path / "hub/blobs" / chained).symlink_to(name)
    for target in (
        tmp_path / "hub/blobs" / name,  # absolute
        f"../../../other/blobs/{name}",  # of another repository
        f"../../notes/{name}",
        f"../../../hub/blobs/{name}",
        f"../../blobs/{chained}",  # a link again
        "../../blobs/README.md",
    ):
        link.unlink()
        link.symlink_to(target)
        with pytest.raises(ModelError, match=r"a data file of m\.onnx cannot be read") as refused:
            model_store.model_sha256(path)
    link.unlink()
    link.symlink_to(tmp_path / "hub/blobs" / name)
    command = shlex.split(refused.value.remedy.partition(": ")[2])
    subprocess.run(command, check=True)
    assert data_files(Path(command[-1]) / "m.onnx") == (DATA,)
