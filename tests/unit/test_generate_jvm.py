"""Java, Kotlin and JNI: a runtime that is plain source, and what is generated for each model."""

import re
from pathlib import Path

import pytest

from adt.errors import ConfigError
from adt.host.directories import resource
from adt.integrate.jni import array_doc, files, sources, tensor_doc
from adt.integrate.model_api import ELEMENTS, Project
from adt.integrate.names import RUNTIME_PACKAGE
from adt.integrate.output import CopiedFile, TextFile
from adt.package.inputs.pictures import PictureOptions
from support.codegen.golden_projects import made_up_project
from support.standins.artefacts import entry, make_project, tensor

RUNTIME = resource("cpp_runner") / "java"
DETECT = [entry([tensor("images", (1, 3, 32, 32))], [tensor("scores", (1, "n"))])]


def one_model(directory: Path, java_package: str = "com.example.vision") -> Project:
    images = {"": PictureOptions(mean=(0.5,), std=(0.25,))}
    return make_project(directory, {"detector": DETECT}, ("host",), java_package=java_package, images=images)


def texts(described: Project, *, android: bool) -> dict[str, str]:
    return {file.path: file.text for file in sources(described, android=android)}


def test_the_runtime_is_the_same_for_all_models(tmp_path: Path) -> None:
    """Generate only in the user's package, beside an unchanged runtime: one application can have several projects."""

    def runtime(java_package: str) -> dict[str, Path]:
        generated = files(one_model(tmp_path / java_package, java_package))
        return {
            file.path: file.source
            for file in generated
            if isinstance(file, CopiedFile) and file.path.startswith("runtime/")
        }

    first = runtime("com.example.vision")
    assert first == runtime("org.other.sound")
    assert {path.removeprefix("runtime/") for path in first} == {
        path.relative_to(RUNTIME / part).as_posix()
        for part in ("common", "jvm")
        for path in (RUNTIME / part).rglob("*.*")
    }
    for path, text in texts(one_model(tmp_path / "own"), android=True).items():
        assert re.findall(r"^package (\S+?);?$", text, re.MULTILINE) == ["com.example.vision"], path


def test_no_application_has_the_package_of_the_runtime(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the runtime's own"):
        one_model(tmp_path, RUNTIME_PACKAGE)


def test_each_native_method_is_declared_and_defined_once() -> None:
    """Find each in C++ under the name that JNI makes of package, class and method."""
    declared = {
        f"{path.stem}_{name}"
        for path in RUNTIME.rglob("*.java")
        for name in re.findall(r"\bnative [\w\[\]]+ (\w+)\(", path.read_text())
    }
    prefix = f"Java_{RUNTIME_PACKAGE.replace('.', '_')}_"
    defined = []
    for path in RUNTIME.rglob("*.cc"):
        text = path.read_text()
        macro = re.search(rf"#define NATIVE.* {prefix}(\w+)_##method", text)
        defined += [
            f"{macro[1]}_{name}" for name in re.findall(r"^NATIVE\(\w+, (\w+)\)", text, re.M) if macro
        ]
        defined += re.findall(rf"{prefix}(\w+)\(", text)
    assert len(declared) > 40
    assert sorted(defined) == sorted(declared)


def test_android_is_in_few_files(tmp_path: Path) -> None:
    """Keep Android's classes in few files, so that the rest compiles without Android."""
    described = one_model(tmp_path)
    jvm, android = texts(described, android=False), texts(described, android=True)
    assert not [path for path, text in jvm.items() if "import android." in text or "Context context" in text]
    assert {Path(path).name for path, text in android.items() if "import android." in text} == {
        "Detector.java",
        "Models.kt",
    }
    for part in ("common", "jvm"):
        assert not [path for path in (RUNTIME / part).rglob("*.*") if "import android." in path.read_text()]
    assert "@WorkerThread\n    @NonNull public static" in android["java/com/example/vision/Detector.java"]


def test_each_element_type_has_a_class_of_the_runtime() -> None:
    """Compare the element type of its arrays with the table."""
    for element in ELEMENTS.values():
        text = (RUNTIME / f"common/java/org/adt/runtime/{element.java_class}.java").read_text()
        assert f"public {element.java}[] toArray()" in text


def test_only_what_is_used_is_imported(tmp_path: Path) -> None:
    """Lint of Android refuses the rest."""
    for path, text in texts(made_up_project(tmp_path, ("android-arm64-v8a",)), android=True).items():
        code = re.sub(r"^import .*$", "", text, flags=re.MULTILINE)
        for name in re.findall(rf"^import {RUNTIME_PACKAGE}\.(\w+)", text, re.MULTILINE):
            assert re.search(rf"\b{name}\b", code), (path, name)


def test_names_are_no_markup_in_documentation(tmp_path: Path) -> None:
    named = entry([tensor("<b>{@link x} @param */ &amp;", (1,))], [tensor("y", (1,))])
    described = make_project(tmp_path, {"detector": [named]}, ("host",))
    text = texts(described, android=False)["java/com/example/vision/Detector.java"]
    assert "&lt;b&gt;&#123;&#64;link x} &#64;param * / &amp;amp;: float32[1]." in text
    comments = "".join(re.findall(r"/\*\*.*?\*/", text, re.DOTALL))
    assert "<b>" not in comments and "{@link x}" not in comments


def test_android_is_another_kind(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        files(made_up_project(tmp_path, ("host", "android-arm64-v8a")))
    assert "adt generate aar" in refused.value.remedy


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
    generated_files = files(one_model(tmp_path))
    copied = {file.path for file in generated_files if isinstance(file, CopiedFile)}
    assert {f"models/host/detector/{name}" for name in ("mod.so", "mod.json", "mod.params")} <= copied
    assert "bundles/host/lib/libadt_runner.so" in copied
    assert "bundles/host/lib/cmake/adt_runner/adt_runnerConfig.cmake" in copied
    users = [file.path for file in generated_files if isinstance(file, TextFile) and file.users]
    assert users == ["CMakeLists.txt", "example/Example.java"]
