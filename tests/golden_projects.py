"""What `adt generate` makes of made-up packages, as text: tests/golden/generate/ has what it should be.

After a change that is meant, look at the difference and take it over::

    PYTHONPATH=toolchain python tests/golden_projects.py && git diff tests/golden/generate
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from adt.api.generate import KINDS, generator
from adt.host.resources import resource
from adt.integrate.describe import Project
from adt.integrate.elements import ELEMENTS
from adt.integrate.files import TextFile
from adt.integrate.project import project
from adt.model.inputs.picture import PictureOptions
from adt.model.package import Entry
from made_up_packages import entry, made_up_bundle, made_up_package, tensor

GOLDEN = Path(__file__).resolve().parent / "golden" / "generate"
LISTING = "FILES.txt"
PLATFORMS = {
    "cpp": ("linux-aarch64", "android-arm64-v8a"),
    "jni": ("host",),
    "android-app": ("android-arm64-v8a", "android-x86_64"),
    "aar": ("android-arm64-v8a",),
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
DEFAULT_API_LEVEL = 28
"""What `adt build-target` builds for, unless it is told otherwise."""
SNAPSHOTS = {
    "cpp": HOSTILE,
    "jni": HOSTILE,
    "android-app": {name: HOSTILE[name] for name in ("detector", "日本", '"; rm')},
    "aar": {"detector": DETECTOR},
}
"""Models of the snapshots: their Java and Kotlin is in that of ``jni``, and so not four times in all."""


def made_up_project(
    directory: Path,
    platforms: tuple[str, ...],
    models: dict[str, tuple[Entry, ...]] = HOSTILE,
    *,
    api_level: int = 24,
) -> Project:
    """The project of all *models*, whose packages and bundles are written below *directory*."""
    packages = [
        made_up_package(
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
        made_up_bundle(directory / f"bundle-{platform}", platform, api_level=api_level)
        for platform in platforms
    ]
    return project(
        packages,
        bundles,
        java_package="com.example.vision",
        classes={"detector": "Detector"} if "detector" in models else {},
        images={"detector": PICTURES} if "detector" in models else {},
        labels=('a "cat" */', "犬", "${dog}"),
    )


def texts(kind: str, directory: Path) -> dict[str, str]:
    """Every file of *kind*, by its path, and :data:`LISTING`, which has where each copy comes from."""
    described = made_up_project(directory, PLATFORMS[kind], SNAPSHOTS[kind], api_level=DEFAULT_API_LEVEL)
    found: dict[str, str] = {}
    lines = []
    for file in sorted(generator(kind)(described), key=lambda f: f.path):
        if isinstance(file, TextFile):
            found[file.path] = file.text
            notes = " (the user's)" * file.users + " (executable)" * file.executable
            lines.append(f"{file.path}{notes}")
        else:
            root = directory if file.source.is_relative_to(directory) else resource("templates").parent
            lines.append(f"{file.path} = {file.source.relative_to(root).as_posix()}")
    return found | {LISTING: "\n".join(lines) + "\n"}


def expected(kind: str) -> dict[str, str]:
    """What :func:`texts` should make."""
    root = GOLDEN / kind
    return {
        path.relative_to(root).as_posix().removesuffix(".golden"): path.read_bytes().decode()
        for path in root.rglob("*.golden")
    }


def main() -> None:
    """Write what is made now to tests/golden/generate/."""
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as directory:
            made = texts(kind, Path(directory))
        shutil.rmtree(GOLDEN / kind, ignore_errors=True)
        for path, text in made.items():
            place = GOLDEN / kind / f"{path}.golden"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text.encode())
        print(json.dumps({kind: len(made)}))  # noqa: T201


if __name__ == "__main__":
    main()
