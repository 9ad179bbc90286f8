"""Identifiers out of any text, and what becomes a project."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adt.errors import AdtError, ConfigError, InputError, MismatchError, PackageError
from adt.integrate.model_api import ELEMENTS, ImageInput
from adt.integrate.names import (
    CPP,
    JAVA,
    KOTLIN,
    LONGEST,
    NamePool,
    check_package,
    class_names,
    kotlin_package,
    method_names,
    project_name,
    tensor_names,
    words,
)
from adt.integrate.project import project
from adt.package.inputs.pictures import PictureOptions
from adt.package.manifest import TensorSpec
from support.standins.artefacts import entry, make_app_bundle, make_project, make_typed_package, tensor

KEYWORDS = CPP | JAVA | KOTLIN
ONE = (entry([tensor("x", (1,))], [tensor("y", (1,))]),)
PICTURE = (entry([tensor("photo", (1, 3, 32, 64))], [tensor("y", (1,))]),)


@pytest.mark.parametrize(
    ("text", "snake", "camel"),
    [
        ("input", "input", "input"),
        ("inputIds", "input_ids", "inputIds"),
        ("input.1", "input_1", "input1"),
        ("485", "input_485", "input485"),
        ("StatefulPartitionedCall:0", "stateful_partitioned_call_0", "statefulPartitionedCall0"),
        ("my model-v1.0 (fp16)", "my_model_v1_0_fp16", "myModelV10Fp16"),
        ("class", "class_input", "classInput"),
        ("fun", "fun_input", "funInput"),
        ("namespace", "namespace_input", "namespaceInput"),
        ("日本", "input_3", "input3"),
        ('"; rm', "rm", "rm"),
        ("", "input_3", "input3"),
        ("été", "ete", "ete"),
        ("_x_", "x", "x"),
        ("errno", "errno_input", "errnoInput"),
        ("std", "std_input", "stdInput"),
        ("wait", "wait_input", "waitInput"),
    ],
)
def test_names_of_tensors(text: str, snake: str, camel: str) -> None:
    name = tensor_names().give(text, "input", number=3)
    assert (name.snake, name.camel) == (snake, camel)
    assert name.pascal == camel[0].upper() + camel[1:]
    assert name.constant == snake.upper()


@given(
    st.lists(st.text() | st.sampled_from(["a_b", "a b", "aB", "AB", "ab", "class", "a1", "a_1", "日本", ""]))
)
def test_any_texts_become_different_identifiers(texts: list[str]) -> None:
    for names in (tensor_names(), method_names(), class_names("vision")):
        identifiers = [names.give(text, "thing", number=n) for n, text in enumerate(texts)]
        for form in ("snake", "camel", "pascal", "constant"):
            spelled = [getattr(name, form) for name in identifiers]
            assert len({spelling.lower() for spelling in spelled}) == len(spelled)
            assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", spelling) for spelling in spelled)
            assert not set(spelled) & KEYWORDS
            assert not any("__" in spelling or spelling.endswith("_") for spelling in spelled)


@settings(max_examples=20, deadline=None)
@given(st.text(min_size=200, alphabet=st.characters(codec="ascii")))
def test_long_names_end_after_a_word(text: str) -> None:
    assert len("_".join(words(text))) <= LONGEST + 1


def test_names_are_given_in_order_and_stay() -> None:
    names = NamePool()
    identifiers = [names.give(text, "input").snake for text in ("x", "X", "x", "x_input")]
    assert identifiers == ["x", "x_input", "x_2", "x_input_2"]


@pytest.mark.parametrize(
    "text",
    [
        "", "vision", "com", "Com.Example", "com.example.", ".com.example", "com..example", "com.1example",
        "com.example.class", "com.new.vision", "java.vision", "android.vision", "com.example.my-app",
        "com.exämple.vision", 'com.example."; rm', "com/example/vision", "com.example.vision\n", "com.example.aux",
        "com." + "a" * 120,
    ],
)  # fmt: skip
def test_bad_packages_are_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_package(text)
    assert "--package com.example.vision" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("com.example.vision", "vision"),
        ("com.example.my_vision", "my_vision"),
        ("com.example.app", "example_app"),
        ("com.example.auto", "example_auto"),
        ("com.example.namespace", "example_namespace"),
        ("com.example.vision__x_", "vision_x"),
        ("com.adt.runner", "adt_runner_project"),
    ],
)
def test_projects_are_called_by_the_last_part_unless_it_is_taken(text: str, name: str) -> None:
    check_package(text)
    assert project_name(text) == name


def test_a_model_for_two_platforms_is_one_class(tmp_path: Path) -> None:
    app = make_project(tmp_path, {"a model": ONE, "b": ONE}, ("android-arm64-v8a", "android-x86_64"))
    assert [(model.api.cls, [v.abi for v in model.variants]) for model in app.models] == [
        ("AModel", ["arm64-v8a", "x86_64"]),
        ("B", ["arm64-v8a", "x86_64"]),
    ]
    assert (app.name, app.java_path) == ("vision", "com/example/vision")


def test_a_model_of_the_usual_name_keeps_it(tmp_path: Path) -> None:
    app = make_project(tmp_path, {"model": ONE})
    assert [(model.api.cls, model.api.stem) for model in app.models] == [("Model", "model")]


def test_classes_files_targets_and_libraries_differ(tmp_path: Path) -> None:
    """Keep apart the library x_model of ``x`` and the target of the model x_model."""
    texts = ["x", "x_model", "X model model", "vision", "Detector", "detector", "AdtException", "R", "main"]
    app = make_project(tmp_path, dict.fromkeys(texts, ONE), classes={"detector": "Detector"})
    assert next(model.api.cls for model in app.models if model.api.name == "detector") == "Detector"
    classes = [model.api.cls.lower() for model in app.models]
    targets = [name for model in app.models for name in (model.api.stem, model.api.library)]
    for names in (classes, [*targets, app.name]):
        assert len(set(names)) == len(names)
    assert {"adtexception", "r", "main"}.isdisjoint(classes)


def test_one_package_takes_a_class_without_its_name(tmp_path: Path) -> None:
    app = make_project(tmp_path, {"x=y": ONE}, classes={"": "HTTPDetector"})
    assert (app.models[0].api.cls, app.models[0].api.stem) == ("HTTPDetector", "http_detector")


@pytest.mark.parametrize(
    "cls", ["", "detector", "A-B", "Class", "String", "Tensor", "Ünder", "A" * 49, "Vision", "A;", "OtherKt"]
)
def test_bad_classes_are_refused(tmp_path: Path, cls: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_project(tmp_path, {"m": ONE}, classes={"m": cls})
    assert "--class NAME=Detector" in caught.value.remedy


def test_options_for_a_package_that_is_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'other', which is not among"):
        make_project(tmp_path, {"m": ONE, "n": ONE}, classes={"other": "Detector"})
    with pytest.raises(ConfigError, match="'', which is not among"):
        make_project(tmp_path / "2", {"m": ONE, "n": ONE}, classes={"": "Detector"})
    with pytest.raises(ConfigError, match="'other', which is not among"):
        make_project(tmp_path / "3", {"m": ONE}, images={"other": PictureOptions(mean=(0.5,))})


def test_two_classes_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no class can be called Detector"):
        make_project(tmp_path, {"m": ONE, "n": ONE}, classes={"m": "Detector", "n": "Detector"})


def test_packages_for_several_devices_are_one_class(tmp_path: Path) -> None:
    platforms = ("android-arm64-v8a", "android-x86_64")
    packages = [
        make_typed_package(tmp_path / f"{device}{name}", "m", ONE, platform=name, device=device)
        for device in ("opencl", "cpu")
        for name in platforms
    ]
    taken = make_typed_package(tmp_path / "taken", "m cpu", ONE, platform=platforms[0])
    taken_too = make_typed_package(tmp_path / "too", "m cpu", ONE, platform=platforms[1])
    bundles = [make_app_bundle(tmp_path / f"b{name}", name) for name in platforms]
    app = project([taken, taken_too, *packages], bundles, java_package="com.example.vision")
    other, model = app.models
    (alternative,) = model.alternatives
    assert (other.api.cls, model.api.cls, alternative.api.cls) == ("MCpu", "M", "M")
    assert (model.device, alternative.device) == ("opencl", "cpu")
    assert [part.api.stem for part in app.packaged] == ["m_cpu", "m", alternative.api.stem]
    assert len({part.api.library for part in app.packaged}) == 3
    assert [v.package.path for v in alternative.variants] == [package.path for package in packages[2:]]
    with pytest.raises(MismatchError, match="bundle for android-x86_64 and no package of m"):
        project(packages[:3], bundles, java_package="com.example.vision")


def test_what_is_missing_or_given_twice_is_refused(tmp_path: Path) -> None:
    arm, x86 = "android-arm64-v8a", "android-x86_64"
    package = {
        name: make_typed_package(tmp_path / f"p{name}", "m", ONE, platform=name) for name in (arm, x86)
    }
    bundle = {name: make_app_bundle(tmp_path / f"b{name}", name) for name in (arm, x86)}
    other = make_typed_package(tmp_path / "other", "m", ONE, platform=x86, source="other.onnx")
    shape = make_typed_package(tmp_path / "shape", "m", PICTURE, platform=x86)
    aligned = make_typed_package(tmp_path / "aligned", "m", ONE, platform=arm, alignment=256)
    no_entry = make_typed_package(tmp_path / "none", "m", (), platform=arm)
    for packages, bundles, error, message in (
        ((), (bundle[arm],), ConfigError, "no package was given"),
        ((package[arm],), (), ConfigError, "no bundle was given"),
        ((package[arm],), (bundle[x86],), MismatchError, "bundle for android-x86_64 and no package of m"),
        ((package[arm], package[x86]), (bundle[arm],), MismatchError, "no bundle to run it"),
        ((package[arm], package[arm]), (bundle[arm],), ConfigError, "two packages of m"),
        ((package[arm],), (bundle[arm], bundle[arm]), ConfigError, "two bundles"),
        ((package[arm], other), (bundle[arm], bundle[x86]), MismatchError, "of different models"),
        ((package[arm], shape), (bundle[arm], bundle[x86]), MismatchError, "different inputs"),
        ((aligned,), (bundle[arm],), MismatchError, "aligned to 256"),
        ((no_entry,), (bundle[arm],), PackageError, "has no entry"),
    ):
        with pytest.raises(error, match=message) as caught:
            project(packages, bundles, java_package="com.example.vision")
        assert isinstance(caught.value, AdtError) and caught.value.remedy


def test_a_type_that_no_runner_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="input x of m has elements of bfloat16"):
        make_project(tmp_path, {"m": (entry([tensor("x", (1,), "bfloat16")], []),)})


def test_every_type_that_the_runner_takes_is_known() -> None:
    header = Path(__file__).parents[2] / "cpp_runner/include/adt/adt_runner.h"
    match = re.search(r"dtype;\s*/\* (.*?) \*/", header.read_text(), re.DOTALL)
    assert match is not None
    assert match.group(1) == "float16, float32, float64, int8 ... int64, uint8 ... uint64 or bool"
    kinds = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    assert set(ELEMENTS) == kinds | {"float16", "float32", "float64", "bool"}


def test_entries_and_tensors_of_one_model(tmp_path: Path) -> None:
    entries = (
        entry([tensor("run", (2, "n")), tensor("x", (2, 3), "float16")], [tensor("x", (1,))]),
        entry([tensor("er x", (1,))], [], "encode"),
        entry([tensor("x", (1,))], [], "encode_er"),
        entry([], [], "run"),
    )
    api = make_project(tmp_path, {"m": entries}).models[0].api
    assert [(point.cpp, point.java, point.pascal) for point in api.entries] == [
        ("run", "run", ""),
        ("encode", "encode", "Encode"),
        ("encode_er", "encodeEr", "EncodeEr"),
        ("run_entry", "runEntry", "RunEntry"),
    ]
    main = api.entries[0]
    assert [(spec.cpp, spec.bytes, spec.static) for spec in (*main.inputs, *main.outputs)] == [
        ("run_input", None, False),
        ("x", 12, True),
        ("x_output", 4, True),
    ]
    assert main.inputs[0].kind == "float32[2, n]"
    together = [point.pascal + t.pascal for point in api.entries for t in (*point.inputs, *point.outputs)]
    assert len(set(together)) == len(together)


@pytest.mark.parametrize(
    ("spec", "options", "image"),
    [
        (tensor("x", (1, 3, 32, 64)), {}, ImageInput("NCHW", 32, 64, 3, None, None, 1 / 255, "RGB")),
        (tensor("x", ("n", 32, 64, 1), "uint8"), {}, ImageInput("NHWC", 32, 64, 1, None, None, 1.0, "GRAY")),
        (
            tensor("x", (1, 32, 64, 3), "float16"),
            {"mean": (0.5,), "std": (1.0, 2.0, 3.0), "scale": 1.0, "color": "BGR"},
            ImageInput("NHWC", 32, 64, 3, (0.5, 0.5, 0.5), (1.0, 2.0, 3.0), 1.0, "BGR"),
        ),
        (tensor("x", (1, 3, 9, 3)), {}, None),
        (tensor("x", (1, 3, 9, 3)), {"layout": "NHWC"}, None),
        (tensor("x", (1, 3, 9, 5)), {"layout": "NCHW"}, None),
        (tensor("x", (2, 3, 32, 64)), {}, None),
        (tensor("x", (1, 4, 32, 64)), {}, None),
        (tensor("x", (1, 3, "h", "w")), {}, None),
        (tensor("x", (1, 3, 32, 64), "int64"), {}, None),
        (tensor("x", (3, 32, 64)), {}, None),
    ],
)
def test_inputs_that_take_a_picture(
    tmp_path: Path, spec: TensorSpec, options: dict[str, object], image: ImageInput | None
) -> None:
    others = {"nchw": PICTURE, "nhwc": (entry([tensor("x", (1, 32, 64, 3))], []),)}
    models = {"m": (entry([spec], []),), **others}
    app = make_project(tmp_path, models, images={"": PictureOptions(**options)})
    assert app.models[0].api.entries[0].inputs[0].image == image


def test_options_for_a_model_that_takes_no_picture_are_refused(tmp_path: Path) -> None:
    models = {"m": (entry([tensor("x", (1, 3, 9, 9))], []),), "other": PICTURE}
    with pytest.raises(InputError, match="m has no input for pictures with these options"):
        make_project(tmp_path, models, images={"m": PictureOptions(layout="NHWC")})


def test_options_of_a_package_win_over_those_of_all(tmp_path: Path) -> None:
    images = {"": PictureOptions(mean=(0.25,)), "b": PictureOptions(mean=(0.5,))}
    app = make_project(tmp_path, {"a": PICTURE, "b": PICTURE}, images=images)
    means = [model.api.entries[0].inputs[0].image.mean[0] for model in app.models]  # type: ignore[union-attr,index]
    assert means == [0.25, 0.5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mean": (1.0, 2.0)}, "--mean has 2 numbers"),
        ({"std": (0.0,)}, "divided by 0"),
        ({"scale": 0.0}, "divided by 0"),
        ({"layout": "CHWN"}, "--layout 'CHWN' is unknown"),
        ({"color": "GRAY"}, "cannot be GRAY"),
        ({"color": "CMYK"}, "--color 'CMYK' is unknown"),
    ],
)
def test_wrong_options_for_pictures_are_refused(
    tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make_project(tmp_path, {"m": PICTURE}, images={"": PictureOptions(**options)})


def test_normalising_pixels_that_stay_as_they_are_is_refused(tmp_path: Path) -> None:
    models = {"m": (entry([tensor("x", (1, 32, 64, 3), "uint8")], []),)}
    with pytest.raises(InputError, match="no model has an input for pictures"):
        make_project(tmp_path, models, images={"": PictureOptions(mean=(0.5,))})
    app = make_project(tmp_path / "2", models, images={"": PictureOptions(color="BGR")})
    assert app.models[0].api.entries[0].inputs[0].image == ImageInput(
        "NHWC", 32, 64, 3, None, None, 1.0, "BGR"
    )


def test_a_package_may_have_keywords_of_kotlin_s_in_it() -> None:
    """Quote keywords of Kotlin in a package's name, as all domains of India have one."""
    for name, kotlin in (("in.co.example", "`in`.co.example"), ("com.example.fun", "com.example.`fun`")):
        check_package(name)
        assert kotlin_package(name) == kotlin
    assert project_name("in.co.example") == "example" and project_name("com.example.in") == "example_in"
    for name in ("com.class.example", "com.example.native", "in.package"):
        with pytest.raises(ConfigError, match="reserved word"):
            check_package(name)
