"""Java, Kotlin and the JNI library for typed access to models, and a project that builds them for a JVM.

:func:`sources` is what Android's projects take, too. The C++ part knows no model: its functions are
those of libadt_runner, described in :mod:`adt.integrate.native_methods`. What is typed is Java.
"""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adt.errors import ConfigError
from adt.integrate.contents import cmake_files
from adt.integrate.model_api import EntryApi, ImageInput, ModelApi, Project, TensorApi
from adt.integrate.native_methods import (
    BITMAP_METHOD,
    CLASS,
    IMAGE_CLASS,
    IMAGE_METHODS,
    NATIVE_METHODS,
    cpp_head,
    cpp_macro,
    java_declarations,
)
from adt.integrate.output import OutputFile, TextFile
from adt.integrate.templates import comment, java_string, render


@dataclass(frozen=True)
class TensorClass:
    """A Java class for the arrays of one or more element types."""

    cls: str
    value: str
    """Element type of the Java arrays that it copies from and to."""
    buffer: str
    """Class of ``java.nio`` whose objects hold the array."""
    size: int
    """Bytes of one element."""
    summary: str
    buffer_note: str = ""
    encode: str = ""
    """Java expression of an element in the buffer, from ``value``; empty: they are the same."""
    decode: str = ""
    """Java expression of a value from the ``buffer`` at its position."""

    @property
    def kotlin_array(self) -> str:
        """``FloatArray`` for ``float``."""
        return f"{self.value.capitalize()}Array"

    @property
    def view(self) -> str:
        """Call on a ByteBuffer that gives the buffer; empty for the ByteBuffer itself."""
        return "" if self.buffer == "ByteBuffer" else f".as{self.buffer}()"


_FLOAT = TensorClass("FloatTensor", "float", "FloatBuffer", 4, "An array of float32.")
_DOUBLE = TensorClass("DoubleTensor", "double", "DoubleBuffer", 8, "An array of float64.")
_HALF = TensorClass(
    "HalfTensor",
    "float",
    "ShortBuffer",
    2,
    "An array of float16; values are rounded to it and come from it as float.",
    ", as the bits of half-precision numbers",
    "toHalf(value)",
    "toFloat(buffer.get())",
)
_BOOLEAN = TensorClass(
    "BooleanTensor",
    "boolean",
    "ByteBuffer",
    1,
    "An array of bool.",
    ", one byte each, 0 or 1",
    "(byte) (value ? 1 : 0)",
    "buffer.get() != 0",
)
_BYTE = TensorClass("ByteTensor", "byte", "ByteBuffer", 1, "An array of int8, or of uint8 as the same bits.")
_SHORT = TensorClass(
    "ShortTensor", "short", "ShortBuffer", 2, "An array of int16, or of uint16 as the same bits."
)
_INT = TensorClass("IntTensor", "int", "IntBuffer", 4, "An array of int32, or of uint32 as the same bits.")
_LONG = TensorClass(
    "LongTensor", "long", "LongBuffer", 8, "An array of int64, or of uint64 as the same bits."
)
TENSOR_CLASSES = {
    "float16": _HALF,
    "float32": _FLOAT,
    "float64": _DOUBLE,
    "int8": _BYTE,
    "int16": _SHORT,
    "int32": _INT,
    "int64": _LONG,
    "uint8": _BYTE,
    "uint16": _SHORT,
    "uint32": _INT,
    "uint64": _LONG,
    "bool": _BOOLEAN,
}
"""By dtype."""


def library(project: Project) -> str:
    """Name of the JNI library, without ``lib`` and ``.so``."""
    return f"{project.name}_jni"


def files(project: Project) -> tuple[OutputFile, ...]:
    """A CMake project for a JVM: the sources, a test of each model, an example, models and bundles.

    Raises:
        ConfigError: a bundle is for Android, whose applications have other ways to their files.
        PackageError: a bundle is of an adt that had no CMake package in it.
    """
    for bundle in project.bundles:
        if bundle.manifest.api_level is not None:
            raise ConfigError(
                f"the bundle {bundle.path} is for {bundle.manifest.platform}, and jni is for a JVM",
                remedy="For Android: adt generate aar, whose module has the same Java, Kotlin and C++.",
            )
    models = [model.api for model in project.models]
    values = {
        "project": project,
        "library": library(project),
        "models": models,
        "platforms": [bundle.manifest.platform for bundle in project.bundles],
        "upper": project.name.upper(),
        **_functions(),
    }
    tests = [
        TextFile(
            f"test/{project.java_path}/{model.cls}Test.java",
            render("jni/ModelTest.java.j2", **values, model=model),
        )
        for model in models
    ]
    return (
        TextFile("CMakeLists.txt", render("jni/CMakeLists.txt.j2", **values), users=True),
        TextFile("adt.cmake", render("jni/adt.cmake.j2", **values)),
        TextFile("README.md", render("jni/README.md.j2", **values)),
        TextFile(
            "example/Example.java", render("jni/Example.java.j2", **values, model=models[0]), users=True
        ),
        *tests,
        *sources(project, android=False),
        *cmake_files(project),
    )


def sources(project: Project, *, android: bool) -> tuple[OutputFile, ...]:
    """The classes in ``java/`` and ``kotlin/``, the JNI library in ``cpp/``.

    Args:
        android: with the methods that load a model out of an application, which need Android's classes.
    """
    models = [model.api for model in project.models]
    pictures = any(map(takes_pictures, models))
    image_methods = (*IMAGE_METHODS, BITMAP_METHOD) if android else IMAGE_METHODS

    def render_file(path: str, template: str, *, users: bool = False, **more: Any) -> TextFile:
        values = {
            "project": project,
            "android": android,
            "library": library(project),
            "alignment": alignment(project),
            # androidx.annotation's, which a JVM's project does not have
            "nonnull": "@NonNull " if android else "",
            "nullable": "@Nullable " if android else "",
            "worker_thread": "@WorkerThread\n    " if android else "",
            "pictures": pictures,
        }
        return TextFile(path, render(f"jni/{template}.j2", **values, **_functions(), **more), users)

    def macro(cls: str) -> str:
        return cpp_macro(project.jni_prefix, cls)

    def java(name: str, **more: Any) -> TextFile:
        return render_file(f"java/{project.java_path}/{name}.java", f"{name}.java", **more)

    files = [
        java("AdtException"),
        java("NativeHandle"),
        java("NativeRunner", native_declarations=java_declarations(NATIVE_METHODS)),
        java("NativeTensor"),
        java("RunnerInfo"),
        java("RunnerOptions"),
        java("Tensor"),
        render_file("cpp/CMakeLists.txt", "cpp.CMakeLists.txt", users=True),
        render_file("cpp/adt.cmake", "cpp.android.cmake" if android else "cpp.adt.cmake"),
        render_file(f"cpp/{library(project)}.cc", "jni.cc", head=cpp_head, macro=macro(CLASS)),
        render_file(f"kotlin/{project.java_path}/Models.kt", "Models.kt", models=models),
    ]
    if android:
        files.append(java("PackagedModel"))
    if pictures:
        files += [
            java("ImageFiller", native_declarations=java_declarations(image_methods)),
            java("PictureFit"),
            java("YuvFrame"),
            render_file(
                f"cpp/{library(project)}_images.cc", "images.cc", head=cpp_head, macro=macro(IMAGE_CLASS)
            ),
        ]
    for kind in _tensor_classes(project):
        files.append(render_file(f"java/{project.java_path}/{kind.cls}.java", "TypedTensor.java", kind=kind))
    for model in project.models:
        path = f"java/{project.java_path}/{model.api.cls}.java"
        text: dict[str, Any] = {"about": _about(model.api), "signature": _signature(model.api)}
        more: dict[str, Any] = {"packages": model.every_device, "shows": takes_pictures(model.api)}
        files.append(render_file(path, "Model.java", model=model.api, **more, **text))
    return tuple(sorted(files, key=lambda file: file.path))


def alignment(project: Project) -> int:
    """Bytes that an array's address must be a multiple of to be used where it lies, with every package."""
    return max(variant.package.manifest.alignment for model in project.packaged for variant in model.variants)


def _functions() -> dict[str, Callable[..., Any]]:
    """Return the functions that the templates call."""
    return {
        "array_doc": array_doc,
        "channels": _channels,
        "cls": lambda tensor: _class_of(tensor).cls,
        "extents": _extents,
        "floats": _floats,
        "javadoc": _javadoc,
        "levels": _levels,
        "kotlin_array": lambda tensor: _class_of(tensor).kotlin_array,
        "picture_doc": _picture_doc,
        "picture_extents": lambda tensor: ", ".join(str(_extent(extent, 1)) for extent in tensor.shape),
        "shape_list": _shape_list,
        "single": _single,
        "tensor_doc": tensor_doc,
        "value": lambda tensor: _class_of(tensor).value,
    }


def _class_of(tensor: TensorApi) -> TensorClass:
    return TENSOR_CLASSES[tensor.element.dtype]


def _tensors(project: Project) -> list[TensorApi]:
    return [
        tensor
        for model in project.models
        for entry in model.api.entries
        for tensor in (*entry.inputs, *entry.outputs)
    ]


def _tensor_classes(project: Project) -> list[TensorClass]:
    used = {_class_of(tensor).cls: _class_of(tensor) for tensor in _tensors(project)}
    return [used[name] for name in sorted(used)]


def takes_pictures(model: ModelApi) -> bool:
    """Return True if any of its inputs takes pictures."""
    return any(tensor.image for entry in model.entries for tensor in entry.inputs)


def _single(entry: EntryApi) -> bool:
    """Return True if it takes one array and gives one, of known sizes."""
    return len(entry.inputs) == len(entry.outputs) == 1 and entry.inputs[0].static and entry.outputs[0].static


def tensor_doc(tensor: TensorApi) -> str:
    """One line for people: name, type, shape, layout, normalisation."""
    return f"{tensor.name}: {array_doc(tensor)}"


def array_doc(tensor: TensorApi) -> str:
    """Describe the tensor as :func:`tensor_doc` does, without its name."""
    text = tensor.kind
    if tensor.image:
        text += f", {tensor.image.layout}, {_channels(tensor.image)}, {_normalisation(tensor.image)}"
    if tensor.element.dtype.startswith("uint"):
        text += f"; unsigned: Java's {_class_of(tensor).value} holds the same bits"
    return text + "."


def _javadoc(text: str) -> str:
    """Any text for a Javadoc comment: no markup, no tag."""
    plain = html.escape(comment(text), quote=False)
    return plain.replace("@", "&#64;").replace("{", "&#123;")


def _channels(image: ImageInput) -> str:
    return {"RGB": "red, green, blue", "BGR": "blue, green, red", "GRAY": "grey"}[image.color]


def _normalisation(image: ImageInput) -> str:
    """``each level 0 to 255, times 0.00392157, less 0.485, 0.456 and 0.406, divided by 0.25``"""
    steps = []
    if image.scale != 1:
        steps.append(f"times {image.scale:g}")
    if image.mean is not None:
        steps.append(f"less {_by_channel(image.mean)}")
    if image.std is not None:
        steps.append(f"divided by {_by_channel(image.std)}")
    return ", ".join(["each level 0 to 255", *steps]) + ("" if steps else " as it is")


def _by_channel(numbers: tuple[float, ...]) -> str:
    words = [f"{number:g}" for number in (numbers if len(set(numbers)) > 1 else numbers[:1])]
    return " and ".join([*([", ".join(words[:-1])] if words[:-1] else []), words[-1]])


def _picture_doc(tensor: TensorApi, what: str) -> str:
    """Describe for Javadoc how the input is filled from a picture."""
    assert tensor.image is not None
    return (
        f"Fill {tensor.java} from {what}, resized to {tensor.image.width} by {tensor.image.height} with a "
        f"filter that averages, in the model's order of axes and channels: {_normalisation(tensor.image)}."
    )


@dataclass(frozen=True)
class _About:
    summary: str
    details: tuple[str, ...]


def _about(model: ModelApi) -> _About:
    details = []
    for entry in model.entries:
        inputs = " ".join(tensor_doc(tensor) for tensor in entry.inputs)
        outputs = " ".join(tensor_doc(tensor) for tensor in entry.outputs)
        details.append(f"{entry.java} (entry {entry.name}) takes {inputs or 'nothing.'}")
        details.append(f"{entry.java} gives {outputs}")
    return _About(f"The model {model.name}, made from {model.source}, in {model.precision}.", tuple(details))


def _signature(model: ModelApi) -> str:
    """Java expression of what NativeRunner.signature() gives for the model's package."""
    pieces = []
    for index, entry in enumerate(model.entries):
        pieces.append(f"{'; ' if index else ''}{entry.name}(")
        pieces += _signature_of(entry.inputs)
        pieces.append(") -> (")
        pieces += _signature_of(entry.outputs)
        pieces.append(")")
    return "\n                    + ".join(java_string(piece) for piece in pieces)


def _signature_of(tensors: tuple[TensorApi, ...]) -> list[str]:
    return [
        f"{', ' if i else ''}{tensor.name} {tensor.element.dtype}["
        + ", ".join(str(_extent(extent, -1)) for extent in tensor.shape)
        + "]"
        for i, tensor in enumerate(tensors)
    ]


def _extent(extent: int | str, symbolic: int) -> int:
    return symbolic if isinstance(extent, str) else extent


def _extents(tensor: TensorApi) -> str:
    """Arguments for a tensor's constructor, behind others."""
    return "".join(f", {_extent(extent, -1)}L" for extent in tensor.shape)


def _shape_list(tensor: TensorApi) -> str:
    if not tensor.shape:
        return "Collections.<Long>emptyList()"
    extents = ", ".join(f"{_extent(extent, -1)}L" for extent in tensor.shape)
    return f"Collections.unmodifiableList(Arrays.asList({extents}))"


def _levels(image: ImageInput) -> list[float]:
    """Scale, three means and three standard deviations."""
    mean = image.mean or (0.0,) * image.channels
    std = image.std or (1.0,) * image.channels
    widen = 3 // image.channels
    return [image.scale, *mean * widen, *std * widen]


def _floats(numbers: list[float]) -> str:
    return ", ".join(f"{number!r}f" for number in numbers)
