"""`adt generate jni`: generated Java, Kotlin and C++, compiled, loaded in a JVM and run on models.

The JVM, CMake, the compilers, the bundle and the models are real. Android is a stand-in, in the test that says so.
"""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from test_cpp_runner import Built, Package, built, echo, symbolic
from test_runner_abi import on_opencl, recurrent, state_model, state_on_opencl

import adt
from adt.bundle.bundle import load_bundle
from adt.host.directories import resource
from adt.host.elf import read_elf
from adt.host.process import cmake, ninja
from adt.integrate import gradle, jni
from adt.integrate.model_api import Project as Described
from adt.integrate.names import RUNTIME_PACKAGE
from adt.integrate.output import DataFile, TextFile
from adt.integrate.project import project
from adt.options.resolve import load_settings
from adt.package.inputs.pictures import PictureOptions
from adt.package.package import load_package
from adt.verbs.reference_run import with_references
from support.codegen import image_reference as reference
from support.codegen.kotlin import BRIEF, JAVAC, class_path, compile_kotlin
from support.devices.programs import real_program, run_program
from support.models.published import named
from support.models.small import MAGIKA, small_model
from support.standins import android as standin_android
from support.standins import assets as standin_assets
from support.standins.artefacts import entry, make_app_bundle, make_typed_package, tensor

__all__ = ["built", "echo", "on_opencl", "recurrent", "state_on_opencl", "symbolic"]

CASES = Path(__file__).parents[1] / "support/codegen/jvm"
RUNTIME = resource("cpp_runner") / "java"
APP_CASES = CASES.parent / "app/AppCases.kt"
JAVA_PACKAGE = "com.example.vision"
PICTURES = PictureOptions(mean=(127.5,), std=(128.0,), scale=1.0, color="BGR")
CANCELLATION = f"{JAVA_PACKAGE}.CancellationCasesKt"
RESULTS = f"{RUNTIME_PACKAGE}.ResultCases"
CYCLES = 10_000
FIXED = ("-Xms64m", "-Xmx64m", "-XX:+AlwaysPreTouch", "-XX:-UseDynamicNumberOfCompilerThreads")
"""A JVM whose own memory does not grow."""
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror")
RNG = np.random.default_rng(5)


def run(*words: object, **environment: str) -> str:
    """Run a program that must work; return what it wrote."""
    done = run_program(*words, **environment)
    return done.stdout + done.stderr


@dataclass(frozen=True)
class Project:
    """A generated project, built."""

    path: Path
    """The project; its models are in ``models/host``."""
    data: Path
    """A directory for arrays."""
    bundle: Path
    android: list[Path]
    """The classes of the stand-ins for Android, and of the runtime for it."""

    @property
    def library(self) -> Path:
        return self.path / "build/cpp/libadt_jni.so"

    @property
    def jars(self) -> list[Path]:
        """The classes of the models, and the runtime."""
        return [self.path / f"build/{name}.jar" for name in ("vision", "adt_runtime")]

    @property
    def models(self) -> Path:
        return self.path / "models/host"

    def java(self, *words: object, path: Sequence[Path] = (), options: Sequence[str] = ()) -> str:
        """Run a class on the generated ones, with JNI checked; there may be no warning."""
        output = self.java_with_opencl(*words, path=path, options=options)
        assert "warning" not in output.lower(), output
        return output

    def java_with_opencl(
        self, *words: object, path: Sequence[Path] = (), options: Sequence[str] = (), **environment: str
    ) -> str:
        """Run Java where TVM warns of a CPU's driver, and the JVM of that driver's signal handlers."""
        checks = ["-Xcheck:jni", "-Xmx128m", *BRIEF]
        output = run(
            "java", *checks, *options, f"-Djava.library.path={self.library.parent}",
            "-cp", class_path(*path, *self.jars, self.path / "build/vision_test.jar", self.data), *words,
            **environment,
        )  # fmt: skip
        assert "WARNING" not in output, output  # as -Xcheck:jni has it
        return output

    def test(self, cls: str) -> str:
        """Run the generated test of a model on the arrays in :attr:`data`."""
        stem = cls.lower()
        return self.java(f"{JAVA_PACKAGE}.{cls}Test", self.models / stem, self.data)


@pytest.fixture(scope="module")
def packages(
    echo: Package, recurrent: Package, symbolic: Package, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, ...]:
    """Compile two trained models, and made-up ones with all types, several entries and open extents."""
    place = tmp_path_factory.mktemp("jni")
    models = {
        "magika": Path(shutil.copy(MAGIKA, place / "magika.onnx")),
        "onet": Path(shutil.copy(named("mtcnn-onet").path(), place / "onet.onnx")),
        "small": small_model(place / "small.onnx"),
        "state": state_model(place / "state.onnx"),
    }
    for name, model in models.items():
        adt.compile(model, out=place / name, platform="host")
    return (*(place / name for name in models), echo.path, recurrent.path, symbolic.path)


@pytest.fixture(scope="module")
def generated(built: Built, packages: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Generate and build the project as its README says."""
    path = tmp_path_factory.mktemp("generated") / "vision"
    adt.generate(
        "jni",
        packages,
        out=path,
        java_package=JAVA_PACKAGE,
        bundles=[built.installed],
        classes={"magika": "Detector", "onet": "Face"},
        images={"onet": PICTURES},
    )
    warnings = "-DCMAKE_CXX_FLAGS=-Werror"
    run(
        cmake().path,
        "-S",
        path,
        "-B",
        path / "build",
        "-G",
        "Ninja",
        warnings,
        f"-DCMAKE_MAKE_PROGRAM={ninja().path}",
    )
    built_ = run(cmake().path, "--build", path / "build")
    assert "warning" not in built_, built_
    data = tmp_path_factory.mktemp("data")
    cases = [CASES / f"{name}Cases.java" for name in ("Runner", "Result")]
    project = Project(path, data, built.installed, android_classes(tmp_path_factory.mktemp("android")))
    run(*JAVAC, "-Xlint:all", "-cp", class_path(*project.jars), "-d", data, *cases)
    return project


@pytest.fixture(scope="module")
def kotlin(generated: Project, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the class path of the generated Kotlin and of its test cases."""
    sources = [*generated.path.rglob("kotlin/**/*.kt"), *CASES.glob("*.kt")]
    return compile_kotlin(sources, tmp_path_factory.mktemp("kotlin"), classpath=generated.jars)


def test_the_projects_own_tests_pass(generated: Project) -> None:
    ctest = Path(cmake().path).with_name("ctest")
    output = run(ctest, "--test-dir", generated.path / "build", "--output-on-failure")
    assert re.search("100% tests passed.* out of 7", output), output


def test_the_example_runs_from_the_install_tree(generated: Project, tmp_path: Path) -> None:
    run(cmake().path, "--install", generated.path / "build", "--prefix", tmp_path / "out")
    moved = tmp_path / "elsewhere"
    (tmp_path / "out").rename(moved)
    classes = class_path(*(moved / "share/java").iterdir(), generated.path / "build/vision_example.jar")
    output = run(
        "java", f"-Djava.library.path={moved / 'lib'}", "-cp", classes,
        "Example", moved / "share/vision/models/detector",
    )  # fmt: skip
    assert "magika on cpu" in output
    assert "target_label float32[1, 214]" in output
    assert read_elf(moved / "lib/libadt_jni.so").runpath == "$ORIGIN"


def test_a_trained_model_matches_onnxruntime(generated: Project) -> None:
    tokens = RNG.integers(0, 257, (1, 2048), dtype=np.int32)
    tokens.tofile(generated.data / "run.input0.bin")
    assert generated.test("Detector").endswith("passed\n")
    scores = np.fromfile(generated.data / "run.output0.bin", np.float32).reshape(1, 214)
    (expected,) = onnxruntime.InferenceSession(MAGIKA).run(None, {"bytes": tokens})
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-6)


def test_everything_else(generated: Project) -> None:
    """Run the cases of RunnerCases.java; of a picture, compare what the model took and gave."""
    data = generated.data
    picture = RNG.integers(0, 256, (48, 48, 3), dtype=np.uint32)
    alpha = RNG.integers(0, 256, (48, 48), dtype=np.uint32)
    pixels = alpha << 24 | picture[..., 0] << 16 | picture[..., 1] << 8 | picture[..., 2]
    pixels.astype("<u4").tofile(data / "pixels.bin")
    numbers = RNG.standard_normal(3000) * np.exp2(RNG.uniform(-30, 20, 3000))
    ties = np.arange(0x3C00, 0x4400, dtype=np.uint16).view(np.float16).astype(np.float64) + 2.0**-11
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        65519.996,
        65520.0,
        -65504.0,
        2.0**-24,
        2.0**-25,
        2.0**-25 * 1.01,
    ]
    floats = np.concatenate([numbers, ties, special]).astype(np.float32)
    floats.tofile(data / "floats.bin")

    assert generated.java("RunnerCases", "everything", generated.models, data).endswith("done\n")

    taken = np.fromfile(data / "picture.bin", np.float32).reshape(1, 3, 48, 48)
    expected = (picture[..., ::-1].astype(np.float32) - 127.5) / 128
    np.testing.assert_allclose(taken[0], expected.transpose(2, 0, 1), atol=1e-6)
    session = onnxruntime.InferenceSession(named("mtcnn-onet").path())
    outputs = session.run(None, {session.get_inputs()[0].name: taken})
    values = np.fromfile(data / "face.bin", np.float32)
    np.testing.assert_allclose(values, outputs[0].ravel(), rtol=1e-3, atol=1e-5)

    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    np.testing.assert_array_equal(
        np.fromfile(data / "from_halves.bin", np.float32), halves.astype(np.float32)
    )
    with np.errstate(over="ignore"):
        rounded = floats.astype(np.float16)
    found_halves = np.fromfile(data / "halves.bin", np.float16)
    np.testing.assert_array_equal(found_halves, rounded)
    np.testing.assert_array_equal(np.signbit(found_halves), np.signbit(rounded))


def test_projects_share_a_runtime_in_one_program(generated: Project, small: Path, tmp_path: Path) -> None:
    """Load a class of another project, with a Java package of its own, beside those of the first."""
    other = project(
        [load_package(small)],
        [load_bundle(generated.bundle)],
        java_package="org.other.sound",
        classes={"": "Other"},
    )
    annotations = RUNTIME / "jvm/annotations"
    java = [*write_java(other, tmp_path, android=False), CASES / "SharedRuntime.java"]
    path = class_path(*generated.jars)
    run(*JAVAC, "-Xlint:all", "-cp", path, "-sourcepath", annotations, "-d", tmp_path / "classes", *java)
    assert (
        generated.java("SharedRuntime", generated.models / "small", path=[tmp_path / "classes"]) == "done\n"
    )


def test_outputs_are_where_the_run_left_them(generated: Project) -> None:
    """Compare addresses and buffers, which show that there is no copy."""
    assert generated.java(RESULTS, "everything", generated.models).endswith("done\n")


def test_outputs_on_opencl_are_read_once(generated: Project, state_on_opencl: Path, tmp_path: Path) -> None:
    models, own = state_on_opencl.parent, {"POCL_CACHE_DIR": str(tmp_path / "pocl")}
    assert "done\n" in generated.java_with_opencl(RESULTS, "opencl", models, generated.models, **own)


def test_outputs_that_are_closed_or_dropped_leave_nothing(generated: Project) -> None:
    check_nothing_grows(generated.java(RESULTS, "cycles", generated.models, 4 * CYCLES, options=FIXED))


def test_the_build_of_programs_is_reported(generated: Project, on_opencl: Path, tmp_path: Path) -> None:
    models, own = on_opencl.parent, {"POCL_CACHE_DIR": str(tmp_path / "pocl")}
    output = generated.java_with_opencl("RunnerCases", "buildProgress", models, tmp_path, **own)
    assert "done\n" in output


def test_a_package_whose_device_is_absent_gives_way_to_the_next(
    generated: Project, small: Path, on_opencl: Path, tmp_path: Path
) -> None:
    models, data = on_opencl.parent, tmp_path / "data"
    shutil.copytree(small, data / "small")
    none = {"OCL_ICD_VENDORS": str(tmp_path / "none"), "OCL_ICD_FILENAMES": ""}
    assert "done\n" in generated.java_with_opencl("RunnerCases", "devices", models, data, **none)


def test_pixels_of_every_kind(tmp_path: Path) -> None:
    """Vary types, layouts, channels and normalization; pixels, and direct buffers in place of a camera's."""
    kinds = {
        "float planes": ((1, 3, 10, 12), "float32", PictureOptions(mean=(0.5, 0.25, 0.1), std=(0.2,))),
        "half colors": ((1, 10, 12, 3), "float16", PictureOptions(color="BGR")),
        "float gray": ((1, 1, 10, 12), "float32", PictureOptions(scale=1.0)),
        "levels": (("n", 10, 12, 3), "uint8", PictureOptions()),
    }
    models = [
        make_typed_package(
            tmp_path / name, name, [entry([tensor("photo", shape, dtype)], [])], platform="host"
        )
        for name, (shape, dtype, _) in kinds.items()
    ]
    described = project(
        models,
        [make_app_bundle(tmp_path / "bundle", "host")],
        java_package=JAVA_PACKAGE,
        images={name: options for name, (_, _, options) in kinds.items()},
    )
    java = write_java(described, tmp_path / "java", android=False)
    java += [path for part in ("common", "jvm") for path in (RUNTIME / part).rglob("*.java")]
    java.append(CASES / "PictureCases.java")
    run(*JAVAC, "-Xlint:all", "-Werror", "-d", tmp_path / "classes", *java)

    picture = RNG.integers(0, 256, (10, 12, 3), dtype=np.uint32)
    pixels = 0x7F << 24 | picture[..., 0] << 16 | picture[..., 1] << 8 | picture[..., 2]
    pixels.astype("<u4").tofile(tmp_path / "pixels.bin")
    run(
        "g++", "-std=c++17", "-O3", *WARNINGS, "-shared", "-fPIC", f"-I{resource('cpp_runner') / 'include'}",
        *(f"-isystem{path}" for path in jni_includes()),
        RUNTIME / "common/cpp/images.cc", "-o", tmp_path / "libadt_jni.so",
    )  # fmt: skip
    chroma = RNG.integers(0, 256, (2, 90, 160), dtype=np.uint8)
    luma = RNG.integers(0, 256, (180, 320), dtype=np.uint8)
    luma.tofile(tmp_path / "luma.bin")
    chroma.transpose(1, 2, 0)[..., ::-1].tofile(tmp_path / "chroma.bin")  # as NV21
    output = run(
        "java", "-Xcheck:jni", f"-Djava.library.path={tmp_path}",
        "-cp", tmp_path / "classes", "PictureCases", tmp_path,
    )  # fmt: skip
    assert output == "done\n"

    def read(cls: str, dtype: type, *shape: int) -> NDArray[Any]:
        return np.fromfile(tmp_path / f"{cls}.bin", dtype).reshape(shape).astype(np.float64)

    levels = picture.astype(np.float64)
    planes = ((levels / 255 - [0.5, 0.25, 0.1]) / 0.2).transpose(2, 0, 1)
    np.testing.assert_allclose(read("FloatPlanes", np.float32, 3, 10, 12), planes, atol=1e-5)
    np.testing.assert_allclose(read("HalfColors", np.float16, 10, 12, 3), levels[..., ::-1] / 255, atol=5e-4)
    gray = levels @ [0.299, 0.587, 0.114]
    np.testing.assert_allclose(read("FloatGray", np.float32, 10, 12), gray, atol=1e-3)
    np.testing.assert_array_equal(read("Levels", np.uint8, 10, 12, 3), levels)

    frame = reference.Yuv(luma, chroma[0], chroma[1])
    expected = reference.levels(
        frame,
        reference.Format(10, 12, dtype="uint8"),
        reference.Placement("letterbox", 90, (10, 20, 200, 101)),
    )
    assert np.abs(read("Camera", np.uint8, 10, 12, 3) - expected).max() < 1
    turned = np.rot90(levels, 2)
    np.testing.assert_array_equal(read("Turned", np.uint8, 10, 12, 3), turned)


def android_classes(directory: Path) -> list[Path]:
    """Compile the stand-ins for Android, and the runtime against them."""
    framework = standin_android.compile_classes(directory / "framework", real=False)
    running = standin_assets.compile_classes(directory / "running", framework)
    java = [path for part in ("common", "android") for path in (RUNTIME / part).rglob("*.java")]
    lint = ("-Xlint:all", "-Werror")
    run(*JAVAC, *lint, "-cp", class_path(running, framework), "-d", directory / "runtime", *java)
    return [running, directory / "runtime", framework]


def write_java(described: Described, directory: Path, *, android: bool) -> list[Path]:
    """Write the generated classes below *directory*."""
    write_sources(described, directory, "java/", android=android)
    return [*(directory / "java").rglob("*.java")]


def write_sources(described: Described, directory: Path, *parts: str, android: bool = True) -> None:
    """Write the generated sources of the directories *parts* below *directory*."""
    for file in jni.sources(described, android=android):
        if file.path.startswith(parts):
            place = directory / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(file.text)


def check_nothing_grows(output: str) -> None:
    """Compare what the process held after each quarter; in the first half JVM and runtime allocate what they keep."""
    lines = [line.split()[1:] for line in output.splitlines() if line.startswith("holds ")]
    usage = [{kind: int(number) for kind, number in (pair.split("=") for pair in line)} for line in lines]
    assert len(usage) == 4
    before, after = usage[1], usage[3]
    assert after["fds"] == before["fds"]
    assert after.get("tasks", 0) <= before.get("tasks", 0) + 1  # a JVM may start one of its own
    assert after["maps"] <= before["maps"] + 5
    assert after["kb"] <= before["kb"] + 1024, usage  # 200 bytes a time


def test_a_cancelled_coroutine_leaves_nothing(generated: Project, kotlin: list[Path]) -> None:
    """Cancel behind each step, in queued and begun runs; nobody waits for a run that did not ask for it."""
    output = generated.java(CANCELLATION, "points", generated.models, path=kotlin)
    assert output.endswith("done\n")


def test_loading_cancelling_and_closing_leaves_nothing(generated: Project, kotlin: list[Path]) -> None:
    words = (CANCELLATION, "cycles", generated.models, CYCLES)
    check_nothing_grows(generated.java(*words, path=kotlin, options=FIXED))


def test_declarations_and_symbols_are_the_same(generated: Project, tmp_path: Path) -> None:
    """Compare javac's headers, the C++ files and the library's symbols, both ways."""
    runtime = generated.path / "runtime"
    run(*JAVAC, "-h", tmp_path, "-d", tmp_path, *runtime.rglob("*.java"))
    headers = {name: tmp_path / f"org_adt_runtime_{name}.h" for name in ("ImageFiller", "NativeRunner")}
    assert {*tmp_path.glob("*.h")} == {*headers.values()}
    names = r"JNIEXPORT \w+ JNICALL (\w+)"
    declared = {name for header in headers.values() for name in re.findall(names, header.read_text())}
    functions = read_elf(generated.library).functions
    assert declared == {name for name in functions if name.startswith(("Java_", "JNI_"))}
    # A second declaration with other types is an error for a compiler.
    compiled = [f"-I{path}" for path in jni_includes()]
    for cls, source in (("ImageFiller", "images.cc"), ("NativeRunner", "runner.cc")):
        both = ["-include", "jni.h", "-include", headers[cls], f"-I{generated.bundle / 'include'}"]
        run("g++", "-std=c++17", "-fsyntax-only", *compiled, *both, runtime / "cpp" / source)


def jni_includes() -> list[Path]:
    home = Path(real_program("javac") or "").resolve().parents[1]
    return [home / "include", home / "include/linux"]


def test_kotlin(generated: Project, kotlin: list[Path]) -> None:
    assert generated.java("KotlinCasesKt", generated.models, path=kotlin).endswith("done\n")


@dataclass(frozen=True)
class Application:
    """The files of an application of the small model, with Android's classes a stand-in."""

    path: Path
    classes: str
    """The class path."""
    generated: Project

    @classmethod
    def of(
        cls, small: Path, generated: Project, path: Path, *, cpu: Path | None = None, shared: bool = False
    ) -> Application:
        """Build the application; *cpu*: the same model for the CPU; *shared*: ABIs share parameters."""
        packages = [load_package(place) for place in (small, cpu) if place]
        described = project(packages, [load_bundle(generated.bundle)], java_package=JAVA_PACKAGE)
        if shared:  # by this machine's ABI and another
            models = [replace(model, variants=model.variants * 2) for model in described.models]
            described = replace(described, models=tuple(models))
        sources = write_java(described, path, android=True)
        classes = path / "classes"
        java = [*sources, CASES / "AndroidCases.java", CASES / "DeviceTest.java"]
        run(*JAVAC, "-Xlint:all", "-Werror", "-cp", class_path(*generated.android), "-d", classes, *java)
        libraries = path / "lib"
        libraries.mkdir()
        shutil.copy(small / "mod.so", libraries / "libsmall_model.so")
        if cpu:
            shutil.copy(cpu / "mod.so", libraries / "libsmall_cpu_model.so")
        return cls(path, class_path(classes, *generated.android), generated)

    def assets(self, small: Path, stem: str = "small", **more: Path) -> dict[str, Path]:
        """Return the assets by name; *more*: compiled programs."""
        abi = {"x86_64": "x86_64", "aarch64": "arm64-v8a"}[platform.machine()]
        files = {name: small / name for name in ("mod.json", "mod.params")}
        files |= {f"programs/{name}": file for name, file in more.items()}
        return {f"adt/{stem}/{abi}/{name}": file for name, file in files.items()}

    def java(
        self,
        *words: object,
        assets: dict[str, Path],
        options: Sequence[str] = (),
        cls: str = "AndroidCases",
        path: Sequence[Path] = (),
        **environment: str,
    ) -> str:
        """Run the class *cls*."""
        return run(
            "java", "-Xcheck:jni", *BRIEF, *standin_assets.JVM_OPTIONS, *options,
            f"-Dassets={standin_assets.write_assets(self.path / 'assets.bin', assets)}",
            f"-Dassets.without={standin_assets.write_assets(self.path / 'none.bin', {})}",
            f"-Djava.library.path={self.generated.library.parent}", "-cp", class_path(*path, Path(self.classes)),
            cls, *words, LD_LIBRARY_PATH=str(self.path / "lib"), **environment,
        )  # fmt: skip


@pytest.fixture(scope="module")
def small(packages: tuple[Path, ...]) -> Path:
    return next(path for path in packages if path.name == "small")


@pytest.fixture(scope="module")
def application(small: Path, generated: Project, tmp_path_factory: pytest.TempPathFactory) -> Application:
    return Application.of(small, generated, tmp_path_factory.mktemp("application"))


@pytest.mark.parametrize("shared", [False, True])
def test_an_applications_model_is_loaded_from_its_assets(
    shared: bool, generated: Project, small: Path, application: Application, tmp_path: Path
) -> None:
    """Load with a stand-in for Android's classes: Java's side, descriptors and offsets."""
    if shared:
        application = Application.of(small, generated, tmp_path, shared=True)
    assets = application.assets(small)
    if shared:
        assets["adt/small/mod.params"] = assets.pop(next(name for name in assets if name.endswith("params")))
    output = application.java(tmp_path / "code cache", small / "mod.params", assets=assets)
    assert output.endswith("done\n"), output
    assert "warning" not in output.lower(), output


def test_assets_that_an_application_compresses_are_copied(
    small: Path, application: Application, tmp_path: Path
) -> None:
    cache, assets = tmp_path / "code cache", application.assets(small)
    for _ in range(2):
        output = application.java(cache, assets=assets, options=["-Dassets.compressed=true"])
        assert "device cpu after 0" in output
    for name, source in assets.items():
        assert (cache / "adt-assets" / name).read_bytes() == source.read_bytes()


def test_an_application_takes_the_package_of_the_first_device_that_is_there(
    generated: Project, small: Path, on_opencl: Path, tmp_path: Path
) -> None:
    application = Application.of(on_opencl, generated, tmp_path, cpu=small)
    assets = application.assets(on_opencl) | application.assets(small, stem="small_cpu")
    absent = {"OCL_ICD_VENDORS": str(tmp_path / "none"), "OCL_ICD_FILENAMES": ""}
    for devices, environment, device, skipped in (
        ((), {}, "opencl", 0),
        ((), absent, "cpu", 1),
        (("-Ddevices=cpu,opencl",), {}, "cpu", 0),
        (("-Ddevices=opencl:9,cpu",), {}, "cpu", 1),
    ):
        output = application.java(tmp_path / "cache", assets=assets, options=devices, **environment)
        assert f"device {device} after {skipped}" in output
    both = ["-Ddevices=opencl", "-Dbeside=cpu"]  # of two libraries
    output = application.java(tmp_path / "cache", assets=assets, options=both)
    assert "beside cpu" in output and "device opencl after 0" in output


def test_the_samples_view_model_closes_frames_and_model(
    generated: Project, packages: tuple[Path, ...], tmp_path: Path
) -> None:
    """Run real frames and a real model; Android, AndroidX and CameraX are stand-ins."""
    onet = next(path for path in packages if path.name == "onet")
    entries = load_package(onet).manifest.entries
    options = {"java_package": JAVA_PACKAGE, "classes": {"onet": "Face"}, "images": {"onet": PICTURES}}
    phones = make_typed_package(tmp_path / "phones", "onet", entries)
    android = project([phones], [make_app_bundle(tmp_path / "bundle")], **options)
    described = project([load_package(onet)], [load_bundle(generated.bundle)], **options)
    java = write_java(described, tmp_path, android=True)
    write_sources(described, tmp_path, "kotlin/")
    (sample,) = (file for file in gradle.android_app_files(android) if file.path.endswith("MainViewModel.kt"))
    assert isinstance(sample, TextFile)
    (tmp_path / "kotlin/MainViewModel.kt").write_text(sample.text)
    classes = tmp_path / "classes"
    run(*JAVAC, "-Xlint:all", "-Werror", "-cp", class_path(*generated.android), "-d", classes, *java)
    kotlin = [
        *(tmp_path / "kotlin").rglob("*.kt"),
        *RUNTIME.rglob("*.kt"),
        *standin_android.ANDROIDX,
        APP_CASES,
    ]
    compiled = compile_kotlin(kotlin, tmp_path / "app", classpath=[classes, *generated.android])
    (tmp_path / "lib").mkdir()
    shutil.copy(onet / "mod.so", tmp_path / "lib/libface_model.so")
    application = Application(tmp_path, class_path(classes, *generated.android, *compiled), generated)
    assets, cases = application.assets(onet, stem="face"), f"{RUNTIME_PACKAGE}.AppCasesKt"
    output = application.java(tmp_path / "cache", assets=assets, cls=cases)
    assert output.endswith("done\n"), output
    assert "warning" not in output.lower(), output


def test_a_device_test_compares_with_the_reference(
    generated: Project, small: Path, application: Application, tmp_path: Path
) -> None:
    """Run the generated test itself on a JVM: it passes, and one element that is off fails it."""
    bundle = load_bundle(generated.bundle)
    plain = project([load_package(small)], [bundle], java_package=JAVA_PACKAGE)
    test, *arrays = gradle.device_tests(with_references(plain, load_settings({}).settings))
    assert isinstance(test, TextFile)
    source = tmp_path / "SmallTest.kt"
    source.write_text(test.text)
    classes = compile_kotlin([source], tmp_path / "kotlin", classpath=[Path(application.classes)])
    assets = application.assets(small)
    for file in arrays:
        assert isinstance(file, DataFile)
        assets[file.path.partition("/assets/")[2]] = place = tmp_path / Path(file.path).name
        place.write_bytes(file.data)

    def passes() -> str:
        return application.java(
            f"{JAVA_PACKAGE}.SmallTest", "runGivesTheReference", "runGivesTheSameTwice", "knowsItsPackage",
            assets=assets, cls="DeviceTest", path=classes, options=[f"-Djava.io.tmpdir={tmp_path}"],
        )  # fmt: skip

    output = passes()
    assert [line for line in output.splitlines() if line.endswith(" passed")] == [
        "runGivesTheReference passed", "runGivesTheSameTwice passed", "knowsItsPackage passed",
    ], output  # fmt: skip
    right = tmp_path / "output0.bin"
    wrong = np.frombuffer(right.read_bytes()).copy()
    wrong[1] += 0.01
    right.write_bytes(wrong.tobytes())
    output = passes()
    assert (
        "runGivesTheReference: output0: 1 elements are off by more than 1.0E-4, the first at 1: " in output
    ), output
    assert "runGivesTheSameTwice passed" in output


def test_programs_that_an_application_carries(generated: Project, on_opencl: Path, tmp_path: Path) -> None:
    """Take them by the driver's name; with another driver, or unusable ones, build the kernels."""
    report = adt.run(on_opencl).report
    assert report is not None
    file = Path(report["program_cache"]["file"])
    other = tmp_path / "other"
    other.write_bytes(file.read_bytes()[:-1])
    application = Application.of(on_opencl, generated, tmp_path)
    for carried, state in (
        ({file.name: file}, "hit"),
        ({f"{0:064x}.programs": file}, "written"),  # another driver's
        ({file.name: other}, "rebuilt"),
        ({}, "written"),
    ):
        assets, cache = (
            application.assets(on_opencl, **carried),
            tmp_path / f"cache of {len(carried)} {state}",
        )
        assert f"programs: {state}\n" in application.java(cache, assets=assets)
        assert "programs: hit\n" in application.java(cache, assets=assets)  # the next start
        assert sorted(path.name for path in (cache / "adt").iterdir()) == sorted({file.name, *carried})
