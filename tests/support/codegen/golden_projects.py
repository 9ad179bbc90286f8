"""Output of `adt generate` and `adt apk` for made-up packages, as text: tests/golden/generate/ has the
expected one.

A text that several kinds have is there once, and one that is nearly another as its differences. After a
change that is meant, look at the difference and take it over::

    PYTHONPATH=toolchain:tests python -m support.codegen.golden_projects && git diff tests/golden/generate
"""

import math
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path

from adt.host.directories import resource
from adt.integrate.android_versions import NEWEST, VERSIONS
from adt.integrate.apk import apk_entries, manifest_text
from adt.integrate.contents import BenchPlan, planned_models
from adt.integrate.model_api import (
    ELEMENTS,
    Project,
    ProjectModel,
    ReferenceOutput,
    ReferenceRun,
    TensorApi,
)
from adt.integrate.output import DataFile, TextFile
from adt.integrate.project import project
from adt.package.inputs.pictures import PictureOptions
from adt.package.manifest import Entry
from adt.verbs.generate import KINDS
from support.standins.artefacts import entry, make_app_bundle, make_typed_package, tensor

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "generate"
ANDROID = ("android-arm64-v8a", "android-x86_64")
PLATFORMS = {
    "cpp": ("linux-aarch64", "android-arm64-v8a"),
    "jni": ("host",),
    "aar": ANDROID,
    "android-app": ANDROID,
    "apk": ANDROID,
}
DETECTOR = (
    entry(
        [tensor("images", (1, 3, 32, 64))],
        [tensor("boxes", (1, 3, 4)), tensor("scores", (1, 3)), tensor("count", (), "int32")],
    ),
)
EVERYTHING = (
    entry(
        [tensor(f"in {dtype}", (2, "n"), dtype) for dtype in ELEMENTS],
        [tensor(f"out {dtype}", (2, 3), dtype) for dtype in ELEMENTS],
    ),
    entry([tensor("class", ("*/ n \\u000a", 3)), tensor("日本", (1,))], [tensor("class", (1,))], "encode"),
    entry([tensor('"; rm', (4,)), tensor("a-b", (4,)), tensor("a_b", (4,))], [tensor("$x", (4,))], "class"),
    entry([], [tensor("state", (1, 8), "float16")], "日本"),
)
PICTURES = PictureOptions(mean=(0.485, 0.456, 0.406), std=(0.25,))
HOSTILE = {
    "detector": DETECTOR,
    "my model-v1.0 (fp16)": EVERYTHING,
    "class": (entry([tensor("x", (1,))], [tensor("y", (1,))]),),
    "日本": (entry([tensor("photo", (1, 16, 16, 1), "uint8")], [tensor("y", (1,))]),),
    '"; rm': (entry([tensor('*/ system("x"); /*', (1,))], [tensor("${y}\n", (1,))]),),
}
"""Entries of each model of the project that is generated, by the model's name."""
_TYPED = {
    "my model-v1.0 (fp16)": (
        entry(
            [tensor("half", (2, "n"), "float16"), tensor("bytes", (2, "n"), "uint8")],
            [tensor("long", (2, 3), "int64"), tensor("flag", (2, 3), "bool")],
        ),
        entry([tensor("*/ n \\u000a", (4, 3))], [tensor("class", (1,))], "class"),
        entry([], [tensor("state", (1, 8), "float16")], "日本"),
    )
}
_APP = {"detector": DETECTOR}
SNAPSHOTS = {"cpp": _APP | _TYPED, "jni": _TYPED, "aar": _APP, "android-app": _APP, "apk": _APP}
"""Models of each kind's snapshot: the class of a model of pictures is that of an app, which has more methods."""
_PLUGINS = {"android-app-9.1": "9.1", "android-app-8.13": "8.13"}
"""The app once more, for plugins with no Kotlin but their own, and with none: what they change in its texts."""
DEFAULT_API_LEVEL = 28
"""Level that `adt build-target` builds for by default."""


def made_up_project(
    directory: Path,
    platforms: tuple[str, ...],
    models: dict[str, tuple[Entry, ...]] = HOSTILE,
    *,
    api_level: int = 24,
    java_package: str = "com.example.vision",
) -> Project:
    """Return the project of all *models*, whose packages and bundles are written below *directory*."""
    packages = [
        make_typed_package(
            directory / f"package-{number}-{platform}",
            name,
            entries,
            platform=platform,
            source=f"{name}*/.onnx",
        )
        for number, (name, entries) in enumerate(models.items())
        for platform in platforms
    ]
    bundles = [
        make_app_bundle(directory / f"bundle-{platform}", platform, api_level=api_level)
        for platform in platforms
    ]
    described = project(
        packages,
        bundles,
        java_package=java_package,
        classes={"detector": "Detector"} if "detector" in models else {},
        images={"detector": PICTURES} if "detector" in models else {},
        labels=('a "cat" */', "犬", "${dog}"),
    )
    return replace(described, models=tuple(map(_with_reference, described.models)))


def _with_reference(model: ProjectModel) -> ProjectModel:
    def zeros(each: TensorApi, size: int) -> bytes:
        return bytes(size * math.prod(extent if isinstance(extent, int) else 1 for extent in each.shape))

    main = next(each for each in model.api.entries if each.name == "main")
    outputs = tuple(ReferenceOutput(zeros(each, 8), 1e-4, 0) for each in main.outputs)
    run = ReferenceRun(
        "seed 0", "onnxruntime", tuple(zeros(each, each.element.size) for each in main.inputs), outputs
    )
    return replace(model, reference=run)


def texts(directory: Path) -> dict[str, str]:
    """Return the expected text of each file below :data:`GOLDEN`, by its path.

    Each kind has a listing of its files: whose they are, where copies come from, and which text of a
    kind before it a file equals. A text that is much like an earlier one of the same path is there as
    its differences.
    """
    snapshots: dict[str, str] = {}
    stored: dict[str, str] = {}
    for place in (*SNAPSHOTS, *_PLUGINS):
        kind = "android-app" if place in _PLUGINS else place
        parts = directory / place
        described = made_up_project(parts, PLATFORMS[kind], SNAPSHOTS[kind], api_level=DEFAULT_API_LEVEL)
        described = replace(described, android=VERSIONS[_PLUGINS[place]] if place in _PLUGINS else NEWEST)
        files = _apk(described) if kind == "apk" else _generated(kind, described)
        lines: list[str] = []
        copies: dict[str, list[str]] = {}
        differences = ""
        for path, contents, note in sorted(files, key=lambda file: file[0]):
            if isinstance(contents, Path):
                root = parts if contents.is_relative_to(parts) else resource("templates").parent
                into, name = path.rpartition("/")[::2]
                source = contents.relative_to(root).as_posix()
                if name == contents.name:
                    copies.setdefault(f"{into}/ = {source.removesuffix(name)}{note}", []).append(name)
                else:
                    lines.append(f"{path}{note} = {source}")
                continue
            if isinstance(contents, bytes):
                note += f", {len(contents)} bytes"
            elif contents in stored:
                note += f" as {stored[contents]}"
            else:
                if changes := _differences(contents, path, stored.items()):
                    differences += changes
                else:
                    snapshots[f"{place}/{path}.golden"] = contents
                stored[contents] = f"{place}/{path}.golden"
            lines.append(f"{path}{note}")
        lines += [f"{copied}: {' '.join(names)}" for copied, names in copies.items()]
        if place not in _PLUGINS:  # which have the same files
            snapshots[f"{place}/FILES.txt.golden"] = "".join(f"{line}\n" for line in sorted(lines))
        if differences:
            snapshots[f"{place}/DIFFERENCES.txt.golden"] = differences
    return snapshots


def _differences(text: str, path: str, before: Iterable[tuple[str, str]]) -> str:
    """Return how *text* differs from the text *before* it with the same *path* that is nearest, if that is little."""
    changes = [
        list(unified_diff(first.splitlines(), text.splitlines(), golden, path, n=0, lineterm=""))
        for first, golden in before
        if golden.partition("/")[2] == f"{path}.golden"
    ]
    nearest = min(changes, key=len, default=[])
    return "".join(f"{line}\n" for line in nearest) if 2 * len(nearest) < text.count("\n") + 8 else ""


def _generated(kind: str, described: Project) -> Iterator[tuple[str, str | Path | bytes, str]]:
    """Yield path, text, source or data, and a note of each file of a project."""
    for file in KINDS[kind](described):
        if isinstance(file, TextFile):
            yield file.path, file.text, " (the user's)" * file.users
        elif isinstance(file, DataFile):
            yield file.path, file.data, ""
        else:
            yield file.path, file.source, ""


def _apk(described: Project) -> Iterator[tuple[str, str | Path, str]]:
    """Yield the texts of an APK's project; its manifest is made binary by others."""
    yield "AndroidManifest.xml", manifest_text(described), ""
    digests = {bundle.manifest.abi: "0" * 64 for bundle in described.bundles}
    plan = BenchPlan(described.java_package, digests, planned_models(described)).text()
    for file in apk_entries(described, plan):
        yield file.name, _text(file.contents), f", at a multiple of {file.alignment}"


def _text(contents: Path | bytes) -> Path | str:
    """Return a class file in hexadecimal digits, other contents as text."""
    if isinstance(contents, Path):
        return contents
    return f"{contents.hex(' ', 4)}\n" if contents.startswith(b"dex\n") else contents.decode()


def expected() -> dict[str, str]:
    return {
        path.relative_to(GOLDEN).as_posix(): path.read_bytes().decode()
        for path in GOLDEN.rglob("*")
        if path.is_file()
    }


def main() -> None:
    """Write what is made now to tests/golden/generate/."""
    shutil.rmtree(GOLDEN, ignore_errors=True)
    with tempfile.TemporaryDirectory() as directory:
        for path, text in texts(Path(directory)).items():
            place = GOLDEN / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text.encode())


if __name__ == "__main__":
    main()
