"""Whatever a file of a stranger's holds, its reader ends in a result or an AdtError."""

import contextlib
import gzip
import io
import json
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from adt.bundle.bundle import load_bundle
from adt.compiler.importers.importer import declared_inputs, import_model
from adt.compiler.importers.onnx.file import input_dtypes, read_onnx
from adt.compiler.importers.tflite.file import model_of
from adt.compiler.importers.tflite.importer import explain_tflite
from adt.errors import AdtError, ConfigError, InputError, ModelError, PackageError
from adt.integrate.apk import read_apk
from adt.limits import MOST_DEPTH, parse_json
from adt.measure import app_bench, history
from adt.options.resolve import _toml, load_settings
from adt.package.classes import read_labels
from adt.package.files import leave_alone, pack, unpack
from adt.package.inputs.files import read_inputs
from adt.package.integrity import examine
from adt.package.manifest import read_manifest
from adt.package.package import load_package
from adt.tuning.database.changes import _unpack
from adt.tuning.database.sqlite_file import FILE, create, entries
from adt.tuning.database.store import modules_of
from adt.tuning.records import HEADER, LINES, Damage, Workload, _checksum, line, row, scan
from support.models.onnx_graphs import f32, graph_of, node
from support.models.quantized_tflite import operator_model
from support.standins.archives import tar_bytes, tar_entry, zip_bytes
from support.standins.artefacts import entry, make_app_bundle, make_typed_package, tensor

pytestmark = pytest.mark.usefixtures("own_cache")

Read = Callable[[Path], object]
ENTRY = entry([tensor("x", (2, 3))], [tensor("y", (2, 3))])
PICTURE = entry([tensor("x", (1, 3, 2, 3))], [])
DEEP = "[" * 200_000


def package_in(directory: Path) -> Path:
    return make_typed_package(directory / "pkg", "model", [ENTRY]).path


def changed(package: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    facts = json.loads((package / "mod.json").read_text())
    change(facts)
    (package / "mod.json").write_text(json.dumps(facts))
    return package


def add_model() -> onnx.ModelProto:
    return graph_of([node("Add", ["x", "wwww"], ["y"])], {"x": (2, 3)}, ["y"], {"wwww": f32(1)})


def tar_of(*names: str) -> bytes:
    return tar_bytes(*((tar_entry(name), b"") for name in names))


def npy_head(shape: str, dtype: str = "'<f4'") -> bytes:
    text = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def npz_of(member: bytes) -> bytes:
    return zip_bytes({"x.npy": member})


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 100_000, "[" * (MOST_DEPTH + 2) + "]" * (MOST_DEPTH + 2)])
def test_deep_json_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="deep"):
        parse_json(text)
    file = tmp_path / "file.json"
    file.write_text(text)
    for read in (app_bench.read, read_labels, lambda path: history.imported(path, tmp_path)):
        with pytest.raises(InputError):
            read(file)
    package = package_in(tmp_path)
    (package / "mod.json").write_text(text)
    with pytest.raises(PackageError, match="deep"):
        load_package(package)
    assert not examine(package).passed


def test_deep_toml_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "adt.toml").write_text("a = " + DEEP)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError):
        load_settings({})


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts["files"].update({"../../x": facts["files"]["mod.so"]}),
        lambda facts: facts.update(inspection={"inspect/../../x": facts["files"]["mod.so"]}),
        lambda facts: facts["entries"][0]["inputs"][0].update(shape=[-1, 3]),
        lambda facts: facts["entries"][0]["inputs"][0].update(shape=[2**31, 2**31]),
        lambda facts: facts["entries"][0]["inputs"][0].update(shape=[[1]]),
        lambda facts: facts["entries"][0]["inputs"][0].update(shape=[True]),
        lambda facts: facts["entries"][0].update(images=["p"]),
        lambda facts: facts.update(alignment="64"),
        lambda facts: facts.update(name="\ud800"),
    ],
)
def test_a_description_that_rtvm_refuses(change: Callable[[dict[str, Any]], object], tmp_path: Path) -> None:
    package = changed(package_in(tmp_path), change)
    with pytest.raises(PackageError):
        load_package(package)
    (finding,) = examine(package).findings
    assert not finding.passed


@pytest.mark.parametrize("name", ["inspect/" + "a" * 5000, "inspect" + "/a" * 600, "inspect/" + "a" * 256])
def test_long_names_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(tar_of(name))
    with pytest.raises(PackageError, match="too long"):
        load_package(tmp_path / "x.tar")


@pytest.mark.parametrize(
    "member",
    [
        npy_head(f"({1 << 50},)"),
        npy_head("(-1,)"),
        npy_head("(3,)") + bytes(8),
        npy_head("(1,)", "'|O'") + bytes(8),
        npy_head("(" * 4000),
        npy_head("(1,)" + " " * 20_000) + bytes(4),
        b"\x80\x04K\x01.",
        b"text",
        b"",
    ],
)
def test_no_array_takes_more_than_its_file(member: bytes, tmp_path: Path) -> None:
    for name, data in (("x.npz", npz_of(member)), ("x.npy", member), ("y.npz", member)):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError) as refused:
            read_inputs(ENTRY, [str(tmp_path / name)])
        assert "pickle" not in str(refused.value.what + refused.value.remedy)


def test_arrays_are_read_as_numpy_wrote_them(tmp_path: Path) -> None:
    for array in (np.arange(6.0).reshape(2, 3), np.arange(6).reshape(2, 3).T, np.zeros((0, 3)), np.array(7)):
        np.save(tmp_path / "x.npy", array)
        np.savez_compressed(tmp_path / "x.npz", x=array)
        for name in ("x.npy", "x.npz"):
            (value,) = read_inputs(ENTRY, [str(tmp_path / name)])
            assert value.array.dtype == array.dtype
            assert np.array_equal(value.array, array)
            value.array[...] = 0  # it can be written


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    data = add_model().SerializeToString()
    (tmp_path / "x.onnx").write_bytes(data.replace(b"wwww", b"w\xff\xfew"))
    with pytest.raises(ModelError):
        import_model(tmp_path / "x.onnx", {})


def test_an_input_larger_than_memory_is_refused(tmp_path: Path) -> None:
    model = add_model()
    for value in (*model.graph.input, *model.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            dim.dim_value = 2**31
    (tmp_path / "x.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="elements"):
        import_model(tmp_path / "x.onnx", {})


@pytest.mark.parametrize(
    "value",
    [
        onnx.helper.make_tensor_value_info("x", onnx.TensorProto.UNDEFINED, (2, 3)),
        onnx.helper.make_tensor_sequence_value_info("x", onnx.TensorProto.FLOAT, (2, 3)),
    ],
)
def test_an_input_that_is_no_tensor_is_refused(value: onnx.ValueInfoProto, tmp_path: Path) -> None:
    model = graph_of([node("Identity", ["x"], ["y"])], {"x": (2, 3)}, ["y"])
    model.graph.input[0].CopyFrom(value)
    (tmp_path / "x.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="only tensors"):
        import_model(tmp_path / "x.onnx", {"x": (2, 3)})


def test_more_operators_than_the_file_has_are_damage(tmp_path: Path) -> None:
    path = operator_model("add", tmp_path / "x.tflite")
    data = bytearray(path.read_bytes())
    table = model_of(bytes(data)).Subgraphs(0)._tab
    field = table.Pos + table.Offset(10)
    struct.pack_into("<I", data, field + struct.unpack_from("<I", data, field)[0], 2**31)
    path.write_bytes(data)
    for read in (explain_tflite, lambda file: import_model(file, {})):
        with pytest.raises(ModelError, match="cannot be read"):
            read(path)


def test_a_deep_line_of_records_is_damage(tmp_path: Path) -> None:
    body = DEEP.encode()
    checksum = b'","crc":"%08x","data":' % _checksum(b"record", body)
    sound = line(row("record", {}))
    (tmp_path / "j").write_bytes(
        HEADER + sound[: sound.index(b"record")] + b"record" + checksum + body + b"}\n"
    )
    assert isinstance(list(scan(tmp_path / "j"))[-1], Damage)


def test_what_is_no_module_is_no_workload() -> None:
    import tvm
    from tvm import te

    source = te.placeholder((4,), name="x")
    kernel = te.create_prim_func([source, te.compute((4,), lambda i: source[i] + 1.0)])
    graphs = (
        kernel,
        tvm.IRModule({"other": kernel}),
        tvm.IRModule({"main": kernel}),
        tvm.runtime.convert([]),
    )
    texts = [tvm.ir.save_json(graph) for graph in graphs]
    modules = modules_of([Workload(str(n), "", "0.25.0", text) for n, text in enumerate(texts)])
    assert [module is None for module in modules] == [True, True, False, True]


# --- mutations of small files that are right ---


def at(suffix: str, read: Read) -> Callable[[bytes, Path], None]:
    def check(data: bytes, directory: Path) -> None:
        path = directory / f"file{suffix}"
        path.write_bytes(data)
        read(path)

    return check


def as_mod_json(data: bytes, directory: Path) -> None:
    package = package_in(directory)
    (package / "mod.json").write_bytes(data)
    examine(package)
    read_manifest(package / "mod.json", remedy="")


def as_bundle_json(data: bytes, directory: Path) -> None:
    bundle = make_app_bundle(directory / "bundle")
    (bundle.path / "bundle.json").write_bytes(data)
    load_bundle(bundle.path, check_hashes=False)


def read_tar(path: Path) -> None:
    out = path.with_name("out")
    out.mkdir()
    unpack(path, out)


def read_onnx_file(path: Path) -> None:
    declared_inputs(path, {})
    input_dtypes(read_onnx(path))


def read_tflite_file(path: Path) -> None:
    declared_inputs(path, {})
    explain_tflite(path)


def _tar(directory: Path) -> bytes:
    pack(package_in(directory), directory / "seed.tar")
    return (directory / "seed.tar").read_bytes()


def _png(_: Path) -> bytes:
    data = io.BytesIO()
    Image.new("RGB", (3, 2), (200, 30, 9)).save(data, "PNG")
    return data.getvalue()


def _database(directory: Path) -> bytes:
    create(directory / FILE, [row("record", {"a": "x" * 3000, "b": i}) for i in range(5)])
    return (directory / FILE).read_bytes()


READERS: dict[str, tuple[Callable[[Path], bytes], Callable[[bytes, Path], None]]] = {
    "mod.json": (lambda at: (package_in(at) / "mod.json").read_bytes(), as_mod_json),
    "bundle.json": (lambda at: make_app_bundle(at / "b").file("bundle.json").read_bytes(), as_bundle_json),
    "tar": (_tar, at(".tar", read_tar)),
    "tar in the way": (_tar, at(".tar", leave_alone)),
    "npz": (
        lambda _: npz_of(npy_head("(2, 3)") + bytes(24)),
        at(".npz", lambda path: read_inputs(ENTRY, [str(path)])),
    ),
    "npy": (lambda _: npy_head("(2, 3)") + bytes(24), at(".npy", lambda p: read_inputs(ENTRY, [str(p)]))),
    "png": (_png, at(".png", lambda path: read_inputs(PICTURE, [], [str(path)]))),
    "onnx": (lambda _: add_model().SerializeToString(), at(".onnx", read_onnx_file)),
    "tflite": (
        lambda at: operator_model("add", at / "m.tflite").read_bytes(),
        at(".tflite", read_tflite_file),
    ),
    "labels": (lambda _: b'{"0": "cat", "1": ["n1", "dog"]}', at(".json", read_labels)),
    "published": (
        lambda _: gzip.compress(tar_of(LINES), mtime=0),
        at(".tar.gz", lambda p: _unpack(p, p.with_name("out"))),
    ),
    "records": (lambda _: HEADER + line(row("record", {"a": 1})) * 2, at(".jsonl", lambda p: list(scan(p)))),
    "database": (_database, at(".sqlite", lambda path: list(entries(path)))),
    "toml": (lambda _: b"[build]\nndk = 'x'\n[compile]\nshape = ['a=1']\n", at(".toml", _toml)),
    "app bench": (lambda _: b'{"schema": "adt.app-bench", "schema_version": 1}', at(".json", app_bench.read)),
    "apk": (lambda _: npz_of(b"x").replace(b"x.npy", b"a.dex"), at(".apk", read_apk)),
}
ODD = (
    b"", b"\0", b"\xff" * 4, b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"-1", b"1e999", b"[[[[", b'"', b"null",
    b"9" * 5000,
)  # fmt: skip
EDITS = st.lists(
    st.tuples(
        st.integers(0, 1 << 16), st.integers(0, 16), st.one_of(st.binary(max_size=8), st.sampled_from(ODD))
    ),
    min_size=1,
    max_size=8,
)
"""Offset in the file, number of bytes that are removed, bytes that are put there."""


def edited(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    for place, removed, put in edits:
        place %= len(data) + 1
        data = data[:place] + put + data[place + removed :]
    return data


def mutate(name: str, directory: Path, examples: int) -> None:
    make, check = READERS[name]
    with tempfile.TemporaryDirectory(dir=directory) as seeds:
        seed = make(Path(seeds))

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )
    @given(EDITS)
    def run(edits: list[tuple[int, int, bytes]]) -> None:
        with tempfile.TemporaryDirectory(dir=directory) as scratch, contextlib.suppress(AdtError):
            check(edited(seed, edits), Path(scratch))

    run()


@pytest.mark.parametrize("name", READERS)
def test_mutations_end_in_a_result_or_an_error(name: str, tmp_path: Path) -> None:
    mutate(name, tmp_path, 60)


VALUES = (
    None, True, -1, 2**70, 1.5, float("nan"), "", "x" * 3000, "\ud800", "../../x", "\0", [], [[]], {}, {"a": 1},
)  # fmt: skip


def places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Yield for each value in *document* what it is in, and its key or position there."""
    for key in document if isinstance(document, dict) else range(len(document)):
        yield document, key
        if isinstance(document[key], dict | list):
            yield from places(document[key])


@pytest.mark.parametrize("name", ["mod.json", "bundle.json", "app bench"])
def test_other_values_end_in_a_result_or_an_error(name: str, tmp_path: Path) -> None:
    make, check = READERS[name]
    seed = make(tmp_path)
    for number in range(len(list(places(json.loads(seed))))):
        document = json.loads(seed)
        inside, key = list(places(document))[number]
        inside[key] = VALUES[number % len(VALUES)]
        with (
            tempfile.TemporaryDirectory(dir=tmp_path) as scratch,
            contextlib.suppress(AdtError),
        ):
            check(json.dumps(document).encode(), Path(scratch))


@pytest.mark.nightly
@pytest.mark.parametrize("name", READERS)
def test_ten_minutes_of_mutations(name: str, tmp_path: Path) -> None:
    until = time.monotonic() + 600
    while time.monotonic() < until:
        mutate(name, tmp_path, 500)
