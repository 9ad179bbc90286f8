"""`adt generate`: what it says, and how it ends."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import adt
from adt.cli.app import app
from adt.errors import BuildError, ConfigError, WouldOverwrite
from adt.integrate.model_api import Project
from adt.integrate.output import CopiedFile, OutputFile, TextFile
from adt.options.option import options_of
from adt.verbs.generate import KINDS, GenerateRequest
from support.standins.artefacts import entry, make_app_bundle, make_typed_package, tensor
from support.standins.elf import GCC

OUT = ("--out", "out", "--package", "com.example.vision")
ENTRIES = (entry([tensor("photo", (1, 3, 32, 64))], [tensor("scores", (1, 2))]),)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a directory with a package ``pkg`` and a ``bundle``, for a generator of three files."""

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
        "unchanged   3 files\n" in again.stdout
        and "wrote" not in again.stdout
        and "yours" not in again.stdout
    )


def test_options_reach_the_generator(place: Path) -> None:
    (place / "labels.txt").write_text("cat\ndog\n")
    done = generate(
        *("--class", "Finder", "--mean", "detector=1,2,3", "--std", "2", "--scale", "1"),
        *("--color", "bgr", "--layout", "nchw", "--labels", "labels.txt"),
    )
    assert done.exit_code == 0, done.output
    header = (place / "out/finder.h").read_text()
    assert "mean=(1.0, 2.0, 3.0), std=(2.0, 2.0, 2.0), scale=1.0, color='BGR'" in header
    assert "('cat', 'dog')" in header


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


BUILD_FILES = ("AndroidManifest.xml", ".kts", "gradle.properties", "libs.versions.toml")


@pytest.mark.parametrize("agp", ["8.13", "9.4"])
def test_build_files_that_were_edited_stay_when_package_and_bundle_ask_for_more(
    place: Path, agp: str
) -> None:
    android = ("generate", "android-app", "pkg", *OUT, "--agp", agp, "--bundle")
    assert CliRunner().invoke(app, [*android, "bundle"]).exit_code == 0
    out = place / "out"
    mine = sorted(
        path
        for path in out.rglob("*")
        if path.name.endswith(BUILD_FILES) and "adt-runtime/src" not in path.as_posix()
    )
    assert len(mine) == 10
    for path in mine:
        path.write_text(path.read_text() + "\n")
    edited = {path: path.read_text() for path in mine}
    make_typed_package(place / "pkg", "detector", (entry([tensor("x", (4,))], [tensor("y", (4,))]),))
    make_app_bundle(place / "newer", api_level=30)
    done = CliRunner().invoke(app, [*android, "newer"])
    assert done.exit_code == 0, done.output
    assert {path: path.read_text() for path in mine} == edited
    (yours,) = [line for line in done.stdout.splitlines() if line.startswith("yours")]
    assert all(path.relative_to(out).as_posix() in yours for path in mine)
    assert yours.endswith("(for adt's of today: another --out)")
    # What depends on package and bundle came all the same.
    assert "minSdk=30\n" in (out / "adt-runtime/adt.properties").read_text()
    again = CliRunner().invoke(app, [*android, "newer", "--dry-run"])
    assert "nothing would change" in again.stderr and "build.gradle.kts is yours: it stays" in again.stderr


def test_the_generated_part_of_a_build_is_adts(place: Path) -> None:
    aar = ("generate", "aar", "pkg", *OUT, "--bundle", "bundle")
    assert CliRunner().invoke(app, aar).exit_code == 0
    for name in ("adt-runtime/src/main/cpp/CMakeLists.txt", "adt-runtime/adt.properties"):
        text = (place / "out" / name).read_text()
        (place / "out" / name).write_text(text + "\n")
        done = CliRunner().invoke(app, aar)
        assert done.exit_code == WouldOverwrite.exit_code and f"edited: {name}" in done.stderr
        (place / "out" / name).unlink()
        assert CliRunner().invoke(app, aar).exit_code == 0
        assert (place / "out" / name).read_text() == text
    (place / "out/vision/build.gradle.kts").unlink()  # the user's comes back, too
    assert CliRunner().invoke(app, aar).exit_code == 0
    assert (place / "out/vision/build.gradle.kts").is_file()


@pytest.mark.parametrize(("page", "refused"), [(4096, True), (16384, False)])
def test_libraries_for_small_pages_are_refused(place: Path, page: int, refused: bool) -> None:
    library = place / "libc++_shared.so"
    source = place / "empty.c"
    source.write_text("int f(void) { return 1; }\n")
    pages = f"-Wl,-z,max-page-size={page},-z,common-page-size=4096"
    subprocess.run([GCC, "-shared", "-nostdlib", pages, "-o", library, source], check=True)
    make_app_bundle(place / "linked", contents={"lib/libc++_shared.so": library.read_bytes()})
    aar = ("generate", "aar", "pkg", "--bundle", "linked", *OUT)
    done = CliRunner().invoke(app, aar)
    assert done.exit_code == (BuildError.exit_code if refused else 0), done.output
    if refused:
        assert "lib/arm64-v8a/libc++_shared.so does not load on devices with pages of 16 KB" in done.stderr
        assert "NDK r28 or newer" in done.stderr and not (place / "out").exists()
        assert CliRunner().invoke(app, [*aar, "--allow-4k"]).exit_code == 0


def test_an_unknown_android_plugin_is_refused(place: Path) -> None:
    done = generate("--agp", "10.0")
    assert done.exit_code == ConfigError.exit_code
    assert "--agp: '10.0' is none of its values" in done.stderr
    assert "Give one of 9.4, 9.3" in done.stderr


def test_the_document(place: Path) -> None:
    document = json.loads(generate("--json").stdout)
    assert document == {
        "schema": "adt.generate",
        "schema_version": 1,
        "kind": "cpp",
        "out": "out",
        "name": "vision",
        "package": "com.example.vision",
        "abis": ["arm64-v8a"],
        "written": True,
        "models": [{"name": "detector", "class": "Detector", "stem": "detector", "abis": ["arm64-v8a"]}],
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
    ("arguments", "message"),
    [
        (["--class", "a=B", "--class", "a=C"], "--class is given twice for a"),
        (["--scale", "1,2"], "--scale takes one number"),
        (["--mean", "other=1"], "'other', which is not among"),
    ],
)
def test_wrong_options_have_a_remedy(place: Path, arguments: list[str], message: str) -> None:
    done = generate(*arguments)
    assert done.exit_code > 2 and message in done.stderr and "remedy: " in done.stderr, done.output
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
