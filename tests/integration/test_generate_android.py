"""Generated Gradle projects, read by the tools that there are: aapt, javac, kotlinc, CMake with a stand-in NDK.

No Gradle and no android.jar: what the Android plugin does itself is not seen here.
"""

import dataclasses
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from adt.host.directories import resource
from adt.host.elf import read_elf
from adt.integrate.android_versions import NEWEST
from adt.integrate.contents import ACTIVITY_CLASS, OPENCL_LIBRARIES
from adt.integrate.gradle import android_app_files
from adt.integrate.model_api import Project
from adt.integrate.output import CopiedFile, TextFile
from adt.integrate.project import project
from adt.package.manifest import TensorSpec
from support.codegen.golden_projects import HOSTILE, made_up_project
from support.codegen.kotlin import JAVAC, compile_kotlin
from support.devices.programs import run_program
from support.standins import android as standin_android
from support.standins.artefacts import entry, make_app_bundle, make_typed_package, tensor
from support.standins.ndk import make_standin_ndk

FRAMEWORK = "/usr/share/android-framework-res/framework-res.apk"
ANDROID = "{http://schemas.android.com/apk/res/android}"
PLATFORMS = ("android-arm64-v8a", "android-x86_64")
APP = "com.example.vision.app"
RUNTIME = resource("cpp_runner") / "java"
PHOTOS = [tensor("photo", ("n", 3, 16, 16), "uint8"), tensor("mask", ("n", "m"))]
WORDS = [tensor("ids", (1, "length"), "int64"), tensor("mask", (1, "length"), "float16")]
MANIFESTS = ("app/src/main", "app/src/benchmark", "adt-runtime/src/main")


def done(*command: object) -> str:
    """Run a program that must work; return what it wrote."""
    ran = run_program(*command)
    return ran.stdout + ran.stderr


def write_texts(project: Project, directory: Path) -> Path:
    """Write the Gradle project of *project*, without what is copied but the runtime."""
    for file in android_app_files(project):
        if isinstance(file, TextFile):
            text = file.text
        elif isinstance(file, CopiedFile) and RUNTIME in file.source.parents:
            text = file.source.read_text()
        else:
            continue
        place = directory / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return directory


@pytest.fixture(scope="module")
def gradle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("android")
    return write_texts(made_up_project(directory, PLATFORMS, HOSTILE), directory / "out")


def merged(gradle: Path, directory: Path) -> Path:
    """Merge the manifests as the Android plugin would: the build files' values, and all elements in one."""
    ET.register_namespace("android", ANDROID[1:-1])
    roots = [ET.parse(gradle / part / "AndroidManifest.xml").getroot() for part in MANIFESTS]
    script = (gradle / "app/build.gradle.kts").read_text()
    manifest = roots[0]
    manifest.set("package", re.findall(r'applicationId = "(.+)"', script)[0])
    manifest.set(ANDROID + "versionCode", re.findall(r"versionCode = (\d+)", script)[0])
    manifest.set(ANDROID + "versionName", re.findall(r'versionName = "(.+)"', script)[0])
    lowest = re.findall(r"minSdk=(\d+)", (gradle / "adt-runtime/adt.properties").read_text())[0]
    levels = {ANDROID + "minSdkVersion": lowest, ANDROID + "targetSdkVersion": NEWEST.target_sdk}
    manifest.insert(0, ET.Element("uses-sdk", levels))
    application = manifest.find("application")
    assert application is not None
    # Of API level 31: the framework here is of 29.
    assert application.attrib.pop(ANDROID + "dataExtractionRules") == "@xml/data_extraction_rules"
    for root in roots[1:]:
        (theirs,) = root
        assert theirs.tag == "application"
        application.extend(list(theirs))
    path = directory / "AndroidManifest.xml"
    ET.ElementTree(manifest).write(path, encoding="utf-8", xml_declaration=True)
    return path


def package(gradle: Path, manifest: Path, apk: Path) -> str:
    """Return aapt's output about manifest and resources; their R.java is beside *apk*."""
    return done(
        *("aapt", "package", "-f", "-m", "-J", apk.parent, "-M", manifest),
        *("-S", gradle / "app/src/main/res", "-I", FRAMEWORK, "-F", apk),
    )


def test_merged_manifest_and_resources_are_androids(gradle: Path, tmp_path: Path) -> None:
    apk = tmp_path / "app.apk"
    assert package(gradle, merged(gradle, tmp_path), apk) == ""
    badging = done("aapt", "dump", "badging", apk)
    for line in (
        f"package: name='{APP}' versionCode='1' versionName='1.0'",
        "sdkVersion:'24'",
        f"targetSdkVersion:'{NEWEST.target_sdk}'",
        f"launchable-activity: name='{APP}.MainActivity'",
        "application-label:'vision'",
    ):
        assert line in badging
    assert "uses-feature-not-required: name='android.hardware.camera'" in badging
    assert "uses-implied-feature: name='android.hardware.camera" not in badging  # by the permission
    tree = done("aapt", "dump", "xmltree", apk, "AndroidManifest.xml")
    for name in (*OPENCL_LIBRARIES, ".MainActivity", ACTIVITY_CLASS, ":benchmark"):
        assert f'(Raw: "{name}")' in tree
    assert tree.count("E: uses-native-library") == len(OPENCL_LIBRARIES)


def test_aapt_refuses_what_is_not_androids(gradle: Path, tmp_path: Path) -> None:
    manifest = merged(gradle, tmp_path)
    manifest.write_text(manifest.read_text().replace("android:exported", "android:exportd", 1))
    with pytest.raises(AssertionError, match="exportd"):
        package(gradle, manifest, tmp_path / "app.apk")


def compiles(gradle: Path, directory: Path) -> None:
    """Compile all Java and Kotlin of the project *gradle*, with the R that aapt makes of its resources."""
    android = standin_android.compile_classes(directory / "android")
    package(gradle, merged(gradle, directory), directory / "app.apk")
    classes = directory / "classes"
    output = done(
        *(*JAVAC, "-Xlint:all", "-Werror", "--release", "11", "-encoding", "UTF-8"),
        *("-cp", android, "-d", classes, *gradle.rglob("*.java"), *directory.glob("**/R.java")),
    )
    assert output == ""
    kotlin = sorted(gradle.rglob("*.kt"))
    assert {"MainActivity.kt", "MainViewModel.kt", "Models.kt"} <= {file.name for file in kotlin}
    compile_kotlin([*kotlin, *standin_android.ANDROIDX], directory / "kotlin", classpath=[android, classes])


def test_java_and_kotlin_compile_without_a_warning(gradle: Path, tmp_path: Path) -> None:
    compiles(gradle, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("inputs", [PHOTOS, WORDS, []], ids=["photos", "words", "none"])
def test_every_kind_of_screen_compiles(inputs: list[TensorSpec], tmp_path: Path) -> None:
    model = make_typed_package(
        tmp_path / "package",
        "net",
        [entry(inputs, [tensor("scores", (1, 3)), tensor("best", (1,), "int64")])],
    )
    bundle = make_app_bundle(tmp_path / "bundle")
    bundle = dataclasses.replace(bundle, manifest=dataclasses.replace(bundle.manifest, api_level=28))
    described = project([model], [bundle], java_package="com.example.vision", labels=("a", "b", "c"))
    compiles(write_texts(described, tmp_path / "out"), tmp_path)


def stub_runner(ndk: Path, directory: Path) -> None:
    """Build libadt_runner.so and libjnigraphics.so in *directory*, whose functions do nothing."""
    header = (resource("cpp_runner") / "include/adt/adt_runner.h").read_text()
    names = sorted(set(re.findall(r"\b(adt_\w+)\(", header)))
    assert "adt_runner_create_from" in names
    directory.mkdir(parents=True)
    source = directory / "stub.c"
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    compiler = ndk / "toolchains/llvm/prebuilt/linux-x86_64/bin/aarch64-linux-android24-clang"
    library = directory / "libadt_runner.so"
    done(compiler, "-shared", "-fPIC", "-Wl,-soname,libadt_runner.so", "-o", library, source)
    source.write_text(
        """
int AndroidBitmap_getInfo(void *env, void *bitmap, void *info) { return -1; }
int AndroidBitmap_lockPixels(void *env, void *bitmap, void **pixels) { return -1; }
int AndroidBitmap_unlockPixels(void *env, void *bitmap) { return -1; }
"""
    )
    done(compiler, "-shared", "-fPIC", "-o", directory / "libjnigraphics.so", source)
    source.unlink()


BITMAP_H = """
// STAND-IN for the NDK's header, written from its reference.
#pragma once
#include <jni.h>
#include <stdint.h>
#define ANDROID_BITMAP_RESULT_SUCCESS 0
enum AndroidBitmapFormat { ANDROID_BITMAP_FORMAT_RGBA_8888 = 1 };
typedef struct { uint32_t width, height, stride; int32_t format; uint32_t flags; } AndroidBitmapInfo;
extern "C" {
int AndroidBitmap_getInfo(JNIEnv* env, jobject bitmap, AndroidBitmapInfo* info);
int AndroidBitmap_lockPixels(JNIEnv* env, jobject bitmap, void** pixels);
int AndroidBitmap_unlockPixels(JNIEnv* env, jobject bitmap);
}
"""


def test_jni_library_builds_with_the_projects_cmake(gradle: Path, tmp_path: Path) -> None:
    ndk = make_standin_ndk()
    main = gradle / "adt-runtime/src/main"
    stub_runner(ndk, main / "jniLibs/arm64-v8a")
    include = main / "cpp/include/adt"
    include.mkdir(parents=True)
    for header in (resource("cpp_runner") / "include/adt").glob("*.h"):
        (include / header.name).write_text(header.read_text())
    (main / "cpp/include/android").mkdir()
    (main / "cpp/include/android/bitmap.h").write_text(BITMAP_H)
    jni = [f"-I{java_home() / 'include'}", f"-I{java_home() / 'include/linux'}"]  # the NDK has its own jni.h
    done(
        *("cmake", "-G", "Ninja", "-S", main / "cpp", "-B", tmp_path, "-DCMAKE_BUILD_TYPE=Release"),
        f"-DCMAKE_TOOLCHAIN_FILE={ndk / 'build/cmake/android.toolchain.cmake'}",
        *("-DANDROID_ABI=arm64-v8a", "-DANDROID_PLATFORM=android-24"),
        f"-DCMAKE_CXX_FLAGS={' '.join(jni)} -Werror",
    )
    done("cmake", "--build", tmp_path)
    elf = read_elf(tmp_path / "libadt_jni.so")
    assert elf.machine == "AARCH64"
    assert "libadt_runner.so" in elf.needed
    assert elf.page_alignment >= 16384


def java_home() -> Path:
    return Path(done("readlink", "-f", done("which", "javac").strip()).strip()).parents[1]
