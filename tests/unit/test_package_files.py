"""Packages as files: archives that are refused, parts that come together again, the schema of mod.json."""

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import adt
from adt.bundle.bundle import load_bundle
from adt.compiler.importers.formats import format_of
from adt.errors import ModelError, PackageError
from adt.host import cache
from adt.host.directories import resource
from adt.package import files
from adt.package.files import INSPECT, MANIFEST
from adt.package.integrity import examine
from adt.package.package import load_package, merge_params, split_params, write_package
from support.standins.archives import tar_entry
from support.standins.artefacts import make_package

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    directory = make_package(tmp_path / "pkg").path
    (directory / INSPECT / "opencl").mkdir(parents=True)
    (directory / INSPECT / "opencl/a_kernel.cl").write_text("__kernel void a_kernel() {}\n")
    return directory


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file() and path.name != cache.STAMP)
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in files}


def test_an_archive_gives_back_the_same_bytes(package: Path, tmp_path: Path) -> None:
    written = write_package(load_package(package), tmp_path / "x.tar")
    assert written.place == tmp_path / "x.tar"
    assert contents(load_package(tmp_path / "x.tar").path) == contents(package)


def test_archives_do_not_depend_on_times_modes_and_order(package: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere/other"
    for name, data in sorted(contents(package).items(), reverse=True):
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).write_bytes(data)
        (other / name).chmod(0o600)
    sums = []
    for place in (package, other):
        files.pack(place, tmp_path / "x.tar")
        sums.append(hashlib.sha256((tmp_path / "x.tar").read_bytes()).hexdigest())
    assert sums[0] == sums[1]


def test_an_archive_made_with_tar_is_read_too(package: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        tar.add(package, "./")
    assert contents(load_package(tmp_path / "x.tar").path) == contents(package)


Add = Callable[[tarfile.TarFile], None]


def member(name: str, data: bytes = b"x", **facts: object) -> Add:
    return lambda tar: tar.addfile(tar_entry(name, size=len(data), **facts), io.BytesIO(data))


def links(kind: bytes, target: str) -> Add:
    return member("inspect/link", b"", type=kind, linkname=target)


HOSTILE: dict[str, tuple[Add, ...]] = {
    "absolute": (member("/etc/adt-owned"),),
    "upwards": (member("inspect/../../owned"),),
    "upwards at once": (member("../owned"),),
    "symbolic link": (links(tarfile.SYMTYPE, "/etc/passwd"),),
    "hard link": (links(tarfile.LNKTYPE, "mod.json"),),
    "a link, then a file through it": (links(tarfile.SYMTYPE, ".."), member("inspect/link/owned")),
    "device": (member("inspect/null", b"", type=tarfile.CHRTYPE),),
    "pipe": (member("inspect/pipe", b"", type=tarfile.FIFOTYPE),),
    "twice": (member("inspect/a"), member("inspect/a")),
    "twice, spelt in two ways": (member("inspect/a"), member("./inspect/a")),
    "a file that is a directory, too": (member("inspect/a"), member("inspect/a/b")),
    "of no package": (member("surprise.sh"),),
    "hidden": (member("inspect/.hidden"),),
    "control character": (member("inspect/a\nb"),),
    "backslash": (member("inspect\\..\\owned"),),
}


@pytest.mark.parametrize("entries", HOSTILE.values(), ids=HOSTILE)
def test_hostile_archives(package: Path, tmp_path: Path, entries: tuple[Add, ...]) -> None:
    before = set(tmp_path.rglob("*"))
    hostile = tmp_path / "hostile.tar"
    with tarfile.open(hostile, "w") as tar:
        for name in ("mod.json", "mod.so", "mod.params"):
            tar.add(package / name, name)
        for entry in entries:
            entry(tar)
    with pytest.raises(PackageError, match="nothing of it was used") as refused:
        load_package(hostile)
    assert str(hostile) in refused.value.what and refused.value.remedy
    left = {p for p in tmp_path.rglob("*") if "cache" not in p.relative_to(tmp_path).parts}
    assert left == before | {hostile}
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file() and p.suffix != ".lock"]


def test_too_many_and_too_large(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.pack(package, tmp_path / "x.tar")
    monkeypatch.setattr(files, "MOST_FILES", 3)
    with pytest.raises(PackageError, match="more than 3 entries"):
        load_package(tmp_path / "x.tar")
    monkeypatch.setattr(files, "MOST_FILES", 100)
    monkeypatch.setattr(files, "MOST_BYTES", 20)
    with pytest.raises(PackageError, match="would unpack to more than"):
        load_package(tmp_path / "x.tar")


def test_a_bomb_of_holes(tmp_path: Path) -> None:
    """Refuse a sparse entry that claims a terabyte that is not in the files."""
    info = tarfile.TarInfo("mod.params")
    info.pax_headers = {"GNU.sparse.size": str(1 << 40), "GNU.sparse.numblocks": "0", "GNU.sparse.map": ""}
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info)
    with pytest.raises(PackageError):
        load_package(tmp_path / "x.tar")


def test_a_header_that_asks_for_memory(tmp_path: Path) -> None:
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, 3 << 30
    (tmp_path / "x.tar").write_bytes(info.tobuf(tarfile.USTAR_FORMAT) + b"\0" * 10_240)
    with pytest.raises(PackageError, match="header has 3221225472 bytes"):
        load_package(tmp_path / "x.tar")


def test_what_is_no_whole_archive(package: Path, tmp_path: Path) -> None:
    files.pack(package, tmp_path / "x.tar")
    whole = (tmp_path / "x.tar").read_bytes()
    cut = (whole[:length] for length in (0, 100, 512, 700, 2000))
    for data in (*cut, b"not a tar" * 200, b"\x1f\x8b\x08" + b"\0" * 600):
        (tmp_path / "damaged.tar").write_bytes(data)
        with pytest.raises(PackageError):
            load_package(tmp_path / "damaged.tar")


def test_what_is_not_a_package_is_not_written_over(package: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.tar").write_text("precious")
    with pytest.raises(PackageError, match="left alone"):
        write_package(load_package(package), tmp_path / "notes.tar")
    assert (tmp_path / "notes.tar").read_text() == "precious"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/precious").write_text("x")
    with pytest.raises(PackageError, match="left alone"):
        write_package(load_package(package), tmp_path / "mine")
    assert (tmp_path / "mine/precious").exists()
    write_package(load_package(package), tmp_path / "x.tar")
    write_package(load_package(package), tmp_path / "x.tar")


def test_split_and_merge(package: Path, tmp_path: Path) -> None:
    split = split_params(load_package(package), tmp_path / "parts")
    assert sorted(contents(split.params)) == ["mod.params"]
    assert "mod.params" not in contents(split.code) and "inspect/opencl/a_kernel.cl" in contents(split.code)
    with pytest.raises(PackageError, match=r"lacks mod\.params") as alone:
        load_package(split.code)
    assert "adt package merge" in alone.value.remedy
    for number, params in enumerate((split.params, split.params / "mod.params")):
        merge_params(split.code, params, tmp_path / f"merged{number}")
        assert contents(tmp_path / f"merged{number}") == contents(package)
    merge_params(tmp_path / "parts", split.params, tmp_path / "merged")
    assert contents(tmp_path / "merged") == contents(package)


def test_what_is_no_package_is_named(package: Path, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "empty").mkdir()
    for name, message, remedy in (
        ("model.onnx", "is a model, not a package", f"adt compile {tmp_path}/model.onnx -o model-pkg"),
        ("notes.txt", "is a file of something else, not a package", "adt compile MODEL"),
        ("empty", "is a directory of something else, not a package", "adt compile MODEL"),
        ("nope-pkg", f"there is no package {tmp_path}/nope-pkg", f"adt compile MODEL -o {tmp_path}/nope-pkg"),
        ("x.tar", f"there is no package {tmp_path}/x.tar", "adt compile MODEL"),
    ):
        for opens in (load_package, examine, lambda path: merge_params(path, path, tmp_path / "merged")):
            with pytest.raises(PackageError, match=message) as caught:
                opens(tmp_path / name)
            assert remedy in caught.value.remedy
    with pytest.raises(ModelError, match="is a package, not a model") as model:
        format_of(package)
    assert f"adt run {package}" in model.value.remedy
    with pytest.raises(PackageError, match="is a package, not a bundle"):
        load_bundle(package)


def test_parts_of_different_packages(package: Path, tmp_path: Path) -> None:
    split = split_params(load_package(package), tmp_path / "parts")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/mod.params").write_bytes(b"others")
    with pytest.raises(PackageError, match="does not have the parameters of toy"):
        merge_params(split.code, tmp_path / "other", tmp_path / "merged")
    with pytest.raises(PackageError, match="no parameter file"):
        merge_params(split.code, tmp_path / "absent", tmp_path / "merged")
    with pytest.raises(PackageError, match=r"no package|not a package"):
        merge_params(split.params, split.params, tmp_path / "merged")


def change(package: Path, **facts: Any) -> None:
    """Write other *facts* into mod.json."""
    document = json.loads((package / MANIFEST).read_text())
    (package / MANIFEST).write_text(json.dumps(document | facts))


def test_a_newer_packages_fields_are_passed_over(package: Path) -> None:
    document = json.loads((package / MANIFEST).read_text())
    known = load_package(package).manifest
    for part in (document, document["target"], document["entries"][0], document["entries"][0]["inputs"][0]):
        part["of a newer adt"] = {"any": ["value", 1]}
    (package / MANIFEST).write_text(json.dumps(document))
    assert load_package(package).manifest == known


def test_what_a_package_requires_must_be_known(package: Path) -> None:
    change(package, requires=["sparse weights"])
    with pytest.raises(
        PackageError, match="requires 'sparse weights', which this adt does not know"
    ) as error:
        load_package(package)
    assert "a newer one" in error.value.remedy


def test_a_package_for_a_library_of_an_older_adt_is_refused_with_its_name(package: Path) -> None:
    change(package, offload="clml,nnapi")
    with pytest.raises(PackageError, match="needs the library 'nnapi', which this adt does not know"):
        load_package(package)


@pytest.mark.parametrize("version", [1, 6, "3", None])
def test_a_package_of_another_schema_says_make_it_again(package: Path, version: Any) -> None:
    change(package, schema_version=version)
    with pytest.raises(
        PackageError, match=rf"schema version {version}; this adt reads 2 or 3 or 4 or 5"
    ) as other:
        load_package(package)
    assert "Make it again" in other.value.remedy


def test_a_package_of_schema_2_has_no_weights_in_images(package: Path) -> None:
    document = json.loads((package / MANIFEST).read_text())
    for entry in document["entries"]:
        del entry["images"]
        for spec in (*entry["inputs"], *entry["outputs"]):
            del spec["values"]
    (package / MANIFEST).write_text(json.dumps(document | {"schema_version": 2}))

    loaded = load_package(package)

    assert [entry.images for entry in loaded.manifest.entries] == [()]
    assert [spec.values for spec in loaded.manifest.entry().inputs] == [None]


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    path = resource("cpp_runner").parent / "toolchain/adt/package/schemas/mod.schema.json"
    if not path.is_file():  # installed
        path = Path(adt.__file__).parent / "package/schemas/mod.schema.json"
    content = json.loads(path.read_text())
    jsonschema.Draft202012Validator.check_schema(content)
    return jsonschema.Draft202012Validator(content)


def test_the_schema_fits(package: Path, schema: jsonschema.Draft202012Validator) -> None:
    document = json.loads((package / MANIFEST).read_text())
    schema.validate(document)
    for wrong in (
        document | {"surprise": 1},
        document | {"schema_version": 1},
        document | {"alignment": "64"},
        {key: value for key, value in document.items() if key != "entries"},
        document | {"kernels": [{"name": "k", "device": "cpu", "tuned": 0}]},
    ):
        assert not schema.is_valid(wrong)


def test_the_manifest_and_the_schema_have_the_same_fields(
    package: Path, schema: jsonschema.Draft202012Validator
) -> None:
    fields = asdict(load_package(package).manifest)
    assert set(fields) == set(schema.schema["properties"])
