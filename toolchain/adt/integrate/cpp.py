"""A CMake project with a typed C++ class for each model, which needs no more than itself and a compiler.

The bundles and the models are copied into it, so that it can be kept, moved and built where
adt is not installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import adt
from adt.bundle.bundle import TargetBundle
from adt.bundle.platforms import PLATFORMS
from adt.host.directories import resource
from adt.integrate.contents import cmake_files
from adt.integrate.model_api import EntryApi, ModelApi, Project, TensorApi
from adt.integrate.output import CopiedFile, OutputFile, TextFile
from adt.integrate.templates import WIDTH, comment, cpp_string, filled, render


@dataclass(frozen=True)
class CMakePreset:
    platform: str
    title: str
    what: str
    """The bundle, for people."""
    tvm: str
    toolchain: str
    """File in ``cmake/toolchains/``; empty for this machine's own compiler."""
    cache: tuple[tuple[str, str], ...]


def files(project: Project) -> tuple[OutputFile, ...]:
    presets = tuple(_preset(bundle) for bundle in project.bundles)
    first = project.models[0].api
    values: dict[str, Any] = {
        "project": project,
        "upper": project.name.upper(),
        "bundles": presets,
        "platforms": [preset.platform for preset in presets],
        "host": any(preset.platform == "host" for preset in presets),
        "android": any(preset.platform.startswith("android-") for preset in presets),
        "runner_version": adt.__version__,
        "classes": [model.api.cls for model in project.models],
        "example": _example(project, first),
        "example_file": _example_file(project),
        "includes": [f"{project.name}/{model.api.stem}.h" for model in project.models],
        "signature": signature,
        "static": lambda entry: all(tensor.static for tensor in entry.inputs),
        "symbols": _symbols,
        "ones": _ones,
        "stem": _stem,
        "call": _call,
    }
    name = project.name

    def render_file(path: str, template: str, *, users: bool = False) -> TextFile:
        return TextFile(path, render(f"cpp/{template}", **values), users=users)

    return (
        render_file("CMakeLists.txt", "CMakeLists.txt.j2", users=True),
        render_file("adt.cmake", "adt.cmake.j2"),
        render_file("CMakePresets.json", "CMakePresets.json.j2"),
        render_file("README.md", "README.md.j2"),
        render_file(".gitignore", "gitignore.j2", users=True),
        render_file(f"cmake/{name}Config.cmake.in", "Config.cmake.in.j2"),
        render_file(f"cmake/{name}.pc.in", "package.pc.in.j2"),
        render_file("src/CMakeLists.txt", "src.CMakeLists.txt.j2", users=True),
        render_file("src/main.cc", "main.cc.j2", users=True),
        render_file("tests/CMakeLists.txt", "tests.CMakeLists.txt.j2"),
        render_file("tests/models_test.cc", "models_test.cc.j2"),
        *(
            TextFile(f"include/{name}/{model.api.stem}.h", header(project, model.api))
            for model in project.models
        ),
        *_toolchains(presets),
        *cmake_files(project),
    )


def header(project: Project, model: ModelApi) -> str:
    return render(
        "cpp/Model.h.j2",
        project=project,
        model=model,
        summary=f"The model {comment(model.source)} ({comment(model.precision)}) on one device.",
        example=_example(project, model),
        describe=_describe,
        alias=_alias,
        require_entry=_require_entry,
        require=_require,
        bind=_bind,
        image=_image,
        pictures=model.takes_pictures,
    )


def _preset(bundle: TargetBundle) -> CMakePreset:
    facts = bundle.manifest
    platform = PLATFORMS[facts.platform]
    title, toolchain, cache = f"Linux, {facts.abi}", f"{platform.name}.cmake", dict[str, str]()
    if platform.name == "host":
        title, toolchain = f"This kind of machine (Linux, {facts.abi})", ""
    elif platform.android:
        title, toolchain = f"Android, {facts.abi}", "android.cmake"
        stl = "c++_shared" if "lib/libc++_shared.so" in facts.files else "c++_static"
        level = f"android-{facts.api_level}"
        cache = {"ANDROID_ABI": facts.abi, "ANDROID_PLATFORM": level, "ANDROID_STL": stl}
    what = "OpenCL and CPU" if facts.options.opencl else "CPU"
    if facts.api_level is not None:
        what += f", API level {facts.api_level}"
    return CMakePreset(platform.name, title, what, facts.tvm.version, toolchain, tuple(cache.items()))


def _toolchains(presets: Sequence[CMakePreset]) -> tuple[CopiedFile, ...]:
    """Return adt's own toolchain files, which are plain CMake."""
    names = {preset.toolchain for preset in presets if preset.toolchain}
    if any(name.startswith("linux-") for name in names):
        names.add("gnu-cross.cmake")  # the others include it
    directory = resource("cmake_presets") / "toolchains"
    return tuple(CopiedFile(f"cmake/toolchains/{name}", directory / name) for name in sorted(names))


def signature(head: str, parameters: Sequence[str]) -> str:
    """Write a function's first line without its brace, broken as clang-format breaks it."""
    opened, line = f"{head}(", ", ".join(parameters)
    for text in (line, (",\n" + " " * len(opened)).join(parameters)):
        if max(map(len, f"{opened}{text}) {{".splitlines())) <= WIDTH:
            return f"{opened}{text})"
    return f"{opened}\n    {line})"


def _example(project: Project, model: ModelApi) -> tuple[str, ...]:
    entry = model.entries[0]
    cls = f"{project.name}::{model.cls}"
    lines = [f'{cls} {model.stem}("models/{model.stem}");']
    for tensor in entry.inputs:
        note = "" if _symbols(tensor) else "  // zeros"
        lines.append(f"{cls}::{entry.pascal}Inputs::{tensor.pascal}Tensor {tensor.cpp}{_ones(tensor)};{note}")
    given = f"{{{', '.join(tensor.cpp for tensor in entry.inputs)}}}" if entry.inputs else ""
    lines.append(f"const auto outputs = {model.stem}.{entry.cpp}({given});")
    if entry.outputs:
        lines.append(f"outputs.{entry.outputs[0].cpp}[0];  // the first element")
    return tuple(lines)


def _example_file(project: Project) -> str:
    """Return the name of one file that the example program reads."""
    entries = [(model.api, entry) for model in project.models for entry in model.api.entries if entry.inputs]
    return f"{_stem(*entries[0], entries[0][1].inputs[0])}.bin" if entries else "MODEL.INPUT.bin"


def _stem(model: ModelApi, entry: EntryApi, tensor: TensorApi) -> str:
    """Return the name of a file with one array, without its ending."""
    return ".".join([model.stem, *([entry.cpp] if entry.pascal else []), tensor.cpp])


def _symbols(tensor: TensorApi) -> str:
    """Return the symbolic extents, for a comment; empty without any."""
    return ", ".join(dict.fromkeys(comment(extent) for extent in tensor.shape if isinstance(extent, str)))


def _ones(tensor: TensorApi) -> str:
    """Return an expression for a tensor whose symbolic extents are all 1; empty without any."""
    if tensor.static:
        return ""
    return f"({{{', '.join('1' if isinstance(extent, str) else str(extent) for extent in tensor.shape)}}})"


def _alias(tensor: TensorApi) -> str:
    kind, sizes = ("Tensor", tensor.shape) if tensor.static else ("DynamicTensor", (len(tensor.shape),))
    parameters = ", ".join([tensor.element.cpp, *map(str, sizes)])
    return f"using {tensor.pascal}Tensor = adt::{kind}<{parameters}>;"


def _bind(entry: EntryApi) -> str:
    """Write the method that binds the entry's inputs, as clang-format sets it."""
    head = f"void bind(const {entry.pascal}Inputs& inputs) {{"
    statements = [f"runner_.Bind({entry.index}, {each.index}, inputs.{each.cpp});" for each in entry.inputs]
    line = f"{head} {statements[0]} }}"
    if len(statements) == 1 and len("  " + line) <= WIDTH:
        return line
    return "\n    ".join([head, *statements]) + "\n  }"


def _require_entry(entry: EntryApi) -> str:
    """Write the statement that checks that the package has the entry."""
    arguments = [str(entry.index), cpp_string(entry.name), str(len(entry.inputs)), str(len(entry.outputs))]
    return _call("runner_.RequireEntry", arguments)


def _require(method: str, entry: EntryApi, tensor: TensorApi) -> str:
    """Write the statement that checks that the package has the tensor."""
    extents = ", ".join("-1" if isinstance(extent, str) else str(extent) for extent in tensor.shape)
    texts = [cpp_string(tensor.name), cpp_string(tensor.element.dtype)]
    arguments = [str(entry.index), str(tensor.index), *texts, f"{{{extents}}}"]
    return _call(f"runner_.{method}", arguments)


def _call(function: str, arguments: Sequence[str], before: str = "    ") -> str:
    """Write a statement behind the blanks *before*, its arguments filled into lines."""
    return f"{function}({filled(arguments, ');', before + ' ' * len(f'{function}('))}"


def _describe(tensor: TensorApi) -> list[str]:
    """Describe the tensor for its user, a paragraph each."""
    extents = ", ".join(comment(str(extent)) for extent in tensor.shape)
    lines = [f"{comment(tensor.name)}: {tensor.element.dtype} [{extents}]."]
    if tensor.element.dtype == "float16":
        lines.append("Half precision: the bits of each number.")
    if image := tensor.image:
        size = f"{image.height} rows of {image.width} pixels"
        lines.append(f"A picture: {image.layout}, {size}, {image.color}, {image.normalisation}.")
    return lines


def _image(tensor: TensorApi) -> list[tuple[str, str]]:
    """Return the members of the input's ``adt::ImageFormat`` that have not their defaults."""
    image = tensor.image
    assert image is not None
    members = [
        ("layout", f"adt::ImageLayout::k{image.layout.capitalize()}"),
        ("color", f"adt::ImageColor::k{image.color.capitalize()}"),
        ("height", str(image.height)),
        ("width", str(image.width)),
    ]
    if image.scale != 1:
        members.append(("scale", f"1.0F / {_float(1 / image.scale)}"))
    for name, numbers in (("mean", image.mean), ("std", image.std)):
        if numbers is not None:
            members.append((name, f"{{{', '.join(map(_float, numbers))}}}"))
    return members


def _float(number: float) -> str:
    text = f"{number:.9g}"
    return f"{text}F" if "." in text or "e" in text else f"{text}.0F"
