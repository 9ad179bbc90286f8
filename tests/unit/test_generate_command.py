"""`adt generate`: what it says, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import adt
from adt.api.generate import KINDS
from adt.api.requests import GenerateRequest
from adt.cli.app import app
from adt.errors import ConfigError, WouldOverwrite
from adt.integrate.model_api import Project
from adt.integrate.output import CopiedFile, OutputFile, TextFile
from adt.options.option import options_of
from support.standins.artefacts import entry, make_app_bundle, make_typed_package, tensor

OUT = ("--out", "out", "--package", "com.example.vision")
ENTRIES = (entry([tensor("photo", (1, 3, 32, 64))], [tensor("scores", (1, 2))]),)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a package ``pkg`` and a ``bundle``, for a generator of three files."""

    def files(project: Project) -> tuple[OutputFile, ...]:
        (model,) = project.models
        image = model.api.entries[0].inputs[0].image
        return (
            TextFile(f"{model.api.stem}.h", f"// {image}, {project.labels}\n"),
            TextFile("main.cc", "// yours\n", users=True),
            CopiedFile("mod.so", model.variants[0].package.path / "mod.so"),
        )

    monkeypatch.setitem(KINDS, "cpp", files)
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    make_typed_package(tmp_path / "pkg", "detector", ENTRIES)
    make_app_bundle(tmp_path / "bundle")
    return tmp_path


def generate(*arguments: str) -> Any:
    return CliRunner().invoke(
        app,
        ["generate", "cpp", "pkg", "--bundle", "bundle", *OUT, *arguments],
    )


def test_the_kinds_of_the_command_line_are_those_of_the_api() -> None:
    assert options_of(GenerateRequest)["kind"].choices == list(KINDS)


def test_it_says_what_it_wrote(place: Path) -> None:
    done = generate()
    assert done.exit_code == 0, done.output
    assert done.stdout == (
        "class       com.example.vision.Detector, of 'detector' for arm64-v8a\n"
        "wrote       3 files\nin          out\n"
    )
    again = generate()
    assert (
        "unchanged   2 files\nyours       1 file: main.cc\n" in again.stdout and "wrote" not in again.stdout
    )


def test_options_reach_the_generator(place: Path) -> None:
    (place / "labels.txt").write_text("cat\ndog\n")
    done = generate(
        *("--class", "Finder", "--mean", "detector=1,2,3", "--std", "2", "--scale", "1"),
        *("--color", "bgr", "--layout", "nchw", "--labels", "labels.txt"),
    )
    assert done.exit_code == 0, done.output
    said = (place / "out/finder.h").read_text()
    assert "mean=(1.0, 2.0, 3.0), std=(2.0, 2.0, 2.0), scale=1.0, color='BGR'" in said
    assert "('cat', 'dog')" in said


def test_a_dry_run_shows_a_diff_and_writes_nothing(place: Path) -> None:
    done = generate("--dry-run")
    assert done.exit_code == 0 and not (place / "out").exists()
    assert "--- /dev/null\n+++ b/detector.h\n" in done.stdout
    assert "Binary files /dev/null and b/mod.so differ" in done.stdout
    generate()
    (place / "out/detector.h").write_text("edited\n")
    done = generate("--dry-run")
    assert done.exit_code == 0 and "-edited\n" in done.stdout
    assert "detector.h was edited, and is replaced only with --force" in done.stderr


def test_edited_files_are_refused_and_forced(place: Path) -> None:
    generate()
    (place / "out/detector.h").write_text("edited\n")
    done = generate()
    assert done.exit_code == WouldOverwrite.exit_code
    assert (
        "edited: detector.h" in done.stderr and "remedy: See what would change with --dry-run" in done.stderr
    )
    assert generate("--force").exit_code == 0
    assert (place / "out/detector.h").read_text() != "edited\n"


def test_the_document(place: Path) -> None:
    document = json.loads(generate("--json").stdout)
    assert document == {
        "schema": "adt.generate",
        "schema_version": 1,
        "kind": "cpp",
        "out": "out",
        "package": "com.example.vision",
        "written": True,
        "models": [{"name": "detector", "class": "Detector", "abis": ["arm64-v8a"]}],
        "files": {
            "create": ["detector.h", "main.cc", "mod.so"],
            **{step: [] for step in ("update", "same", "keep", "remove", "leave", "edited", "foreign")},
        },
        "diff": None,
    }
    (place / "out/detector.h").unlink()
    document = json.loads(generate("--json", "--dry-run").stdout)
    assert (document["written"], document["files"]["create"]) == (False, ["detector.h"])
    assert "+++ b/detector.h" in document["diff"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--class", "a=B", "--class", "a=C"], "--class is given twice for a"),
        (["--scale", "1,2"], "--scale takes one number"),
        (["--mean", "other=1"], "'other', which is not among"),
    ],
)
def test_wrong_options_have_a_remedy(place: Path, arguments: list[str], said: str) -> None:
    done = generate(*arguments)
    assert done.exit_code > 2 and said in done.stderr and "remedy: " in done.stderr, done.output
    assert not (place / "out").exists()


def test_from_python(place: Path) -> None:
    result = adt.generate("cpp", Path("pkg"), bundles=[Path("bundle")], out=Path("o"), java_package="com.a.b")
    assert result.written and (place / "o/detector.h").is_file()
    with pytest.raises(ConfigError, match="'swift'"):
        adt.generate("swift", Path("pkg"), out=Path("o"), java_package="com.a.b")


def test_without_a_bundle_it_takes_the_one_built_here(place: Path) -> None:
    make_app_bundle(place / "cache/bundles/built-here", api_level=26)
    done = CliRunner().invoke(app, ["generate", "cpp", "pkg", *OUT, "--dry-run", "--json"])
    assert done.exit_code == 0, done.output
    make_app_bundle(place / "cache/bundles/built-later")
    result = adt.generate("cpp", [Path("pkg")], out=Path("o"), java_package="com.a.b")
    assert [bundle.path.name for bundle in result.project.bundles] == ["built-later"]
