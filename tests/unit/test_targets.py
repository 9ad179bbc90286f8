"""Targets as people write them: what each becomes for TVM, and what is refused with which remedy."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from adt.bundle.platforms import HOST_MACHINE, platform_named
from adt.compiler.targets import NAMES, ModelTarget, model_target, settings_and_platform
from adt.errors import ConfigError
from adt.options.resolve import load_settings
from adt.package.manifest import PackageLike

LINUX, PHONE = "linux-aarch64", "android-arm64-v8a"


def device(**limits: int) -> PackageLike:
    return PackageLike("a device", "", "", "", None, (), limits, ())


def target(text: str, platform: str = LINUX, **options: Any) -> ModelTarget:
    return model_target(text, platform_named(platform), 28, **options)


def refused(text: str, platform: str = LINUX, **options: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        target(text, platform, **options)
    return caught.value


def test_the_plain_names() -> None:
    host = {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}
    keys = {name: target(name).spec.get("keys") for name in NAMES if name != "host"}
    assert keys == {
        "cpu": None,
        "opencl": None,
        "adreno": ["adreno", "opencl", "gpu", "texture"],
        "adreno-buffer": ["adreno", "opencl", "gpu"],
        "mali": ["mali", "opencl", "gpu"],
        "cuda": None,
    }
    assert target("cpu").spec == host
    assert (target("cpu").device, target("mali").device) == ("cpu", "opencl")
    assert target("adreno").spec["host"] == host and target("adreno").spec["device"] == "adreno"
    assert [name for name in keys if target(name).textures] == ["adreno"]


def test_every_name_is_a_target_of_tvm() -> None:
    import tvm

    for name in NAMES:
        parsed = target(name, "host" if name == "host" else LINUX)
        kind = tvm.target.Target(parsed.spec).kind.name
        assert kind == {"cpu": "llvm"}.get(parsed.device, parsed.device)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("cuda:sm_87", "cuda:sm_87"),
        ("cuda:8.7", "cuda:sm_87"),
        ("cuda:sm_120", "cuda:sm_120"),
        ("cuda:Jetson Orin", "cuda:sm_87"),
        ("cuda:jetson_nano", "cuda:sm_53"),
        ("cuda:RTX 3080 Ti", "cuda:sm_86"),
        ("cuda:gtx1060", "cuda:sm_61"),
        ("cuda:jetson-thor", "cuda:sm_110"),
        ("cuda:RTX A4000", "cuda:sm_86"),
        ("cuda:rtx-pro 6000", "cuda:sm_120"),
        ("cuda", "cuda"),
        ("cuda -arch=sm_87 -libs=cudnn", "cuda:sm_87"),
        ('{"kind": "cuda", "arch": "sm_90", "host": {"kind": "llvm", "mcpu": "cortex-a78"}}', "cuda:sm_90"),
        ("nvidia/jetson-agx-xavier", "cuda:sm_72"),
    ],
)
def test_cuda_for_an_architecture_or_a_chip(text: str, name: str) -> None:
    parsed = target(text)
    assert (parsed.name, parsed.device, parsed.vdevices) == (name, "cuda", ("cuda",))
    assert parsed.spec["arch"] == (name.partition(":")[2] or "sm_53")
    assert parsed.gpu is not None and parsed.gpu.name == "NVIDIA"
    assert target(parsed.name).spec["arch"] == parsed.spec["arch"]


def test_cuda_where_there_is_none() -> None:
    assert "linux-aarch64, host" in refused("cuda:sm_87", PHONE).remedy
    assert "linux-aarch64, host" in refused("cuda", "linux-armhf").remedy
    assert "Did you mean 'jetson-orin'" in refused("cuda:jetson-orim").what
    assert "sm_87" in refused("cuda:").remedy and "sm_87" in refused("cuda -arch=compute_90").remedy


def test_vulkan_is_refused_for_what_the_wheel_lacks() -> None:
    import tvm

    assert "--target adreno" in refused("vulkan").remedy
    assert "Vulkan" in refused("qcom/adreno-vulkan", PHONE).what
    assert tvm.get_global_func("target.build.vulkan", allow_missing=True) is None, "it could be supported now"


@pytest.mark.parametrize(
    ("text", "platform", "name", "expected"),
    [
        # the strings of TVM's tutorials
        ("opencl -device=adreno", PHONE, "adreno", {"device": "adreno"}),
        ("opencl -device=mali", LINUX, "mali", {"device": "mali"}),
        ("opencl -device=bifrost", LINUX, "mali", {"device": "mali"}),
        ("llvm", "host", "cpu", {}),
        ("opencl, llvm", LINUX, "opencl", {}),
        ("opencl,llvm", LINUX, "opencl", {}),
        ("opencl -device=adreno, llvm -mtriple=aarch64-linux-gnu", PHONE, "adreno", {"device": "adreno"}),
        ("opencl -device=adreno -keys=adreno,opencl,gpu", PHONE, "adreno-buffer", {}),
        ("opencl -max_num_threads=128 -texture_spatial_limit 8192", LINUX, "opencl",
         {"max_num_threads": 128, "texture_spatial_limit": 8192}),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76 -mattr=+neon,+dotprod", LINUX, "cpu",
         {"mcpu": "cortex-a76", "mattr": ["+neon", "+dotprod"]}),
        ("llvm -device=arm_cpu -model=rk3399 -target=aarch64-linux-gnu", LINUX, "cpu", {}),
        ("llvm -mtriple=armv7l-linux-gnueabihf -mattr=+neon", "linux-armhf", "cpu",
         {"mtriple": "armv7a-unknown-linux-gnueabihf", "mattr": ["+neon", "+vfp4"], "mfloat-abi": "hard"}),
        ("llvm -num-cores=4 --fast-math", LINUX, "cpu", {"num-cores": 4, "fast-math": True}),
        # tags
        ("qcom/adreno-opencl-texture", PHONE, "adreno", {"device": "adreno"}),
        ("qcom/adreno-opencl", PHONE, "adreno-buffer", {"device": "adreno"}),
        ("arm/rk3399", LINUX, "cpu", {"mattr": ["+neon"]}),
        ("arm/pixel2", PHONE, "cpu", {"mtriple": "aarch64-linux-android28"}),
        ("arm/rasp4b", "linux-armhf", "cpu", {"mcpu": "cortex-a72"}),
        # dictionaries
        ('{"kind": "opencl", "device": "adreno", "keys": ["adreno", "opencl", "gpu", "texture"]}', PHONE, "adreno",
         {}),
        ('{"kind": "opencl", "keys": "mali,opencl,gpu", "max_num_threads": 64}', LINUX, "mali",
         {"max_num_threads": 64}),
        ('{"kind": "llvm", "mtriple": "aarch64-linux-android28", "mattr": "+dotprod"}', PHONE, "cpu",
         {"mattr": ["+dotprod"]}),
    ],
)  # fmt: skip
def test_tvms_own_words(text: str, platform: str, name: str, expected: dict[str, Any]) -> None:
    parsed = target(text, platform)
    assert parsed.name == name
    assert {key: parsed.spec.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    "text",
    [
        "opencl --host=llvm -mtriple=aarch64-linux-gnu -mattr=+neon",
        "opencl --host='llvm -mtriple=aarch64-linux-gnu -mattr=+neon'",
        "opencl -mattr=+neon -host=llvm",
        '{"kind": "opencl", "host": {"kind": "llvm", "mattr": ["+neon"]}}',
        '{"kind": "opencl", "host": "llvm -mattr=+neon"}',
    ],
)
def test_the_host_of_a_gpu(text: str) -> None:
    assert target(text).spec["host"] == {
        "kind": "llvm",
        "mtriple": "aarch64-linux-gnu",
        "mattr": ["+neon"],
    }


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("opncl", "Did you mean 'opencl'?", "adreno-buffer"),
        ("adreno_buffer", "Did you mean 'adreno-buffer'?", "mali"),
        ("rocm -libs=miopen", "is for rocm", "opencl"),
        ("opencl, clml, llvm", "CLML", "--target adreno --offload clml"),
        ("qcom/adreno-opencl-clml", "CLML", "--target adreno --offload clml"),
        ("opencl, cuda", "several devices", "its target alone"),
        ("qcom/adreno-opencl-textures", "Did you mean 'qcom/adreno-opencl-texture'?", "adreno"),
        ("opencl -max_threads=8", "Did you mean 'max_num_threads'?", "max_num_threads"),
        ("opencl -max_num_threads=many", "no integer above 0", "-max_num_threads=256"),
        ('{"kind": "opencl", "max_num_threads": true}', "no integer above 0", "256"),
        ("opencl device=mali", "is no option: 'device=mali'", "-device=mali"),
        ("opencl --host='llvm", "cannot be read", "quotes"),
        ("opencl --host=cuda", "a host that is not llvm", "--host=llvm"),
        ('{"kind": "opencl", "host": 5}', "a host that is not llvm", "--host=llvm"),
        ('{"kind"', "is not JSON", "mali"),
        ('{"device": "mali"}', "has no kind", "mali"),
        ("llvm -mtriple=i686-pc-windows-msvc", "does not compile for", "linux-armhf"),
        ("llvm -mtriple=armv7a-linux-gnueabi", "does not compile for", "linux-armhf"),
        ("llvm -mtriple=armv7l-linux-gnueabihf -mfloat-abi=soft", "passes floats soft", "-mfloat-abi"),
    ],
)
def test_what_is_no_target(text: str, message: str, remedy: str) -> None:
    error = refused(text)
    assert message in error.what, error.what
    assert remedy in error.remedy, error.remedy


def test_words_that_contradict_the_platform() -> None:
    error = refused("llvm -mtriple=armv7l-linux-gnueabihf")
    assert "armv7l-linux-gnueabihf, that is linux-armhf" in error.what
    assert error.remedy == "Give --for linux-armhf, or the target without it: --target cpu"
    assert "--for host" in refused("host").remedy and "--target cpu" in refused("host").remedy
    assert "--api-level 21" in refused("llvm -mtriple=aarch64-linux-android21", PHONE).remedy
    assert "--for android-arm64-v8a" in refused("opencl -mtriple=aarch64-linux-android").remedy
    both = refused("llvm -mcpu=cortex-a53", cpu="cortex-a76")
    assert "cortex-a53" in both.what and both.remedy.endswith("--target cpu --cpu cortex-a76")


def test_tvms_guides_for_phones_wrote_the_gnu_triple() -> None:
    assert target("llvm -mtriple=aarch64-linux-gnu", PHONE).spec["mtriple"] == "aarch64-linux-android28"


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Leave only the default settings."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def placed(text: str, platform: str | None = None) -> str:
    return settings_and_platform(load_settings({"compile.target": text, "build.platform": platform}))[1].name


def test_a_target_with_a_machine_chooses_the_platform(alone: Path) -> None:
    assert placed("cpu", PHONE) == PHONE
    assert placed("host") == "host"
    assert placed("llvm -mtriple=aarch64-linux-gnu") == LINUX
    assert placed("opencl -device=adreno --host='llvm -mtriple=arm64-linux-android'", PHONE) == PHONE
    assert placed("llvm -mtriple=aarch64-linux-gnu", PHONE) == PHONE, "what somebody chose stays"
    if HOST_MACHINE == "x86_64":
        assert placed("llvm -mtriple=x86_64-unknown-linux-gnu") == "host"
    (alone / "adt.toml").write_text('[build]\nplatform = "linux-armhf"\n')
    assert placed("llvm -mtriple=aarch64-linux-gnu") == "linux-armhf", "and is refused when compiling"


def test_one_line_says_what_a_string_became(alone: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="adt.compile")
    placed("opencl", PHONE)
    assert caplog.messages == []
    placed("opencl -device=mali -model=rk3399 --host='llvm -mtriple=aarch64-linux-gnu -mattr=+neon'")
    assert caplog.messages == [
        "target opencl -device=mali -model=rk3399 --host='llvm -mtriple=aarch64-linux-gnu -mattr=+neon' is read as: "
        "--for linux-aarch64 --target mali --cpu +neon (without meaning here: model=rk3399)"
    ]


def test_limits_of_a_device_and_what_overrides_them() -> None:
    limits = {"max_num_threads": 1024, "texture_spatial_limit": 8192}
    assert target("adreno", like=device(**limits)).spec.items() >= limits.items()
    assert target("qcom/adreno-opencl-texture", PHONE, like=device(**limits)).spec.items() >= limits.items()
    mine = target("opencl -max_num_threads=64", like=device(**limits)).spec
    assert (mine["max_num_threads"], mine["texture_spatial_limit"]) == (64, 8192)


def test_textures_on_a_device_without_images() -> None:
    error = refused("adreno", like=device(max_num_threads=1024))
    assert "no images" in error.what and "--target adreno-buffer" in error.remedy
    assert target("adreno-buffer", like=device(max_num_threads=1024)).device == "opencl"
    json.dumps(target("adreno", like=device(texture_spatial_limit=4096)).spec)  # what mod.json keeps
