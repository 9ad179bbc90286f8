"""Presets: what each of them is after inheriting, and which one a build takes."""

import json
import re
from pathlib import Path

import pytest

from adt.bundle.plan import cache_variables, choose_preset, list_presets
from adt.bundle.platforms import PLATFORMS, PRESETS, platform_named
from adt.compiler.targets import model_target
from adt.errors import ConfigError
from adt.host.directories import resource
from adt.host.process import cmake
from adt.options.resolve import load_settings
from adt.options.sections import BuildSettings
from support.cmake import cmake_refusal
from support.devices.programs import program_output, write_program

DOCS = Path(__file__).parents[2] / "docs"
CMAKE_PRESETS = resource("cmake_presets")


def options(**changes: object) -> BuildSettings:
    settings = load_settings(environ={}, start=Path("/")).settings.build
    return settings.but(**changes)


def test_cmake_and_adt_know_the_same_presets() -> None:
    listed = program_output(cmake().path, "--list-presets", cwd=CMAKE_PRESETS)
    assert re.findall(r'^  "([^"]+)"', listed, re.MULTILINE) == list(PRESETS)
    document = json.loads((CMAKE_PRESETS / "CMakePresets.json").read_text())
    assert [preset["name"] for preset in document["buildPresets"]] == list(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_switches_on_what_its_name_says(name: str) -> None:
    platform, variant = PRESETS[name]
    variables = cache_variables(name)
    assert variables["USE_OPENCL"] == ("OFF" if variant == "cpu" else "ON")
    assert variables.get("ADT_CLML", "OFF") == ("ON" if variant == "clml" else "OFF")
    assert variables["USE_KALLOC_ALIGNMENT"] == str(platform.alignment)
    assert (variables["USE_RPC"], variables["USE_CPP_RPC"], variables["USE_LLVM"]) == ("ON", "ON", "OFF")
    assert variables["CMAKE_BUILD_TYPE"] == "Release"
    assert variables.get("ANDROID_ABI") == (platform.abi if platform.android else None)


def test_a_bare_platform_is_its_opencl_variant() -> None:
    for name in PLATFORMS:
        assert cache_variables(name) == cache_variables(f"{name}-opencl")


@pytest.mark.parametrize("name", ["host-cpu", "host-opencl"])
def test_cmake_resolves_the_variables_as_adt_does(name: str, tmp_path: Path) -> None:
    """Configure without TVM, which fails after CMake has put the preset's variables in its cache."""
    cmake_refusal(name, tmp_path, f"-DADT_TVM_SOURCE={tmp_path}")
    cached = dict(re.findall(r"^(\w+):\w+=(.*)$", (tmp_path / "CMakeCache.txt").read_text(), re.MULTILINE))
    variables = cache_variables(name)
    assert {key: cached[key] for key in variables} == variables


@pytest.mark.parametrize(
    ("changes", "name", "opencl", "clml"),
    [
        ({"platform": "linux-aarch64"}, "linux-aarch64", True, False),
        ({"platform": "linux-aarch64", "opencl": False}, "linux-aarch64-cpu", False, False),
        ({"platform": "linux-aarch64-cpu"}, "linux-aarch64-cpu", False, False),
        ({"platform": "linux-armhf-opencl", "opencl": False}, "linux-armhf-opencl", True, False),
        ({"platform": "android-arm64-v8a", "clml": "/sdk"}, "android-arm64-v8a-clml", True, True),
        ({"platform": "android-arm64-v8a-clml"}, "android-arm64-v8a-clml", True, True),
    ],
)
def test_the_options_choose_the_preset(
    changes: dict[str, object], name: str, opencl: bool, clml: bool
) -> None:
    choice = choose_preset(options(**changes))
    assert (choice.name, choice.opencl, choice.clml) == (name, opencl, clml)
    assert choice.platform is platform_named(name)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"platform": "linux-aarch64-gpu"}, "Did you mean 'linux-aarch64-cpu'"),
        ({"platform": "linux-aarch64-cpu", "clml": "/sdk"}, "has no CLML"),
        ({"platform": "host", "clml": "/sdk"}, "no CLML for host"),
        ({"platform": "host-cpu", "opencl_sdk": "/sdk"}, "no OpenCL"),
        ({"platform": "linux-aarch64", "clml": "/sdk", "opencl_sdk": "/sdk"}, "its own libOpenCL"),
        ({"platform": "host", "one_library": True, "cuda": True, "xnnpack": True}, "XNNPACK, not with CUDA"),
        ({"platform": "linux-aarch64-clml", "one_library": True}, "not with CLML"),
    ],
)
def test_options_that_contradict_each_other_are_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        choose_preset(options(**changes))


def test_the_list_says_why_a_preset_cannot_be_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ADRENO_OPENCL", "CLML_SDK"):
        monkeypatch.delenv(name, raising=False)
    compiler = write_program(tmp_path / "aarch64-linux-gnu-g++", "")
    presets = {preset.name: preset for preset in list_presets(load_settings(environ={}).settings)}
    assert list(presets) == list(PRESETS)
    assert presets["linux-aarch64-cpu"].buildable and presets["linux-aarch64-cpu"].reason == str(compiler)
    assert not presets["linux-armhf"].buildable
    assert presets["linux-armhf"].remedy == "apt-get install g++-arm-linux-gnueabihf"
    assert "no CLML SDK was named" in presets["linux-aarch64-clml"].reason


def test_the_page_has_every_platform_with_its_presets() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| bare, (.*) \|$", (DOCS / "presets.md").read_text(), re.MULTILINE)
    assert rows == [
        (
            platform.name,
            f"{', '.join(f'`-{variant}`' for variant in platform.variants)} | {platform.alignment} | "
            f"{platform.packages or 'the NDK'}",
        )
        for platform in PLATFORMS.values()
    ]


def test_an_abi_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from adt.verbs import build

    monkeypatch.setattr("adt.bundle.build.build_bundle", lambda *_, **__: pytest.fail("nothing is built"))
    with pytest.raises(ConfigError, match="named twice"):
        build.build_abis(["arm64-v8a", "arm64-v8a-cpu"])
    with pytest.raises(ConfigError, match="Did you mean 'android-armeabi-v7a'"):
        build.build_abis(["armeabi-v7"])


@pytest.mark.parametrize(
    ("name", "triple", "extra"),
    [
        ("android-arm64-v8a", "aarch64-linux-android28", {}),
        ("android-armeabi-v7a", "armv7a-linux-androideabi28", {"mattr": ["+neon"]}),
        ("android-x86_64", "x86_64-linux-android28", {"mattr": ["+sse4.2", "+popcnt"]}),
        ("linux-aarch64", "aarch64-linux-gnu", {}),
        (
            "linux-armhf",
            "armv7a-unknown-linux-gnueabihf",
            {"mattr": ["+neon", "+vfp4"], "mfloat-abi": "hard"},
        ),
    ],
)
def test_the_code_generator_is_told_what_each_machine_has(
    name: str, triple: str, extra: dict[str, object]
) -> None:
    spec = model_target("cpu", platform_named(name), 28).spec
    assert spec == {"kind": "llvm", "mtriple": triple, **extra}
