"""Models that are code: told by their names alone, never by content, and run only for those who trust them."""

import dataclasses
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from tvm.script import ir as I
from tvm.script import relax as R

import adt
from adt.compiler.importers import model_store
from adt.compiler.importers.importer import import_model
from adt.compiler.importers.relax import module_file
from adt.errors import AdtError, ModelError
from adt.host import cache
from adt.measure.reference import reference_named
from adt.options.option import options_of
from adt.options.resolve import load_settings
from adt.package.package import ModelPackage
from support.devices.programs import adt as adt_program
from support.models.onnx_graphs import graph_of, node, write
from support.requests import KINDS, requests
from support.standins.artefacts import package_manifest

pytestmark = pytest.mark.usefixtures("own_cache")


@I.ir_module
class Doubling:
    @R.function
    def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        return R.add(x, x)


def relax_file(path: Path) -> Path:
    """Write a module of Relax as a stranger may send it."""
    shutil.copyfile(module_file(Doubling, {}), path)
    return path


def torch_file(path: Path) -> Path:
    """Write an archive with the members by which an exported program is known."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/models/model.json", "{}")
    return path


VERBS: dict[str, Callable[..., object]] = {
    "compile": requests.CompileRequest,
    "explain": requests.ExplainRequest,
    "tune": requests.TuneRequest,
    "up": requests.UpRequest,
    "compare-offload": requests.CompareOffloadRequest,
    "verify": lambda model, **more: requests.VerifyRequest("package", model=model, **more),
    "bench": lambda model, **more: requests.BenchRequest("package", model=model, **more),
}
"""Every verb that runs a model which the user names."""


@pytest.mark.parametrize("verb", VERBS)
def test_code_is_run_for_those_who_trust_it(verb: str, tmp_path: Path) -> None:
    for model in (relax_file(tmp_path / "m.relax"), torch_file(tmp_path / "m.pt2"), "package.module:make"):
        with pytest.raises(ModelError, match="is code: ") as refused:
            VERBS[verb](model)
        assert "--trust" in refused.value.remedy and "your rights" in refused.value.remedy
        VERBS[verb](model, trust=True)


def test_no_other_verb_takes_a_model() -> None:
    taking = {kind for kind in KINDS if "model" in options_of(kind)}
    assert all(options_of(kind)["model"].complete for kind in taking)
    known = {
        requests.CompileRequest, requests.ExplainRequest, requests.TuneRequest, requests.UpRequest,
        requests.CompareOffloadRequest, requests.VerifyRequest, requests.BenchRequest, requests.QuantizeRequest,
    }  # fmt: skip
    assert taking == known


def test_what_refuses_code_does_not_ask_for_trust(tmp_path: Path) -> None:
    model = torch_file(tmp_path / "m.pt2")
    with pytest.raises(ModelError, match="onnxruntime quantizes ONNX"):
        adt.quantize(model, out=tmp_path / "out.onnx")


def test_the_command_line(tmp_path: Path) -> None:
    model = relax_file(tmp_path / "m.relax")
    refused = adt_program("compile", model, "--explain")
    assert refused.returncode == ModelError.exit_code and "--trust" in refused.stderr
    explained = adt_program("compile", model, "--explain", "--trust")
    assert explained.returncode == 0 and "relax.add" in explained.stdout, explained.stderr


@pytest.mark.parametrize("name", ["m.onnx", "m.ONNX", "m.tflite", "m.keras", "m.h5", "m.bin", "m"])
@pytest.mark.parametrize(
    ("make", "kind"), [(relax_file, "a Relax module"), (torch_file, "a PyTorch program")]
)
def test_code_under_another_name_is_refused_also_from_those_who_trust(
    make: Callable[[Path], Path], kind: str, name: str, tmp_path: Path
) -> None:
    path = make(tmp_path / name)
    for ask in (lambda: adt.explain(path, trust=True), lambda: import_model(path, {})):
        with pytest.raises(ModelError, match=kind) as refused:
            ask()
        assert f"mv {path} " in refused.value.remedy
    shutil.move(
        *refused.value.remedy.partition("mv ")[2].split()
    )  # as the remedy says: then it asks for trust
    (renamed,) = tmp_path.glob("m.*")
    with pytest.raises(ModelError, match="is code: "):
        adt.explain(renamed)


def test_a_reference_of_the_settings_is_not_trusted(tmp_path: Path) -> None:
    package = ModelPackage(tmp_path, package_manifest())

    def no_model() -> Path:
        raise AssertionError("the package's own model is not needed")

    def ask(**more: Any) -> None:
        reference_named(str(tmp_path / "m.pt2"), package, no_model, load_settings({}).settings, **more)

    torch_file(tmp_path / "m.pt2")
    with pytest.raises(ModelError, match="is code: "):
        ask()
    ask(trust=True)


def test_what_python_made_here_is_trusted(tmp_path: Path) -> None:
    assert not adt.explain(Doubling).problem
    stored = module_file(Doubling, {})
    assert not adt.explain(stored).problem
    elsewhere = tmp_path / "models" / stored.parent.name / stored.name
    shutil.copytree(stored.parent, elsewhere.parent)
    with pytest.raises(ModelError, match="is code: "):
        adt.explain(elsewhere)


def with_data(path: Path, location: str) -> Path:
    """Write an ONNX model whose weight lies in the file *location*, which is a Relax module, too."""
    relax_file(path.parent / location)
    model = graph_of([node("Add", ["x", "w"], ["y"])], {"x": (4,)}, ["y"], {"w": np.ones(4, np.float32)})
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("length", "16")):
        weight.external_data.add(key=key, value=value)
    return write(model, path)


def package_of(sha256: str, path: Path) -> ModelPackage:
    manifest = package_manifest()
    return ModelPackage(
        path, dataclasses.replace(manifest, source=dataclasses.replace(manifest.source, sha256=sha256))
    )


def test_a_data_file_in_the_store_is_no_model(tmp_path: Path) -> None:
    """Tell the store's model from data files, whose names a stranger chooses."""
    model = with_data(tmp_path / "big.onnx", "model.relax")
    sha256 = model_store.model_sha256(model)
    stored = model_store.keep(model, sha256)
    assert model_store.source_model(package_of(sha256, tmp_path)) == stored == stored.with_name("model.onnx")
    with pytest.raises(ModelError, match="is code: "):
        adt.explain(stored.with_name("model.relax"))


@pytest.mark.parametrize("location", ["model.onnx", cache.STAMP])
def test_data_files_do_not_replace_what_the_store_has(location: str, tmp_path: Path) -> None:
    model = with_data(tmp_path / "big.onnx", location)
    with pytest.raises(ModelError, match="has a name that adt's store of models needs"):
        model_store.keep(model, model_store.model_sha256(model))


def test_a_package_names_no_directory_outside_the_store(tmp_path: Path) -> None:
    """Refuse it: the manifest is a stranger's, and what the store has is trusted."""
    outside, _ = cache.entry("../planted", lambda directory: None)
    torch_file(outside / "model.pt2")
    (cache.cache_dir() / "models").mkdir(exist_ok=True)
    (outside / cache.STAMP).write_text(f"{cache.tree_digest(outside)} {cache.stat_digest(outside)}\n")
    assert cache.lookup("models/../../planted") is not None, "the entry is good, if it is asked for"
    with pytest.raises(ModelError, match="is not in this machine's cache"):
        model_store.source_model(package_of("../../planted", tmp_path))


def test_a_missing_model_is_said_first(tmp_path: Path) -> None:
    with pytest.raises(AdtError, match="there is no model file"):
        adt.explain(tmp_path / "absent.pt2")
