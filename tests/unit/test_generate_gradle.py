"""Gradle projects: what is in them, whose it is, and that their versions go together."""

import configparser
import dataclasses
import json
import re
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from adt.errors import ConfigError, MismatchError
from adt.integrate.android_versions import NEWEST, VERSIONS, AndroidVersions
from adt.integrate.contents import OPENCL_LIBRARIES
from adt.integrate.gradle import aar_files, android_app_files
from adt.integrate.model_api import Project
from adt.integrate.output import CopiedFile, OutputFile, TextFile
from adt.package.manifest import Entry
from support.codegen.golden_projects import DETECTOR
from support.standins.artefacts import at_levels, entry, make_project, tensor

ANDROID = "{http://schemas.android.com/apk/res/android}"
DOCS = Path(__file__).resolve().parents[2] / "docs"
ABIS = {"android-arm64-v8a": "arm64-v8a", "android-x86_64": "x86_64"}
TEXT = (
    entry(
        [tensor("ids", (1, "length"), "int64"), tensor("mask", (1, "length"), "int64")],
        [tensor("logits", (1, 4))],
    ),
)


@dataclasses.dataclass(frozen=True)
class Limit:
    """A requirement of one version on another."""

    of: str
    """Field of :class:`AndroidVersions` that asks …"""
    series: str
    """Beginning of the versions that have the requirement."""
    needs: str
    """Field that is required."""
    lowest: str
    """Lowest version of that field."""
    highest: str = ""
    """Highest version of that field; empty: no maker has set an end."""

    def __str__(self) -> str:
        span = f"{self.lowest} or newer" if not self.highest else f"{self.lowest} to {self.highest}"
        return f"{self.of} {self.series} needs {self.needs} {span}"


LIMITS = (
    # Android Gradle plugin, release notes of each series: compatibility.
    Limit("agp", "8.13", "gradle", "8.13"),
    Limit("agp", "8.13", "compile_sdk", "1", "36"),
    Limit("agp", "9.0", "gradle", "9.1.0"),
    Limit("agp", "9.0", "compile_sdk", "1", "36"),
    Limit("agp", "9.1", "gradle", "9.3.1"),
    Limit("agp", "9.1", "compile_sdk", "1", "36"),
    Limit("agp", "9.2", "gradle", "9.4.1"),
    Limit("agp", "9.2", "compile_sdk", "1", "36"),
    Limit("agp", "9.3", "gradle", "9.5.0"),
    Limit("agp", "9.3", "compile_sdk", "1", "37"),
    Limit("agp", "9.4", "gradle", "9.6.0"),
    Limit("agp", "9.4", "compile_sdk", "1", "37"),
    Limit("agp", "8", "jdk", "17"),
    Limit("agp", "9", "jdk", "17"),
    # The same of 9.0: its own Kotlin, and the lowest.
    Limit("agp", "9", "kotlin", "2.2.10"),
    Limit("kotlin", "2.2.10", "agp", "9.0"),
    # Kotlin, "Configure a Gradle project": fully supported versions.
    Limit("kotlin", "2.3.0", "gradle", "7.6.3", "9.0.0"),
    Limit("kotlin", "2.3.21", "gradle", "7.6.3", "9.3.0"),
    Limit("kotlin", "2.4.10", "gradle", "7.6.3", "9.5.0"),
    Limit("kotlin", "2.4.20", "gradle", "7.6.3", "9.7.0"),
    # Android Gradle plugin, "Kotlin support": the R8 that reads this Kotlin's metadata; of 2.4's it is 9.1.29,
    # which no release of 9.1 is known to have.
    Limit("kotlin", "2.3", "agp", "8.13.2"),
    Limit("kotlin", "2.4", "agp", "9.2"),
    # NDK r28: the first whose libraries have 16 KB pages without being told.
    Limit("target_sdk", "36", "ndk", "28"),
    # A target above what the sources are compiled against is refused by lint.
    Limit("target_sdk", "36", "compile_sdk", "36"),
    # kotlinx.coroutines 1.10 is built with Kotlin 2.1, whose metadata 2.1 and newer read.
    Limit("coroutines", "1.10", "kotlin", "2.1"),
    # AndroidX: what its AARs ask for, as public builds were told, and Kotlin 2.1's metadata.
    Limit("activity", "1.13", "compile_sdk", "36"),
    Limit("activity", "1.13", "agp", "8.9.1"),
    Limit("activity", "1.13", "androidx_min_sdk", "23"),
    Limit("camera", "1.6", "compile_sdk", "36"),
    Limit("camera", "1.6", "androidx_min_sdk", "23"),
    # Before 1.6.1, Kotlin could not read ListenableFuture in CameraX's classes.
    Limit("camera", "1.6", "camera", "1.6.1"),
    # The resolver's page: 1.0.0 is prepared for Gradle 9, and needs Java 17.
    Limit("foojay", "1.0", "jdk", "17"),
    # From 2.8 on viewModelScope needs no -ktx beside it.
    Limit("lifecycle", "2.10", "compile_sdk", "36"),
    # androidx.test 1.7 is built on JUnit 4.13.2.
    Limit("test_runner", "1.7", "junit", "4.13.2"),
)


def conflicts(versions: AndroidVersions) -> tuple[str, ...]:
    """Return the pairs in *versions* that do not go together or have no row in :data:`LIMITS`."""
    values = {field.name: str(getattr(versions, field.name)) for field in dataclasses.fields(versions)}
    problems = [
        f"{limit}, and {values[limit.needs]} is pinned"
        for limit in LIMITS
        if _begins(values[limit.of], limit.series)
        and not _between(values[limit.needs], limit.lowest, limit.highest)
    ]
    for asker in dict.fromkeys(limit.of for limit in LIMITS):
        if not any(limit.of == asker and _begins(values[asker], limit.series) for limit in LIMITS):
            problems.append(f"nothing is written down about {asker} {values[asker]}")
    if not any(
        limit.needs == "gradle" and limit.of == "agp" and _begins(versions.agp, limit.series)
        for limit in LIMITS
    ):
        problems.append(f"nothing is written down about the Gradle of agp {versions.agp}")
    return tuple(problems)


def _begins(version: str, series: str) -> bool:
    beginning = _numbers(series)
    return _numbers(version)[: len(beginning)] == beginning


def _between(version: str, lowest: str, highest: str) -> bool:
    return _numbers(lowest) <= _numbers(version) and (not highest or _numbers(version) <= _numbers(highest))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def described(
    directory: Path,
    entries: Sequence[Entry] = DETECTOR,
    labels: Sequence[str] = (),
    levels: Sequence[int] = (),
) -> Project:
    """Describe a project of one model called ``net`` for two ABIs; *levels*: API level of each bundle."""
    app = make_project(directory, {"net": entries}, tuple(ABIS), labels=labels)
    return at_levels(app, levels) if levels else app


def by_path(files: Sequence[OutputFile]) -> dict[str, OutputFile]:
    files_by_path = {file.path: file for file in files}
    assert len(files_by_path) == len(files)
    return files_by_path


def text(files: Sequence[OutputFile], path: str) -> str:
    file = by_path(files)[path]
    assert isinstance(file, TextFile)
    return file.text


@pytest.mark.parametrize("series", VERSIONS)
def test_versions_go_together(series: str) -> None:
    assert conflicts(VERSIONS[series]) == ()


def test_series_are_sorted_and_the_newest_is_the_default() -> None:
    assert sorted(VERSIONS, key=_numbers, reverse=True) == list(VERSIONS)
    assert next(iter(VERSIONS)) == NEWEST.series
    assert "8.13" in VERSIONS


@pytest.mark.parametrize(
    ("moved", "conflict"),
    [
        ({"gradle": "8.11.1"}, "agp 8.13 needs gradle 8.13 or newer, and 8.11.1 is pinned"),
        ({"gradle": "9.6.0"}, "kotlin 2.3.0 needs gradle 7.6.3 to 9.0.0, and 9.6.0 is pinned"),
        ({"compile_sdk": "37"}, "agp 8.13 needs compile_sdk 1 to 36, and 37 is pinned"),
        ({"agp": "8.13.0"}, "kotlin 2.3 needs agp 8.13.2 or newer, and 8.13.0 is pinned"),
        ({"agp": "9.5.0"}, "nothing is written down about the Gradle of agp 9.5.0"),
        ({"kotlin": "2.4.20"}, "kotlin 2.4 needs agp 9.2 or newer, and 8.13.2 is pinned"),
        ({"kotlin": "2.5.0"}, "nothing is written down about kotlin 2.5.0"),
        ({"ndk": "27.2.12479018"}, "target_sdk 36 needs ndk 28 or newer, and 27.2.12479018 is pinned"),
    ],
)
def test_a_version_that_is_moved_alone_is_found(moved: dict[str, str], conflict: str) -> None:
    assert conflict in conflicts(dataclasses.replace(VERSIONS["8.13"], **moved))


def test_limits_name_versions() -> None:
    names = {field.name for field in dataclasses.fields(AndroidVersions)}
    assert {limit.of for limit in LIMITS} | {limit.needs for limit in LIMITS} <= names


@pytest.mark.parametrize("series", VERSIONS)
def test_projects_pin_the_versions(tmp_path: Path, series: str) -> None:
    versions = VERSIONS[series]
    files = android_app_files(dataclasses.replace(described(tmp_path), android=versions))
    catalog = tomllib.loads(text(files, "gradle/libs.versions.toml"))
    pinned = catalog["versions"]
    for name in (
        "activity",
        "agp",
        "annotation",
        "camera",
        "coroutines",
        "junit",
        "lifecycle",
        "ndk",
        "cmake",
    ):
        assert pinned[name] == getattr(versions, name)
    assert (pinned["compileSdk"], pinned["targetSdk"]) == (versions.compile_sdk, versions.target_sdk)
    assert pinned["testRunner"] == versions.test_runner
    assert pinned.get("kotlin", "2.2.10") == versions.kotlin
    used = {row["version"]["ref"] for kind in ("libraries", "plugins") for row in catalog[kind].values()}
    assert used <= set(pinned)
    wrapper = text(files, "gradle/wrapper/gradle-wrapper.properties")
    assert f"gradle-{versions.gradle}-bin.zip" in wrapper
    # What the build files ask their catalog for is in it.
    scripts = [file.text for file in files if isinstance(file, TextFile) and file.path.endswith(".kts")]
    asked = {
        name for script in scripts for name in re.findall(r"libs\.([A-Za-z.]+?)(?=[).]*\)|\.get)", script)
    }
    offered = {f"versions.{name}" for name in pinned}
    offered |= {f"plugins.{name.replace('-', '.')}" for name in catalog["plugins"]}
    offered |= {name.replace("-", ".") for name in catalog["libraries"]}
    assert asked
    assert asked <= offered


ANDROID_DSL = {
    "aarMetadata", "abiFilters", "androidResources", "applicationId", "buildTypes", "cmake",
    "compileOptions", "compileSdk", "consumerProguardFiles", "create", "debugSymbolLevel", "defaultConfig",
    "externalNativeBuild", "initWith", "isMinifyEnabled", "isShrinkResources", "jniLibs", "lint",
    "matchingFallbacks", "minCompileSdk", "minSdk", "namespace", "ndk", "ndkVersion", "noCompress",
    "packaging", "path", "proguardFiles", "publishing", "release", "signingConfig", "singleVariant",
    "sourceCompatibility", "targetCompatibility", "targetSdk", "testInstrumentationRunner", "testOptions",
    "useLegacyPackaging", "version", "versionCode", "versionName", "withSourcesJar",
}  # fmt: skip
"""Names of the Android plugin's DSL, none of them among those that the release notes of 9.0 to 9.4 remove."""


@pytest.mark.parametrize("series", VERSIONS)
def test_build_files_use_names_that_every_plugin_has(tmp_path: Path, series: str) -> None:
    files = android_app_files(dataclasses.replace(described(tmp_path), android=VERSIONS[series]))
    for path in ("app/build.gradle.kts", "adt-runtime/build.gradle.kts", "vision/build.gradle.kts"):
        block = text(files, path).partition("\nandroid {\n")[2].partition("\n}\n")[0]
        names = re.findall(r"^ +(?!//)(\w+)(?= (?:\+?=|\{)|\()", block, re.MULTILINE)
        assert {"namespace", "minSdk", "ndkVersion"} <= set(names) <= ANDROID_DSL


def test_docs_have_the_versions() -> None:
    page = (DOCS / "apps-android.md").read_text()
    rows = re.findall(r"^\| `([\d.]+)` \| ([\d.]+) \| ([\d.]+) \| (\d+) \|", page, re.MULTILINE)
    assert rows == [(row.agp, row.gradle, row.kotlin, row.compile_sdk) for row in VERSIONS.values()]
    shown = {field.name for field in dataclasses.fields(AndroidVersions)} - {"androidx_min_sdk"}
    for version in shown:
        assert getattr(NEWEST, version) in page, version


def test_libraries_of_two_projects_share_the_runtime(tmp_path: Path) -> None:
    """Share in one application no class, library or asset but those of the runtime, which are equal."""
    first = described(tmp_path / "first")
    net = dataclasses.replace(
        first.models[0].api, name="other", cls="Other", stem="other", library="other_model"
    )
    second = dataclasses.replace(
        first,
        name="sound",
        java_package="org.other.sound",
        models=(dataclasses.replace(first.models[0], api=net),),
    )
    parts = ("/src/main/java/", "/src/main/kotlin/", "/src/main/jniLibs/", "/src/main/assets/")

    def packed(each: Project) -> dict[str, OutputFile]:
        files = by_path(aar_files(each)).items()
        return {path: file for path, file in files if any(part in path for part in parts)}

    shared = packed(first).keys() & packed(second).keys()
    assert shared == {path for path in packed(first) if path.startswith("adt-runtime/")}
    assert all(packed(first)[path] == packed(second)[path] for path in shared)
    names = [
        {path.partition("/src/main/")[2] for path in packed(each) if not path.startswith("adt-runtime/")}
        for each in (first, second)
    ]
    assert names[0] and not names[0] & names[1]
    assert 'api(project(":adt-runtime"))' in text(aar_files(second), "sound/build.gradle.kts")


def test_lowest_api_level_is_the_highest_of_the_bundles(tmp_path: Path) -> None:
    files = android_app_files(described(tmp_path, levels=(26, 29)))
    properties = text(files, "adt-runtime/adt.properties")
    assert "\nminSdk=29\n" in properties
    assert "\nabis=arm64-v8a,x86_64\n" in properties
    level = 'bundles.getProperty("minSdk").toInt()'
    for module in ("adt-runtime", "vision"):
        assert f"minSdk = {level}\n" in text(files, f"{module}/build.gradle.kts")
    assert f"minSdk = maxOf({level}, 23) // AndroidX's\n" in text(files, "app/build.gradle.kts")
    apis = {
        abi: json.loads(
            text(files, f"adt-runtime/src/main/prefab/modules/adt_runner/libs/android.{abi}/abi.json")
        )["api"]
        for abi in ABIS.values()
    }
    assert apis == {"arm64-v8a": 26, "x86_64": 29}


@pytest.mark.parametrize(("level", "decoder"), [(27, "BitmapFactory"), (28, "ImageDecoder")])
def test_pictures_are_read_by_what_the_api_level_has(tmp_path: Path, level: int, decoder: str) -> None:
    files = android_app_files(described(tmp_path, levels=(level, level)))
    screen = text(files, "app/src/main/kotlin/com/example/vision/app/MainViewModel.kt")
    assert set(re.findall("BitmapFactory|ImageDecoder", screen)) == {decoder}


def test_bundles_of_linux_are_refused(tmp_path: Path) -> None:
    linux = make_project(tmp_path, {"net": DETECTOR})
    for generate in (aar_files, android_app_files):
        with pytest.raises(ConfigError, match="which is no Android") as caught:
            generate(linux)
        assert "adt build-target --for android-arm64-v8a" in caught.value.remedy


def test_opencl_libraries_are_named(tmp_path: Path) -> None:
    """List them always: the runtime is the same for bundles with OpenCL and without."""
    manifest = by_path(aar_files(described(tmp_path)))["adt-runtime/src/main/AndroidManifest.xml"]
    assert isinstance(manifest, CopiedFile)
    root = ET.parse(manifest.source).getroot()
    libraries = {
        row.get(ANDROID + "name"): row.get(ANDROID + "required") for row in root.iter("uses-native-library")
    }
    assert libraries == dict.fromkeys(OPENCL_LIBRARIES, "false")


def test_a_bundle_without_the_activity_is_refused(tmp_path: Path) -> None:
    app = described(tmp_path)
    bundles = tuple(
        dataclasses.replace(bundle, manifest=dataclasses.replace(bundle.manifest, app_files={}))
        for bundle in app.bundles
    )
    with pytest.raises(MismatchError, match="libadt_activity") as caught:
        android_app_files(dataclasses.replace(app, bundles=bundles))
    assert "adt build-target --for android-arm64-v8a" in caught.value.remedy
    assert aar_files(dataclasses.replace(app, bundles=bundles))


@pytest.mark.parametrize(("level", "adaptive"), [(24, False), (26, True)])
def test_every_resource_is_used(tmp_path: Path, level: int, adaptive: bool) -> None:
    """Check what lint's UnusedResources and MonochromeLauncherIcon do."""
    files = android_app_files(described(tmp_path, levels=(level, level)))
    texts = {file.path: file.text for file in files if isinstance(file, TextFile)}
    names = {
        f"{match[0]}/{match[1]}"
        for file in texts.values()
        for match in re.findall(r'<(string|color|style) name="(\w+)"', file)
    }
    names |= {
        f"{parts[-2].partition('-')[0]}/{parts[-1].partition('.')[0]}"
        for path in texts
        if (parts := path.split("/"))[:4] == ["app", "src", "main", "res"] and parts[4] != "values"
    }
    every = "".join(texts.values())
    used = set(re.findall(r"@(\w+/\w+)", every))
    used |= {f"{kind}/{name}" for kind, name in re.findall(r"R\.(\w+)\.(\w+)", every)}
    assert names <= used
    assert ("<monochrome" in every) is adaptive


def test_symbols_get_an_extent(tmp_path: Path) -> None:
    files = android_app_files(described(tmp_path, TEXT))
    screen = text(files, "app/src/main/kotlin/com/example/vision/app/MainViewModel.kt")
    assert "val count = bytes.size / 8L\n" in screen
    for name in ("ids", "mask"):
        assert f"inputs.{name}().resize(1L, count)\n" in screen


@pytest.mark.parametrize(("entries", "camera"), [(DETECTOR, True), (TEXT, False)])
def test_only_a_model_of_pictures_has_a_camera(
    tmp_path: Path, entries: Sequence[Entry], camera: bool
) -> None:
    files = android_app_files(described(tmp_path, entries))
    every = "".join(file.text for file in files if isinstance(file, TextFile) if file.path.startswith("app/"))
    for word in (
        "androidx.camera",
        "permission.CAMERA",
        "hardware.camera",
        "PickVisualMedia",
        "libs.androidx.camera",
    ):
        assert (word in every) is camera, word
    assert ("OpenDocument" in every) is not camera
    catalog = tomllib.loads(text(files, "gradle/libs.versions.toml"))
    assert ("camera" in catalog["versions"]) is camera
    manifest = ET.fromstring(text(files, "app/src/main/AndroidManifest.xml"))
    assert [row.get(ANDROID + "required") for row in manifest.iter("uses-feature")] == ["false"] * 2 * camera


def test_labels_are_shown_where_an_output_has_as_many_scores(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    four = ("a cat", "a\ndog", "${x}", "é")
    files = android_app_files(described(tmp_path / "fit", TEXT, labels=four))
    assert text(files, "app/src/main/res/raw/labels.txt") == "a cat\na dog\n${x}\né\n"
    assert not caplog.records
    files = android_app_files(described(tmp_path / "unfit", TEXT, labels=four[:3]))
    assert "app/src/main/res/raw/labels.txt" not in by_path(files)
    assert "no output of net has 3 scores" in caplog.text


@pytest.mark.parametrize("series", VERSIONS)
def test_kotlin_is_compiled_by_what_the_plugin_has(tmp_path: Path, series: str) -> None:
    """Follow the release notes of 9.0: beside built-in Kotlin the plugin kotlin-android is an error."""
    versions = VERSIONS[series]
    files = android_app_files(dataclasses.replace(described(tmp_path), android=versions))
    scripts = [text(files, f"{place}build.gradle.kts") for place in ("", "app/", "adt-runtime/", "vision/")]
    catalog = tomllib.loads(text(files, "gradle/libs.versions.toml"))
    old = not series.startswith("9.")
    for script in scripts:
        assert ("libs.plugins.kotlin.android" in script) is old
    for script in scripts[1:]:  # 9 takes compileOptions' level
        assert ("jvmTarget = JvmTarget.JVM_17" in script) is old
    assert ("kotlin-android" in catalog["plugins"]) is old
    newer = "classpath(libs.kotlin.gradle.plugin)" in scripts[0]
    assert newer is ("kotlin-gradle-plugin" in catalog["libraries"])
    assert newer is (not old and versions.kotlin != "2.2.10")


@pytest.mark.parametrize("series", VERSIONS)
def test_what_lint_play_and_profilers_ask_for_is_there(tmp_path: Path, series: str) -> None:
    """Read in the texts: none of these tools is here."""
    files = android_app_files(
        dataclasses.replace(described(tmp_path, levels=(26, 26)), android=VERSIONS[series])
    )
    target = "targetSdk = libs.versions.targetSdk.get().toInt()"
    for path, words in {
        "app/build.gradle.kts": (
            'debugSymbolLevel = "SYMBOL_TABLE"',
            "ndkVersion = libs.versions.ndk.get()",
            target,
        ),
        "vision/build.gradle.kts": (f"testOptions {{\n        {target}", f"lint {{\n        {target}"),
        "app/src/benchmark/AndroidManifest.xml": ('<profileable android:shell="true" />',),
        "app/src/main/AndroidManifest.xml": ('dataExtractionRules="@xml/data_extraction_rules"',),
        "app/src/main/res/xml/data_extraction_rules.xml": ("<cloud-backup>", "<device-transfer>"),
        "app/src/main/res/mipmap-anydpi-v26/ic_launcher.xml": ("<monochrome ",),
        "app/src/main/res/layout/activity_main.xml": ('fitsSystemWindows="true"',),
    }.items():
        for word in words:
            assert word in text(files, path), (path, word)
        assert "buildToolsVersion" not in text(files, path)


@pytest.mark.parametrize("series", VERSIONS)
@pytest.mark.parametrize("generate", [aar_files, android_app_files])
def test_readme_has_the_commands_for_wrapper_and_jdk(tmp_path: Path, generate: Any, series: str) -> None:
    versions = VERSIONS[series]
    files = generate(dataclasses.replace(described(tmp_path), android=versions))
    readme = text(files, "README.md")
    assert f"\ngradle wrapper --gradle-version {versions.gradle}\n" in readme
    assert f"\n./gradlew updateDaemonJvm --jvm-version={versions.jdk} " in readme
    # Without a repository of JDKs, that task fails.
    resolver = 'id("org.gradle.toolchains.foojay-resolver-convention")'
    assert f'{resolver} version "{versions.foojay}"\n' in text(files, "settings.gradle.kts")


def test_library_has_models_and_runtime_for_each_abi(tmp_path: Path) -> None:
    files = by_path(aar_files(described(tmp_path)))
    for abi in ABIS.values():
        libraries = {path for path in files if f"/jniLibs/{abi}/" in path}
        runtime = ("libadt_runner.so", "libtvm_runtime.so", "libtvm_ffi.so", "libc++_shared.so")
        assert libraries == {
            *(f"adt-runtime/src/main/jniLibs/{abi}/{name}" for name in runtime),
            f"vision/src/main/jniLibs/{abi}/libnet_model.so",
        }
        assets = {path for path in files if f"/assets/adt/net/{abi}/" in path}
        assert {Path(path).name for path in assets} == {"mod.json"}, "mod.params is the same for both"
        platform = next(name for name, listed_abi in ABIS.items() if listed_abi == abi)
        for path in (*assets, f"vision/src/main/jniLibs/{abi}/libnet_model.so"):
            file = files[path]
            assert isinstance(file, CopiedFile)
            assert platform in file.source.parent.name
    (params,) = (path for path in files if path.endswith("mod.params"))
    assert params == "vision/src/main/assets/adt/net/mod.params"
    headers = {Path(name).name for name in described(tmp_path).bundles[0].manifest.headers}
    assert {Path(path).name for path in files if "/cpp/include/adt/" in path} == headers >= {"adt_runner.h"}
    # What the runtime's licence wants passed on, once for both ABIs.
    assert {path for path in files if "/assets/adt/licenses/" in path} == {
        f"adt-runtime/src/main/assets/adt/licenses/tvm/{name}" for name in ("LICENSE", "NOTICE")
    }


def test_library_is_adts_and_the_rest_is_the_users(tmp_path: Path) -> None:
    files = android_app_files(described(tmp_path))
    for file in files:
        adts = file.path.startswith(("adt-runtime/", "vision/", "app/src/benchmark/"))
        users_manifest = file.path.endswith("AndroidManifest.xml") and not file.path.startswith(
            "adt-runtime/"
        )
        adts &= not (file.path.endswith("build.gradle.kts") or users_manifest)
        users = isinstance(file, TextFile) and file.users
        assert users is not adts, file.path


def test_benchmark_is_not_in_the_application_that_is_shipped(tmp_path: Path) -> None:
    files = android_app_files(described(tmp_path))
    shipped = ET.fromstring(text(files, "app/src/main/AndroidManifest.xml"))
    assert [row.get(ANDROID + "name") for row in shipped.iter("activity")] == [".MainActivity"]
    measured = ET.fromstring(text(files, "app/src/benchmark/AndroidManifest.xml"))
    (activity,) = measured.iter("activity")
    # In a process of its own, since a process can have a model's library once.
    assert (activity.get(ANDROID + "name"), activity.get(ANDROID + "process")) == (
        "android.app.NativeActivity",
        ":benchmark",
    )


def test_benchmark_is_the_activity_of_adt_apk_with_a_plan(tmp_path: Path) -> None:
    files = android_app_files(described(tmp_path, TEXT))
    for abi in ABIS.values():
        library = by_path(files)[f"app/src/benchmark/jniLibs/{abi}/libadt_activity.so"]
        assert isinstance(library, CopiedFile)
    plan = json.loads(text(files, "app/src/benchmark/assets/adt/bench.json"))
    assert plan["app"] == "com.example.vision.app"
    assert set(plan["bundle_digests"]) == set(ABIS.values())
    assert plan["end_to_end"]
    assert plan["models"] == [
        {
            "stem": "net",
            "library": "libnet_model.so",
            "entry": "main",
            "extents": [{"symbol": "length", "extent": 1}],
            "shared_params": True,
        }
    ]


def test_prefab_package_is_as_prefab_wants_it(tmp_path: Path) -> None:
    files = by_path(aar_files(described(tmp_path)))
    root = "adt-runtime/src/main/prefab"
    package = json.loads(text(tuple(files.values()), f"{root}/prefab.json"))
    assert (package["schema_version"], package["name"], package["dependencies"]) == (2, "adt_runtime", [])
    # CMake's version of the package: at most four numbers.
    assert re.fullmatch(r"\d+(\.\d+){0,3}", package["version"])
    module = json.loads(text(tuple(files.values()), f"{root}/modules/adt_runner/module.json"))
    assert module["library_name"] == "libadt_runner"
    abi = json.loads(
        text(tuple(files.values()), f"{root}/modules/adt_runner/libs/android.arm64-v8a/abi.json")
    )
    # "none": its interface has nothing of a C++ library, so a program may use any.
    assert abi == {"abi": "arm64-v8a", "api": 24, "ndk": 27, "stl": "none", "static": False}


def test_properties_are_properties(tmp_path: Path) -> None:
    files = android_app_files(described(tmp_path))
    for path in (
        "gradle.properties",
        "gradle/wrapper/gradle-wrapper.properties",
        "adt-runtime/adt.properties",
    ):
        parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
        parser.read_string("[all]\n" + text(files, path))
        assert all(value for _, value in parser["all"].items()), path
