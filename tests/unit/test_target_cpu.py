"""``--cpu``: cores, chips and features in people's spellings, and code that runs on every core of a chip."""

from pathlib import Path
from typing import Any

import pytest

from adt.bundle.platforms import PLATFORMS, platform_named
from adt.compiler.targets import llvm, model_target, settings_and_platform
from adt.compiler.targets.cpu import CpuChoice, cpu_choice
from adt.compiler.targets.socs import LLVM_NAMES, SOCS, soc_named
from adt.errors import ConfigError
from adt.options.resolve import load_settings
from adt.package.compatibility import own_features
from adt.package.manifest import PackageLike

TRIPLE = "aarch64-linux-gnu"


def choice(text: str, platform: str = "linux-aarch64") -> CpuChoice:
    return cpu_choice(text, platform_named(platform), 28)


def refused(text: str, platform: str = "linux-aarch64") -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        choice(text, platform)
    return caught.value


@pytest.mark.parametrize(
    ("text", "core", "features"),
    [
        ("", "", ()),
        ("cortex-a76", "cortex-a76", ()),
        ("cortex-a76,+dotprod,+fp16", "cortex-a76", ("+dotprod", "+fullfp16")),
        (" Cortex-A76 , +asimddp , -sve2 ", "cortex-a76", ("+dotprod", "-sve2")),
        ("cortex-a76+dotprod+fp16", "cortex-a76", ("+dotprod", "+fullfp16")),
        ("+dotprod,+i8mm", "", ("+dotprod", "+i8mm")),
        ("generic,+v8.2a", "generic", ("+v8.2a",)),
        ("rk3588", "cortex-a55", ()),
        ("snapdragon-8gen2,+sve2", "cortex-a510", ("-sve", "+sve2")),
    ],
)
def test_spellings(text: str, core: str, features: tuple[str, ...]) -> None:
    assert choice(text) == CpuChoice(core, features)


def test_features_go_by_the_machine() -> None:
    """Tell ``fp16`` of 32-bit Arm, a conversion, from that of 64-bit Arm, arithmetic."""
    assert choice("cortex-a72,+fp16", "linux-armhf").features == ("+fp16",)
    assert choice("haswell,+avx512f", "android-x86_64") == CpuChoice("haswell", ("+avx512f",))
    spec = model_target("cpu", PLATFORMS["linux-armhf"], 28, cpu="rpi4,-vfp4").spec
    assert (spec["mcpu"], spec["mattr"]) == ("cortex-a72", ["+neon", "-vfp4"])


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("cortex-a67", "Did you mean 'cortex-a", "docs/targets.md"),
        ("rk3587", "Did you mean 'rk3588'?", "snapdragon-865"),
        ("haswell", "no processor 'haswell' for linux-aarch64", "cortex-a76"),
        ("cortex-a76,+dotprd", "Did you mean 'dotprod'?", "fullfp16"),
        ("cortex-a76,rk3588", "is not of the form", "--cpu cortex-a76,+dotprod"),
        ("+dotprod,cortex-a76", "is not of the form", "first"),
        ("native", "this machine's processor", "--for host"),
    ],
)
def test_what_is_no_processor(text: str, message: str, remedy: str) -> None:
    error = refused(text)
    assert message in error.what and remedy in error.remedy


def test_a_processor_of_another_platform_is_no_suggestion() -> None:
    error = refused("cortex-a67", "host")
    assert "Did you mean" not in error.what and "--for" in error.remedy
    assert "Did you mean 'skylake'?" in refused("skylak", "host").what


def test_a_chip_without_code_for_the_platform() -> None:
    assert "does not run code for linux-armhf" in refused("jetson-xavier", "linux-armhf").what


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("sd865", "snapdragon-865"),
        ("SM8250", "snapdragon-865"),
        ("Snapdragon 8 Gen 2", "snapdragon-8gen2"),
        ("8gen1", "snapdragon-8gen1"),
        ("rpi_4", "rpi4"),
        ("raspberry-pi-5", "rpi5"),
        ("RK3399Pro", "rk3399"),
    ],
)
def test_names_of_chips(text: str, name: str) -> None:
    chip = soc_named(text)
    assert chip is not None and chip.name == name


def test_the_table_of_chips() -> None:
    names = [name.replace("-", "") for soc in SOCS for name in (soc.name, *soc.aliases)]
    assert len(names) == len(set(names)), "a name means one chip"
    for soc in SOCS:
        assert {*soc.cores, soc.code} <= llvm.cores(TRIPLE), soc.name
        assert soc.offers <= LLVM_NAMES.keys() and "sve" not in soc.offers, soc.name
        assert soc.source.startswith(("cpuinfo: ", "Linux: ")), soc.name


@pytest.mark.parametrize("soc", SOCS, ids=lambda soc: soc.name)
def test_code_for_a_chip_uses_what_all_its_cores_have_and_its_kernel_offers(soc: Any) -> None:
    chosen = choice(soc.name)
    used = llvm.core_features(TRIPLE, chosen.core, chosen.features)
    offered = {LLVM_NAMES[name] for name in soc.offers}
    assert used & set(LLVM_NAMES.values()) == offered
    for core in soc.cores:
        assert used & set(LLVM_NAMES.values()) <= llvm.core_features(TRIPLE, core), core


def test_features_that_devices_are_asked_for() -> None:
    """Ask a device for the features that code uses; for any processor of the platform ask for none."""

    def asked(cpu: str, extra: tuple[str, ...] = ()) -> tuple[str, ...]:
        like = PackageLike("a board", "", "", "", None, (), {}, extra)
        return model_target("mali", platform_named("linux-aarch64"), 28, like, cpu=cpu).cpu_features

    assert asked("") == asked("rpi4") == ()
    assert asked("", ("+dotprod",)) == ("asimddp",)
    assert asked("snapdragon-8gen2") == ("asimddp", "asimdhp", "bf16", "i8mm")
    assert asked("cortex-a76,-dotprod") == ("asimdhp",)
    phone = model_target("cpu", platform_named("android-x86_64"), 28, cpu="haswell").cpu_features
    assert {"avx", "avx2", "fma", "f16c"} <= {*phone} and "sse4_2" not in phone, "each such phone has that"
    assert model_target("cpu", platform_named("android-x86_64"), 28).cpu_features == ()


def test_code_for_this_machine_is_for_its_processor() -> None:
    """Use what the kernel reports here, unless another processor is named."""
    host = PLATFORMS["host"]
    own = model_target("cpu", host, 28)
    assert own.spec["mcpu"] == llvm.native()[0] and set(own.cpu_features) <= own_features()
    assert own == model_target("cpu", host, 28, cpu="native")
    generic = model_target("cpu", host, 28, cpu="generic")
    assert generic.spec["mcpu"] == "generic" and generic.cpu_features == ()


def test_native_is_what_this_processor_says(monkeypatch: pytest.MonkeyPatch) -> None:
    core, offers = llvm.native()
    chosen = choice("native", "host")
    triple = PLATFORMS["host"].llvm_triple(28)
    has = llvm.core_features(triple, chosen.core, chosen.features)
    assert chosen.core == core
    assert {name for name in has if offers.get(name) is False} == set(), "nothing that it lacks"
    assert model_target("host", PLATFORMS["host"], 28).spec["mcpu"] == core
    lacking = next(name for name in sorted(llvm.core_features(triple, core)) if offers.get(name))
    monkeypatch.setattr(llvm, "native", lambda: (core, {**offers, lacking: False}))
    assert f"-{lacking}" in choice("native", "host").features, "a hypervisor may hide a feature"


def test_sve_is_warned_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("cortex-x2,-sve", "cortex-x2,+sve2", "snapdragon-8gen2", "cortex-a76", "", "+dotprod"):
        settings_and_platform(load_settings({"compile.cpu": text, "build.platform": "linux-aarch64"}))
    assert caplog.messages == []
    settings_and_platform(load_settings({"compile.cpu": "cortex-x2", "build.platform": "linux-aarch64"}))
    assert len(caplog.messages) == 1 and "--cpu cortex-x2,-sve" in caplog.messages[0]
