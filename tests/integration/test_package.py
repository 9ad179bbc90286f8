"""Packages that `adt` makes: the same bytes every time, from the cache, in one file, in parts; and verified."""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import adt as api
from adt.bundle.platforms import platform_named
from adt.compiler.compilation import CompileJob
from adt.compiler.compile import identity
from adt.compiler.passes.records.tuning import Tuning
from adt.host.cache import STAMP
from adt.options.resolve import load_settings
from adt.package.manifest import PackageLike
from adt.package.package import load_package
from support.devices.programs import ADT, adt, adt_json, forked_adt
from support.models.small import small_model


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Compile into a cache of its own, which holds nothing of earlier runs."""
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("cache")
        patch.setenv("ADT_CACHE_DIR", str(place))
        yield place


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "small.onnx", op="Sigmoid")


@pytest.fixture(scope="module")
def package(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("packages") / "small"
    adt_json("compile", model, "--for", "linux-aarch64", "-o", out)
    return out


def sums(directory: Path) -> dict[str, str]:
    return {
        path.relative_to(directory).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != STAMP
    }


@pytest.mark.parametrize("target", [pytest.param("cpu", marks=pytest.mark.nightly), "opencl"])
def test_the_same_bytes_every_time(model: Path, tmp_path: Path, target: str) -> None:
    """Vary the directory, the process and the order of Python's sets; in one file, too."""
    runs = []
    for number, seed in enumerate(("1", "4321")):
        place = tmp_path / f"some{number * 'where'}" / "deep"
        place.mkdir(parents=True)
        (place / model.name).write_bytes(model.read_bytes())
        words = [ADT, "compile", model.name, "--for", "linux-aarch64", "--target", target, "--no-cache", "-o"]
        environ = {**os.environ, "PYTHONHASHSEED": seed, "ADT_COMPILE_CHECK": "off"}
        subprocess.run([*words, "pkg.tar"], cwd=place, env=environ, check=True, capture_output=True)
        runs.append(place)
    assert (runs[0] / "pkg.tar").read_bytes() == (runs[1] / "pkg.tar").read_bytes()
    names = sums(load_package(runs[0] / "pkg.tar").path)
    assert {"mod.json", "mod.so", "mod.params", "inspect/graph.json", "inspect/host.ll.gz"} < names.keys()
    assert any(name.endswith(".cl") for name in names) == (target == "opencl")


def test_a_second_compile_copies_what_the_first_made(model: Path, package: Path, tmp_path: Path) -> None:
    again = adt("compile", model, "--for", "linux-aarch64", "-o", tmp_path / "again")
    assert (
        again.returncode == 0 and "copied from the cache" in again.stderr and "importing" not in again.stderr
    )
    assert sums(tmp_path / "again") == sums(package)
    document = adt_json("compile", model, "--for", "linux-aarch64", "-o", tmp_path / "x.tar")
    assert document["cached"] is True and document["path"] == str(tmp_path / "x.tar")
    fresh = adt("compile", model, "--for", "linux-aarch64", "-o", tmp_path / "fresh", "--no-cache")
    assert "importing" in fresh.stderr and "cache" not in fresh.stdout
    assert sums(tmp_path / "fresh") == sums(package)


def test_what_decides_the_bytes_decides_the_entry(model: Path, tmp_path: Path) -> None:
    """Change each part of a job alone: another entry; what does not matter changes nothing."""

    def key(
        changes: dict[str, object] | None = None, *, platform: str = "linux-aarch64", **facts: Any
    ) -> str:
        settings = load_settings({"compile.check": "off", **(changes or {})}).settings
        job = CompileJob(
            **{"model": model, "platform": platform_named(platform), "settings": settings} | facts
        )
        return json.dumps(identity(job), sort_keys=True, default=str)

    same = tmp_path / "same" / model.name
    same.parent.mkdir()
    same.write_bytes(model.read_bytes())
    assert key() == key(model=same) == key({"device.serial": "abcd"}) == key({"compile.db": "anywhere"})
    (tmp_path / "other").mkdir()
    keys = [
        key(),
        key({"compile.opt_level": 1}),
        key({"compile.target": "opencl"}),
        key({"compile.cpu": "cortex-a76"}),
        key({"compile.shapes": ("x:1,4",)}),
        key({"compile.precision": "float16"}),
        key({"build.alignment": 128}),
        key(platform="host"),
        key(model=small_model(tmp_path / "other" / model.name, op="Tanh")),
        key(model=small_model(tmp_path / "renamed.onnx", op="Sigmoid")),
        key(like=PackageLike("a device", "", "", "", None, (), {}, ("+dotprod",))),
        key(tuning=Tuning((), "one", "a device", "")),
        key(tuning=Tuning((), "another", "a device", "")),
    ]
    assert len(set(keys)) == len(keys)


LEVEL = ("--opt-level", "2")
"""Options of an entry that is damaged, after it was made."""


def test_two_at_once_compile_once(model: Path, tmp_path: Path) -> None:
    words = [forked_adt(str(ADT)), "compile", model, "--for", "linux-aarch64", *LEVEL, "--json", "-o"]
    children = [
        subprocess.Popen([*words, tmp_path / name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for name in ("one", "two")
    ]
    ended = [child.communicate() for child in children]
    assert [child.returncode for child in children] == [0, 0], ended
    assert sorted(json.loads(out)["cached"] for out, _ in ended) == [False, True]
    assert sums(tmp_path / "one") == sums(tmp_path / "two")


def test_a_damaged_entry_is_made_again(model: Path, own_cache: Path, tmp_path: Path) -> None:
    words = ["compile", model, "--for", "linux-aarch64", *LEVEL, "-o"]
    adt_json(*words, tmp_path / "one")
    expected = sums(tmp_path / "one")
    for entry in own_cache.glob("packages/small-*/mod.params"):
        entry.write_bytes(b"damage")
    document = adt_json(*words, tmp_path / "two")
    assert document["cached"] is False and sums(tmp_path / "two") == expected


def test_mod_json_fits_its_schema(package: Path) -> None:
    schemas = Path(api.__file__).parent / "package" / "schemas"
    for file, schema in (("mod.json", "mod"), ("inspect/graph.json", "inspection-graph")):
        content = json.loads((schemas / f"{schema}.schema.json").read_text())
        jsonschema.Draft202012Validator(content).validate(json.loads((package / file).read_text()))


def test_every_verb_takes_an_archive(model: Path, tmp_path: Path) -> None:
    archive = tmp_path / "small.tar"
    adt_json("compile", model, "--for", "host", "-o", archive)
    assert "description" in adt("package", "verify", archive).stdout
    assert adt_json("inspect", archive)["path"] == str(archive)
    assert adt_json("elf", archive)["files"][0]["name"] == "mod.so"
    checks = json.loads(adt("doctor", "package", "--package", archive, "--json").stdout)["checks"]
    assert [c["status"] for c in checks if c["name"] == "package"] == ["ok"], checks


def test_split_and_merge_give_the_same_package(package: Path, tmp_path: Path) -> None:
    document = adt_json("package", "split-params", package, "-o", tmp_path / "parts")
    assert sums(Path(document["params"])).keys() == {"mod.params"}
    assert adt("run", document["code"]).returncode == 11
    adt_json("package", "merge", document["code"], document["params"], "-o", tmp_path / "whole")
    assert sums(tmp_path / "whole") == sums(package)
    adt_json("package", "merge", document["code"], document["params"], "-o", tmp_path / "whole.tar")
    adt_json("package", "verify", tmp_path / "whole.tar")


def edited(package: Path, to: Path, **changes: Any) -> Path:
    for name in sums(package):
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_bytes((package / name).read_bytes())
    document = json.loads((to / "mod.json").read_text())
    (to / "mod.json").write_text(json.dumps(document | changes))
    return to


def test_verify_names_what_is_wrong(package: Path, tmp_path: Path) -> None:
    facts = json.loads((package / "mod.json").read_text())
    cases: list[tuple[str, str, Any]] = [
        ("mod.params", "sha256", lambda p: flip(p / "mod.params")),
        ("mod.so", "bytes; mod.json says", lambda p: (p / "mod.so").write_bytes(b"")),
        ("inspect", "relax.py was changed", lambda p: flip(p / "inspect/relax.py")),
        ("inspect", "surprise is not described", lambda p: (p / "inspect/surprise").write_text("x")),
    ]
    for number, (name, message, damage) in enumerate(cases):
        bad = edited(package, tmp_path / str(number))
        damage(bad)
        result = api.package_verify(bad)
        wrong = {finding.name: finding.found for finding in result.integrity.findings if not finding.passed}
        assert not result.passed and message in wrong[name], wrong
    done = adt("package", "verify", tmp_path / "0")
    assert done.returncode == 11 and "not sound: mod.params" in done.stderr
    machine = edited(package, tmp_path / "machine", target=facts["target"] | {"machine": "X86_64"})
    assert "mod.json says X86_64" in api.package_verify(machine).integrity.findings[3].found
    entry = facts["entries"][0] | {"params": [*facts["entries"][0]["params"], "absent"]}
    params = edited(package, tmp_path / "params", entries=[entry])
    document = json.loads(adt("package", "verify", params, "--json").stdout)
    assert not document["passed"]
    assert [f["found"] for f in document["findings"] if not f["passed"]] == ["mod.params lacks absent"]
    entry = facts["entries"][0] | {"images": ["absent"]}
    images = api.package_verify(edited(package, tmp_path / "images", entries=[entry])).integrity
    assert "none of params" in next(f.found for f in images.findings if not f.passed)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_without_its_record_a_package_runs(model: Path, tmp_path: Path) -> None:
    """Drop inspect/, which is allowed: `adt inspect` says how to get it again."""
    pkg = tmp_path / "pkg"
    adt_json("compile", model, "--for", "host", "-o", pkg)
    for path in sorted((pkg / "inspect").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (pkg / "inspect").rmdir()
    assert "left out" in adt("package", "verify", pkg).stdout
    assert "not recorded" in adt("inspect", pkg).stdout
    refused = adt("inspect", pkg, "--relax")
    assert refused.returncode == 11 and "adt compile small.onnx" in refused.stderr
    import tvm

    stored = tvm.runtime.load_param_dict_from_file(str(pkg / "mod.params"))
    params = [stored[name] for name in load_package(pkg).manifest.entry().params]
    vm = tvm.relax.VirtualMachine(tvm.runtime.load_module(str(pkg / "mod.so")), tvm.cpu())
    array = np.ones((1, 4), np.float32)
    weight = numpy_helper.to_array(onnx.load(model).graph.initializer[0])
    output = vm["main"](tvm.runtime.tensor(array), *params).numpy()
    assert np.allclose(output, 1 / (1 + np.exp(-array @ weight)), atol=1e-6)
