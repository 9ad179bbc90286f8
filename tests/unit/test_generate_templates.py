"""Everything that `adt generate` writes: as it was when somebody looked at it, and never code of a name's."""

import dataclasses
import logging
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jinja2 import BaseLoader, Environment

from adt.host.directories import resource
from adt.integrate import templates
from adt.integrate.model_api import Project
from adt.integrate.names import Name, class_names, words
from adt.integrate.output import CopiedFile, OutputFile, TextFile, plan
from adt.integrate.project import project
from adt.integrate.templates import GENERATED
from adt.package.package import ModelPackage
from adt.verbs.generate import KINDS
from support.codegen.golden_projects import DETECTOR, PICTURES, PLATFORMS, expected, made_up_project, texts
from support.codegen.skeleton import skeleton
from support.standins.artefacts import entry, tensor

UPDATE = "if that is meant: PYTHONPATH=toolchain:tests python -m support.codegen.golden_projects, then look at git diff"
NO_COMMENTS = (".json", ".txt")
"""Kinds of files that cannot say who made them."""


def generated(kind: str, described: Project) -> tuple[OutputFile, ...]:
    return KINDS[kind](described)


class Recorded(BaseLoader):
    """A loader that knows which templates were asked for."""

    def __init__(self, inner: BaseLoader) -> None:
        self.inner = inner
        self.names: set[str] = set()

    def get_source(self, environment: Environment, template: str) -> Any:
        self.names.add(template)
        return self.inner.get_source(environment, template)


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], set[str]]:
    """Return the texts of the golden directory as they are made now, and the names of the templates that make them."""
    environment = templates._environment()
    assert environment.loader is not None
    environment.cache.clear()
    environment.loader = recorded = Recorded(environment.loader)
    files = texts(tmp_path_factory.mktemp("snapshots"))
    environment.loader = recorded.inner
    return files, recorded.names


def test_every_template_has_a_snapshot(snapshots: tuple[dict[str, str], set[str]]) -> None:
    root = resource("templates")
    _, names = snapshots
    assert {path.relative_to(root).as_posix() for path in root.glob("*/**/*.j2")} == names


def test_templates_make_what_they_made(snapshots: tuple[dict[str, str], set[str]]) -> None:
    files, golden = snapshots[0], expected()
    assert sorted(files) == sorted(golden), UPDATE
    for path, text in files.items():
        assert text == golden[path], f"{path}: {UPDATE}"


def test_a_text_of_several_kinds_is_stored_once() -> None:
    golden = expected()
    assert len(set(golden.values())) == len(golden)


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_well_formed_and_say_who_wrote_them(kind: str, tmp_path: Path) -> None:
    files = generated(kind, made_up_project(tmp_path, PLATFORMS[kind]))
    planned = plan(files, tmp_path / "out", kind=kind)  # refuses paths that leave it, or are there twice
    assert len(planned.actions) == len(files)
    for file in files:
        if isinstance(file, TextFile):
            skeleton(file.path, file.text)
            assert file.text.endswith("\n") and not file.text.endswith("\n\n"), file.path
            assert not re.search(r"[ \t]+$|\t", file.text, re.MULTILINE), file.path
            says = GENERATED.split(".")[0] in file.text[:1000]
            if PurePosixPath(file.path).suffix not in NO_COMMENTS:
                assert says is not file.users, file.path
        elif isinstance(file, CopiedFile):
            assert file.source.is_file(), file.path


@pytest.mark.parametrize("kind", ["jni", "android-app", "aar"])
def test_no_model_gets_the_name_of_a_class_beside_it(kind: str, tmp_path: Path) -> None:
    described = made_up_project(tmp_path, PLATFORMS[kind], {"detector": DETECTOR})
    for file in generated(kind, described):
        path = PurePosixPath(file.path)
        if path.suffix in (".java", ".kt") and "Detector" not in path.stem:
            assert class_names("vision").has(Name(tuple(words(path.stem)))), path


HARMLESS = "x"
JUNK = st.text(max_size=12).map(
    lambda text: "".join(c for c in text if not re.search("[A-Za-z0-9]", unicodedata.normalize("NFKD", c)))
)
"""Text that no identifier has anything of."""
NASTY = [
    '"; /*', "*/ /*", "*/", "\\", '\\"', "\n", "\r\n#", "${}", "$", "@@", ";", "]]>", "<!--", "-->", "'",
    "??/\n", "//", "\u2028", "\ud800", "`", "{{ }}", "{% %}",
]  # fmt: skip
TEXTS = JUNK | st.sampled_from(NASTY)
ANY = st.text(max_size=20) | st.sampled_from([*NASTY, "\\u000a evil();", "${evil()}", "$evil"])


@pytest.fixture(scope="module")
def harmless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Project]]:
    """Return the project of harmless names for each kind."""
    models = {
        "detector": (
            entry(
                [tensor("photo", (1, 3, 32, 64)), tensor("mask", (HARMLESS, 2))],
                [tensor("scores", (2,), "int64")],
            ),
            entry([tensor("token", (1, HARMLESS), "uint8")], [tensor("state", (1, 8), "float16")], "encode"),
        )
    }
    yield {
        kind: made_up_project(tmp_path_factory.mktemp("project"), platforms, models)
        for kind, platforms in PLATFORMS.items()
    }


def with_text(described: Project, junk: str, anything: str) -> Project:
    """Return the project with *junk* around every name and *anything* where no identifier is made of it."""

    def renamed(package: ModelPackage) -> ModelPackage:
        manifest = package.manifest
        entries = tuple(
            dataclasses.replace(
                function,
                name=function.name if function.name == "main" else f"{junk}{function.name}{junk}",
                inputs=tuple(
                    dataclasses.replace(
                        spec,
                        name=f"{junk}{spec.name}{junk}",
                        shape=tuple(extent if isinstance(extent, int) else anything for extent in spec.shape),
                    )
                    for spec in function.inputs
                ),
                outputs=tuple(
                    dataclasses.replace(spec, name=f"{junk}{spec.name}{junk}") for spec in function.outputs
                ),
            )
            for function in manifest.entries
        )
        return dataclasses.replace(
            package,
            manifest=dataclasses.replace(
                manifest,
                name=f"{junk}{manifest.name}{junk}",
                source=dataclasses.replace(manifest.source, file=anything),
                entries=entries,
            ),
        )

    again = project(
        [renamed(variant.package) for model in described.models for variant in model.variants],
        described.bundles,
        java_package=described.java_package,
        images={"": PICTURES},
        labels=[anything] * len(described.labels),
    )
    models = [
        dataclasses.replace(model, reference=before.reference)
        for model, before in zip(again.models, described.models, strict=True)
    ]
    return dataclasses.replace(again, models=tuple(models))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(junk='"; /*', anything="*/ evil(); /*")
@example(junk="\\", anything="\\u002a\\u002f evil();")
@example(junk="*/", anything='${evil()}"')
@example(junk="\n", anything="a\nb: evil\n")
@given(junk=TEXTS, anything=ANY)
def test_no_name_becomes_code(
    kind: str, harmless: dict[str, Project], caplog: pytest.LogCaptureFixture, junk: str, anything: str
) -> None:
    caplog.set_level(logging.ERROR, "adt.generate")  # pytest-xdist fails at a warning with half a character
    described = harmless[kind]
    before = {file.path: file for file in generated(kind, described)}
    after = {file.path: file for file in generated(kind, with_text(described, junk, anything))}
    assert set(before) == set(after)
    for path, file in after.items():
        plain = before[path]
        if isinstance(file, TextFile) and isinstance(plain, TextFile):
            assert skeleton(path, file.text) == skeleton(path, plain.text), path
