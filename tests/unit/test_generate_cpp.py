"""The C++ project: what it copies, its presets, and what its comments say of pictures."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from adt.bundle.bundle import BundleFile
from adt.errors import PackageError
from adt.integrate.cpp import WIDTH, files, signature
from adt.integrate.output import CopiedFile, TextFile
from adt.integrate.project import project
from adt.package.inputs.pictures import PictureOptions
from support.standins.artefacts import entry, make_app_bundle, make_project, make_typed_package, tensor

PHOTO = entry([tensor("photo", (1, 3, 32, 64))], [tensor("y", (1,))])


def generated(
    directory: Path, *platforms: str, images: PictureOptions | None = None
) -> dict[str, TextFile | CopiedFile]:
    """Return the files of a project with one model for *platforms*, by path."""
    pictures = {"": images} if images else None
    cpp_project = make_project(directory, {"photo": [PHOTO]}, platforms, api_level=29, images=pictures)
    return {file.path: file for file in files(cpp_project)}


def text(by_path: dict[str, TextFile | CopiedFile], path: str) -> str:
    file = by_path[path]
    assert isinstance(file, TextFile)
    return file.text


def test_a_bundle_without_a_cmake_package_is_refused(tmp_path: Path) -> None:
    bundle = make_app_bundle(tmp_path / "b", "host")
    older = dataclasses.replace(bundle, manifest=dataclasses.replace(bundle.manifest, build_files={}))
    package = make_typed_package(tmp_path / "p", "photo", [PHOTO], platform="host")
    with pytest.raises(PackageError, match="no CMake package") as refused:
        files(project([package], [older], java_package="com.example.vision"))
    assert "adt build-target --for host" in refused.value.remedy


def test_licences_travel_with_the_libraries_and_programs_stay(tmp_path: Path) -> None:
    bundle = make_app_bundle(tmp_path / "b", "host")
    some = BundleFile("", 0, ())
    facts = dataclasses.replace(
        bundle.manifest,
        files={**bundle.manifest.files, "bin/rtvm": some},
        licenses={"licenses/tvm/LICENSE": some},
        app_files={"lib/libadt_activity.so": some},
    )
    bundle = dataclasses.replace(bundle, manifest=facts)
    package = make_typed_package(tmp_path / "p", "photo", [PHOTO], platform="host")
    parts = files(project([package], [bundle], java_package="com.example.vision"))
    copied = {file.path.removeprefix("bundles/host/") for file in parts if file.path.startswith("bundles/")}
    assert copied == {
        "licenses/tvm/LICENSE", "lib/libadt_runner.so", "lib/libtvm_ffi.so", "lib/libtvm_runtime.so",
        *bundle.manifest.headers, *bundle.manifest.build_files,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "comment", "code"),
    [
        (PictureOptions(), "each level 0 to 255, times 0.00392157.", ["scale = 1.0F / 255.0F"]),
        (PictureOptions(scale=1), "each level 0 to 255 as it is.", []),
        (
            PictureOptions(mean=(0.5, 0.25, 0.125), std=(2,)),
            "each level 0 to 255, times 0.00392157, less 0.5, 0.25 and 0.125, divided by 2.",
            ["scale = 1.0F / 255.0F", "mean = {0.5F, 0.25F, 0.125F}", "std = {2.0F, 2.0F, 2.0F}"],
        ),
        (
            PictureOptions(scale=1, mean=(103.94,), color="BGR"),
            "BGR, each level 0 to 255, less 103.94.",
            ["color = adt::ImageColor::kBgr", "mean = {103.94F, 103.94F, 103.94F}"],
        ),
    ],
)
def test_comment_and_code_have_the_normalisation_that_was_given(
    tmp_path: Path, options: PictureOptions, comment: str, code: list[str]
) -> None:
    header = text(generated(tmp_path, "host", images=options), "include/vision/photo.h")
    plain = " ".join(header.replace("///", " ").split())
    assert comment in plain
    values = ("scale", "mean", "std")
    assert [line for line in code if f"format.{line};" not in header] == []
    names = [name for name in values if f"format.{name} =" in header]
    assert names == [name for name in values if any(line.startswith(name) for line in code)]


def test_no_line_of_a_signature_is_too_long() -> None:
    assert signature("void Run", ["int a", "int b"]) == "void Run(int a, int b)"
    aligned = signature("void " + "R" * 50, ["const Model& model", "const Directories& directories"])
    assert aligned == f"void {'R' * 50}(const Model& model,\n{' ' * 56}const Directories& directories)"
    for head in ("void " + "R" * length for length in range(95)):
        lines = f"{signature(head, ['int ' + 'a' * 30, 'const Directories& directories'])} {{".splitlines()
        assert max(map(len, lines)) <= WIDTH


def test_each_platform_has_its_preset_its_bundle_and_its_models(tmp_path: Path) -> None:
    by_path = generated(tmp_path, "host", "linux-armhf", "android-arm64-v8a")
    presets: dict[str, dict[str, Any]] = {
        preset["name"]: preset
        for preset in json.loads(text(by_path, "CMakePresets.json"))["configurePresets"]
    }
    assert list(presets) == ["base", "host", "linux-armhf", "android-arm64-v8a"]
    assert "toolchainFile" not in presets["host"]
    for name in ("linux-armhf", "android-arm64-v8a"):
        toolchain = presets[name]["toolchainFile"].removeprefix("${sourceDir}/")
        assert isinstance(by_path[toolchain], CopiedFile)
    assert isinstance(by_path["cmake/toolchains/gnu-cross.cmake"], CopiedFile), "the other one includes it"
    assert presets["android-arm64-v8a"]["cacheVariables"] == {
        "ANDROID_ABI": "arm64-v8a",
        "ANDROID_PLATFORM": "android-29",
        "ANDROID_STL": "c++_shared",
    }
    for name in ("host", "linux-armhf", "android-arm64-v8a"):
        assert f"bundles/{name}/lib/cmake/adt_runner/adt_runnerConfig.cmake" in by_path
        for file in ("mod.so", "mod.json", "mod.params"):
            assert isinstance(by_path[f"models/{name}/photo/{file}"], CopiedFile)
