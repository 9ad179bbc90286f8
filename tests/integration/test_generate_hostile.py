"""Generated code for names that are no identifiers, read by the compilers of its languages."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from adt.integrate.names import CPP, JAVA, KOTLIN
from adt.integrate.output import TextFile
from adt.verbs.generate import KINDS
from support.codegen.golden_projects import HOSTILE, PLATFORMS, made_up_project
from support.codegen.kotlin import JAVAC, compile_kotlin
from support.devices.programs import run_program
from support.sampling import matrix
from support.standins.artefacts import entry, tensor

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "cpp_runner/java"
ORDINARY = re.findall(
    r"\w+",
    """
    alignment args array aInfo assets b bind bitmap buffer bytes checkNotNull closed context count create data device
    directory element elements entry env error file from get handle height i image in index info input inputs it
    iterator j jni k kPackage layout length list load manifest mean message model models n name native needed offset
    options out output outputs params path pixels position raw result runner scale self set shape size source std
    stem stream str string tensor tensors text thread throwable to value values view width x y
    """,
)
TRAPS = {
    "all": (
        entry([tensor(name, (2,)) for name in ORDINARY], [tensor(name, ("n",)) for name in ORDINARY]),
        *(entry([tensor(name, (2,))], [tensor(name, (2,))], name) for name in ORDINARY),
    ),
    "picture": (
        entry([tensor("pixels", (1, 3, 32, 64)), tensor("image", (1, 32, 64, 1))], [tensor("i", (2,))]),
    ),
}
"""Names that templates, too, may give to variables, methods and constants."""
STRANGE = (
    *(
        "\\u000a",
        "\\u0022; system(1); //",
        'x"',
        "'",
        "*/ int i; /*",
        "//",
        "a\nb",
        "a\0b",
        "%s",
        "??/",
        "${x}",
        "$x",
        "$",
    ),
    *("`x`", "<x&y>", "{{ x }}", "{% x %}", "/* x", "#define x", "x\\", "]]>"),
    *("__", "__x", "_X", "x__y", "X_Y", "x y", "x.y", "x-y", "x/y", "com.example.vision.x", "adt::Runner"),
    *(
        "1",
        "007",
        "1x",
        "é",
        "e\u0301",
        "ß",
        "ı",
        "日本",
        "🐈",
        "🐈‍⬛",
        "\u202eabc",
        "\ufeffx",
        "x" * 5000,
        "y" * 5000,
    ),
    *(
        "fp16" * 40,
        "Tensor",
        "tensor",
        "TENSOR",
        "input_2",
        "input2",
        "Input 2",
        "INPUT__2",
        "null",
        "true",
        "NaN",
    ),
    *(
        "main",
        "value class",
        "record",
        "sealed",
        "permits",
        "data",
        "inline",
        "suspend",
        "field",
        "it",
        "__LINE__",
    ),
    *(
        "EOF",
        "NULL",
        "assert",
        "M_PI",
        "stdin",
        "final",
        "override",
        "import",
        "module",
        "co_await",
        "_Atomic",
    ),
)
KEYWORDS = sorted(CPP | JAVA | KOTLIN)
STRANGE_MODELS = {
    "keywords": (entry([tensor(n, (2,)) for n in KEYWORDS], [tensor(n, ("n",)) for n in KEYWORDS]),),
    "strange": (
        entry([tensor(n, (2,)) for n in STRANGE], [tensor(n, ("n",)) for n in reversed(STRANGE)]),
        *(entry([tensor(n, (2,))], [tensor(n, (2,))], n) for n in STRANGE if n != "main"),
    ),
    **{
        name: (entry([tensor(name, (1,))], [tensor(name, (1,))]),) for name in (*STRANGE[::3], *KEYWORDS[::9])
    },
}
"""Names of models, entries and tensors that are something else in a language, or equal once they are cleaned."""
INDIA = "in.co.example.fun"
"""Two keywords of Kotlin's, none of Java's."""
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write what each kind generates for the hostile models and those of TRAPS, without copies."""
    directory = tmp_path_factory.mktemp("generated")
    for kind in KINDS:
        write(kind, directory, HOSTILE | TRAPS)
    return directory


@pytest.fixture(scope="module")
def strange(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the kinds that hold all classes, in a package with an Indian name."""
    directory = tmp_path_factory.mktemp("strange")
    for kind in ("cpp", "jni"):
        write(kind, directory, STRANGE_MODELS, INDIA)
    return directory


def write(
    kind: str, directory: Path, models: dict[str, Any], java_package: str = "com.example.vision"
) -> None:
    described = made_up_project(
        directory / f"{kind}-from", PLATFORMS[kind], models, java_package=java_package
    )
    for file in KINDS[kind](described):
        if isinstance(file, TextFile):
            place = directory / kind / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(file.text)


def succeeds(*command: object) -> None:
    """Run a program that must work without a word."""
    done = run_program(*command)
    assert not (done.stdout + done.stderr).strip(), done


def cpp_files(directory: Path) -> Sequence[Path]:
    return sorted(path for path in directory.rglob("*") if path.suffix in (".cc", ".h"))


@pytest.mark.parametrize(("names", "compiler"), matrix(["projects", "strange"], ["g++", "clang++"]))
def test_cpp_compiles_without_a_warning(names: str, compiler: str, request: pytest.FixtureRequest) -> None:
    project = request.getfixturevalue(names) / "cpp"
    sources = [path for path in cpp_files(project) if path.suffix == ".cc"]
    assert {path.name for path in sources} == {"main.cc", "models_test.cc"}
    include = [f"-I{project / 'include'}", f"-I{ROOT / 'cpp_runner/include'}"]
    succeeds(compiler, "-std=c++17", *WARNINGS, "-fsyntax-only", *include, *sources)


def test_cpp_is_formatted(projects: Path) -> None:
    files = cpp_files(projects / "cpp")
    assert files
    style = f"--style=file:{ROOT / '.clang-format'}"
    succeeds(Path(sys.executable).with_name("clang-format"), style, "--dry-run", "--Werror", *files)


def compile_java(projects: Path, directory: Path) -> Path:
    runtime = [path for part in ("common", "jvm") for path in (RUNTIME / part).rglob("*.java")]
    sources = sorted([*(projects / "jni/java").rglob("*.java"), *runtime])
    assert len(sources) > len(HOSTILE) + len(runtime)
    succeeds(
        *(*JAVAC, "-Xlint:all", "-Werror", "--release", "11", "-encoding", "UTF-8"),
        *("-d", directory, *sources),
    )
    return directory


@pytest.mark.parametrize("names", ["projects", "strange"])
def test_java_compiles_without_a_warning(names: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    classes = compile_java(request.getfixturevalue(names), tmp_path)
    assert (classes / INDIA.replace(".", "/") / "Keywords.class").is_file() == (names == "strange")


@pytest.mark.nightly
@pytest.mark.parametrize("names", ["projects", "strange"])
def test_kotlin_compiles_without_a_warning(
    names: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    directory = request.getfixturevalue(names)
    sources = sorted([*(directory / "jni/kotlin").rglob("*.kt"), *RUNTIME.rglob("*.kt")])
    escaped = [source for source in sources if "package `in`.co.example.`fun`" in source.read_text()]
    assert bool(escaped) == (names == "strange")
    compile_kotlin(sources, tmp_path / "kotlin", classpath=[compile_java(directory, tmp_path / "java")])
