"""Java and Kotlin for typed access to models, and a project that builds them for a JVM.

:func:`sources` is what Android's projects take, too. All that knows no model, the JNI library with it, is
plain source in ``cpp_runner/java/``, which projects get a copy of.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from typing import Any

from adt.errors import ConfigError
from adt.host.directories import resource
from adt.integrate.contents import cmake_files
from adt.integrate.model_api import EntryApi, ImageInput, ModelApi, Project, TensorApi
from adt.integrate.output import CopiedFile, OutputFile, TextFile
from adt.integrate.templates import comment, java_string, render


def files(project: Project) -> tuple[OutputFile, ...]:
    """Return a CMake project for a JVM: the sources, a test of each model, an example, models and bundles."""
    for bundle in project.bundles:
        if bundle.manifest.api_level is not None:
            raise ConfigError(
                f"the bundle {bundle.path} is for {bundle.manifest.platform}, and jni is for a JVM",
                remedy="For Android: adt generate aar, whose modules have the same Java, Kotlin and C++.",
            )
    models = [model.api for model in project.models]
    values = {
        "project": project,
        "models": models,
        "platforms": [bundle.manifest.platform for bundle in project.bundles],
        "upper": project.name.upper(),
        **_functions(),
    }
    tests = {model.cls: render("jni/ModelTest.java.j2", **values, model=model) for model in models}
    example = render("jni/Example.java.j2", **values, model=models[0])
    return (
        TextFile("CMakeLists.txt", render("jni/CMakeLists.txt.j2", **values), users=True),
        TextFile("adt.cmake", render("jni/adt.cmake.j2", **values)),
        TextFile("README.md", render("jni/README.md.j2", **values)),
        TextFile("example/Example.java", example, users=True),
        *(TextFile(f"test/{project.java_path}/{cls}Test.java", text) for cls, text in tests.items()),
        *sources(project, android=False),
        *runtime_files("runtime", "common", "jvm"),
        *cmake_files(project),
    )


def runtime_files(directory: str, *parts: str) -> tuple[CopiedFile, ...]:
    """Copy the directories *parts* of ``cpp_runner/java/``, over each other, below *directory*."""
    root = resource("cpp_runner") / "java"
    sources = {path.relative_to(root / part): path for part in parts for path in (root / part).rglob("*.*")}
    return tuple(CopiedFile(f"{directory}/{name.as_posix()}", path) for name, path in sorted(sources.items()))


def sources(project: Project, directory: str = "", *, android: bool) -> tuple[TextFile, ...]:
    """Write the classes in ``java/`` (*android*: with an application's methods), Kotlin in ``kotlin/``.

    Both are below *directory*, which ends with a slash.
    """
    values: dict[str, Any] = {"project": project, "android": android, **_functions()}
    models = [model.api for model in project.models]
    runtime = {"RunnerOptions", "loadOrClose", "runEntry"}.union(*map(_tensor_classes, models))
    kotlin = render("jni/Models.kt.j2", **values, models=models, imports=sorted(runtime))
    files = [TextFile(f"{directory}kotlin/{project.java_path}/Models.kt", kotlin)]
    for model in project.models:
        text = render(
            "jni/Model.java.j2",
            **values,
            model=model.api,
            packages=model.every_device,
            shows=model.api.takes_pictures,
            imports=_java_imports(model.api, android=android),
            details=_details(model.api),
            signature=_signature(model.api),
        )
        files.append(TextFile(f"{directory}java/{project.java_path}/{model.api.cls}.java", text))
    return tuple(files)


def _tensor_classes(model: ModelApi) -> set[str]:
    outputs = [tensor for entry in model.entries for tensor in entry.outputs]
    return {tensor.element.java_class for tensor in (*model.inputs, *outputs)}


def _java_imports(model: ModelApi, *, android: bool) -> list[str]:
    """Return the names of the runtime that the class of *model* uses."""
    names = {"AdtException", "NativeRunner", "RunnerInfo", "RunnerOptions", "Tensor"} | _tensor_classes(model)
    names |= {"PackagedModel"} if android else set()
    if model.takes_pictures:
        names |= {"ImageFiller", "PictureFit", "YuvFrame"} | ({"AndroidPictures"} if android else set())
    return sorted(names)


def _functions() -> dict[str, Callable[..., Any]]:
    return {
        "array_doc": array_doc,
        "channels": _channels,
        "extents": lambda tensor: "".join(f", {extent}" for extent in _extents(tensor, suffix="L")),
        "floats": lambda numbers: ", ".join(f"{number!r}f" for number in numbers),
        "javadoc": _javadoc,
        "levels": _levels,
        "picture_doc": _picture_doc,
        "picture_extents": lambda tensor: ", ".join(_extents(tensor, symbolic=1)),
        "shape_list": _shape_list,
        "single": _single,
        "tensor_doc": tensor_doc,
    }


def _single(entry: EntryApi) -> bool:
    """Return True if it takes one array and gives one, of known sizes."""
    return len(entry.inputs) == len(entry.outputs) == 1 and entry.inputs[0].static and entry.outputs[0].static


def tensor_doc(tensor: TensorApi) -> str:
    """Describe the tensor for people, on one line: name, type, shape, layout, normalisation."""
    return f"{tensor.name}: {array_doc(tensor)}"


def array_doc(tensor: TensorApi) -> str:
    """Describe the tensor as :func:`tensor_doc` does, without its name."""
    text = tensor.kind
    if tensor.image:
        text += f", {tensor.image.layout}, {_channels(tensor.image)}, {tensor.image.normalisation}"
    if tensor.element.dtype.startswith("uint"):
        text += f"; unsigned: Java's {tensor.element.java} holds the same bits"
    return text + "."


def _javadoc(text: str) -> str:
    """Escape any text for a Javadoc comment: no markup, no tag."""
    plain = html.escape(comment(text), quote=False)
    return plain.replace("@", "&#64;").replace("{", "&#123;")


def _channels(image: ImageInput) -> str:
    return {"RGB": "red, green, blue", "BGR": "blue, green, red", "GRAY": "grey"}[image.color]


def _picture_doc(tensor: TensorApi, what: str) -> str:
    """Describe for Javadoc how the input is filled from a picture."""
    assert tensor.image is not None
    return (
        f"Fill {tensor.java} from {what}, resized to {tensor.image.width} by {tensor.image.height} with a "
        f"filter that averages, in the model's order of axes and channels: {tensor.image.normalisation}."
    )


def _details(model: ModelApi) -> list[str]:
    details = []
    for entry in model.entries:
        inputs = " ".join(map(tensor_doc, entry.inputs)) or "nothing."
        details.append(f"{entry.java} (entry {entry.name}) takes {inputs}")
        details.append(f"{entry.java} gives {' '.join(map(tensor_doc, entry.outputs))}")
    return details


def _signature(model: ModelApi) -> str:
    """Return a Java expression of what NativeRunner.signature() gives for the model's package."""
    pieces = []
    for index, entry in enumerate(model.entries):
        begin = f"{'; ' if index else ''}{entry.name}("
        pieces += [begin, *_signature_of(entry.inputs), ") -> (", *_signature_of(entry.outputs), ")"]
    return "\n                    + ".join(map(java_string, pieces))


def _signature_of(tensors: tuple[TensorApi, ...]) -> list[str]:
    return [
        f"{', ' if i else ''}{tensor.name} {tensor.element.dtype}[{', '.join(_extents(tensor))}]"
        for i, tensor in enumerate(tensors)
    ]


def _extents(tensor: TensorApi, symbolic: int = -1, suffix: str = "") -> list[str]:
    """Write the extents as literals, those that are not known as *symbolic*."""
    return [f"{symbolic if isinstance(extent, str) else extent}{suffix}" for extent in tensor.shape]


def _shape_list(tensor: TensorApi) -> str:
    if not tensor.shape:
        return "Collections.<Long>emptyList()"
    return f"Collections.unmodifiableList(Arrays.asList({', '.join(_extents(tensor, suffix='L'))}))"


def _levels(image: ImageInput) -> list[float]:
    """Return scale, three means and three standard deviations."""
    mean = image.mean or (0.0,) * image.channels
    std = image.std or (1.0,) * image.channels
    widen = 3 // image.channels
    return [image.scale, *mean * widen, *std * widen]
