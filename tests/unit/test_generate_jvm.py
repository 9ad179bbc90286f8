"""The JNI layer: one description for two languages, formatted C++, and what Android's classes are confined to."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from adt.errors import ConfigError
from adt.integrate.jni import TENSOR_CLASSES, alignment, array_doc, files, sources, tensor_doc
from adt.integrate.model_api import Project
from adt.integrate.native_methods import (
    BITMAP_METHOD,
    CPP_TYPES,
    IMAGE_METHODS,
    NATIVE_METHODS,
    cpp_head,
    java_declarations,
)
from adt.integrate.output import CopiedFile, TextFile
from adt.integrate.project import project
from adt.package.inputs.pictures import PictureOptions
from support.codegen.golden_projects import PLATFORMS, made_up_project
from support.standins.artefacts import entry, make_app_bundle, make_typed_package, tensor

ALL_METHODS = (*NATIVE_METHODS, *IMAGE_METHODS, BITMAP_METHOD)
ROOT = Path(__file__).parents[2]
DETECT = [entry([tensor("images", (1, 3, 32, 32))], [tensor("scores", (1, "n"))])]


def one_model(directory: Path, java_package: str = "com.example.vision", **more: int) -> Project:
    return project(
        [make_typed_package(directory / "package", "detector", DETECT, platform="host", **more)],
        [make_app_bundle(directory / "bundle", "host")],
        java_package=java_package,
        images={"": PictureOptions(mean=(0.5,), std=(0.25,))},
    )


def texts(described: Project, *, android: bool) -> dict[str, str]:
    made = sources(described, android=android)
    return {file.path: file.text for file in made if isinstance(file, TextFile)}


@pytest.mark.parametrize("length", [3, 12, 22, 33, 60, 110])
def test_cpp_is_formatted_for_packages_of_any_length(tmp_path: Path, length: int) -> None:
    """The name that JNI makes of a package is in one macro, which is broken as clang-format breaks it."""
    words = ["a", "b" * (length - 2)]
    text = texts(one_model(tmp_path, ".".join(words)), android=False)
    for source in (path for path in text if path.endswith(".cc")):
        place = tmp_path / "jni.cc"
        place.write_text(text[source])
        style = f"--style=file:{ROOT / '.clang-format'}"
        done = subprocess.run(
            ["clang-format", style, "--dry-run", "--Werror", place],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_each_method_is_declared_and_defined_once(tmp_path: Path) -> None:
    text = texts(one_model(tmp_path), android=True)
    for cpp, java, methods in (
        ("vision_jni", "NativeRunner", NATIVE_METHODS),
        ("vision_jni_images", "ImageFiller", (*IMAGE_METHODS, BITMAP_METHOD)),
    ):
        defined = re.findall(r"^NATIVE\(\w+, (\w+)\)", text[f"cpp/{cpp}.cc"], re.MULTILINE)
        cls = text[f"java/com/example/vision/{java}.java"]
        declared = re.findall(r"native [\w\[\]]+ (\w+)\(", cls)
        assert sorted(defined) == sorted(declared) == sorted(method.name for method in methods)
        assert java_declarations(methods) in cls


def test_heads_have_both_languages_types() -> None:
    assert {one.type for method in ALL_METHODS for one in method.parameters} <= set(CPP_TYPES)
    assert cpp_head("run", "env") == "NATIVE(jint, run)(JNIEnv*, jobject, jlong runner, jint entry) {"
    assert cpp_head("createFrom").splitlines()[0].endswith("jint manifest_fd, jlong manifest_offset,")
    for line in java_declarations(ALL_METHODS).splitlines():
        assert len(line) <= 100, line


def test_android_is_in_few_files(tmp_path: Path) -> None:
    """Keep Android's classes in few files, so that the rest compiles without Android."""
    described = one_model(tmp_path)
    jvm, android = texts(described, android=False), texts(described, android=True)
    assert not [path for path, text in jvm.items() if "import android" in text]
    names = {Path(path).name for path, text in android.items() if "import android." in text}
    assert names == {
        "Detector.java",
        "ImageFiller.java",
        "Models.kt",
        "PackagedModel.java",
        "YuvFrame.java",
    }
    assert "@WorkerThread\n    @NonNull public static" in android["java/com/example/vision/Detector.java"]
    assert not [path for path, text in jvm.items() if re.search("@NonNull|@Nullable|@WorkerThread", text)]
    assert set(android) - set(jvm) == {"java/com/example/vision/PackagedModel.java"}
    assert "Context context" not in "".join(jvm.values())


def test_only_tensor_classes_that_are_used_are_there(tmp_path: Path) -> None:
    few = texts(one_model(tmp_path / "one"), android=False)
    named = {Path(path).stem for path in few if path.endswith("Tensor.java")}
    assert named == {"Tensor", "NativeTensor", "FloatTensor"}
    every = texts(made_up_project(tmp_path / "all", PLATFORMS["jni"]), android=False)
    named = {Path(path).stem for path in every if path.endswith("Tensor.java")}
    assert named == {"Tensor", "NativeTensor", *(kind.cls for kind in TENSOR_CLASSES.values())}


def test_arrays_are_aligned_as_the_package_needs(tmp_path: Path) -> None:
    assert alignment(one_model(tmp_path / "a", alignment=32)) == 32
    described = one_model(tmp_path / "b", alignment=64)
    assert "ALIGNMENT = 64;" in texts(described, android=False)["java/com/example/vision/NativeRunner.java"]


def test_documentation_says_shape_type_layout_and_normalisation(tmp_path: Path) -> None:
    (model,) = one_model(tmp_path).models
    (images,), (scores,) = model.api.entries[0].inputs, model.api.entries[0].outputs
    assert tensor_doc(images) == (
        "images: float32[1, 3, 32, 32], NCHW, red, green, blue, each level 0 to 255, times 0.00392157, "
        "less 0.5, divided by 0.25."
    )
    assert array_doc(scores) == "float32[1, n]."


def test_a_class_knows_its_package(tmp_path: Path) -> None:
    """Compare the package when it is loaded: extents as Java prints them, -1 for open ones."""
    text = texts(one_model(tmp_path), android=False)["java/com/example/vision/Detector.java"]
    literal = text[text.index("SIGNATURE =") : text.index(";", text.index("SIGNATURE ="))]
    pieces = re.findall(r'"([^"]*)"', literal)
    assert "".join(pieces) == "main(images float32[1, 3, 32, 32]) -> (scores float32[1, -1])"
    assert "float[] run(float[]" not in text  # the size of the output is not known


def test_the_project_has_bundle_models_and_files_of_the_users(tmp_path: Path) -> None:
    made = files(one_model(tmp_path))
    copied = {file.path for file in made if isinstance(file, CopiedFile)}
    assert {f"models/host/detector/{name}" for name in ("mod.so", "mod.json", "mod.params")} <= copied
    assert "bundles/host/lib/libadt_runner.so" in copied
    assert "bundles/host/lib/cmake/adt_runner/adt_runnerConfig.cmake" in copied
    users = [file.path for file in made if isinstance(file, TextFile) and file.users]
    assert users == ["CMakeLists.txt", "example/Example.java", "cpp/CMakeLists.txt"]


def test_names_are_no_markup_in_documentation(tmp_path: Path) -> None:
    named = entry([tensor("<b>{@link x} @param */ &amp;", (1,))], [tensor("y", (1,))])
    described = project(
        [make_typed_package(tmp_path / "package", "detector", [named], platform="host")],
        [make_app_bundle(tmp_path / "bundle", "host")],
        java_package="com.example.vision",
    )
    text = texts(described, android=False)["java/com/example/vision/Detector.java"]
    assert "&lt;b&gt;&#123;&#64;link x} &#64;param * / &amp;amp;: float32[1]." in text
    comments = "".join(re.findall(r"/\*\*.*?\*/", text, re.DOTALL))
    assert "<b>" not in comments and "{@link x}" not in comments


def test_android_is_another_kind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        files(made_up_project(tmp_path, ("host", "android-arm64-v8a")))
    assert "adt generate aar" in refused.value.remedy
