"""Each way in which a bundle, a package and a device do not fit, and what to rebuild then."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from adt.device.deploy.payload import check_fit
from adt.device.survey import DeviceFacts, parse
from adt.errors import MismatchError
from adt.package.compatibility import check_half, check_own_cpu
from adt.package.manifest import CompilationRecord
from support.standins.artefacts import bundle_manifest, package_manifest

LINUX = DeviceFacts({"ro.adt.platform": "linux-aarch64"}, "aarch64", 4096)
PHONE = DeviceFacts(
    {"ro.product.cpu.abilist": "arm64-v8a,armeabi-v7a", "ro.build.version.sdk": "28"}, "aarch64", 16384
)
BUNDLE = bundle_manifest()
PACKAGE = package_manifest()
ANDROID = bundle_manifest("android-arm64-v8a", api_level=28)


def test_what_fits_passes() -> None:
    check_fit(BUNDLE, PACKAGE, LINUX, serial="S")
    check_fit(BUNDLE, None, LINUX, serial="S")
    check_fit(ANDROID, package_manifest("android-arm64-v8a"), PHONE, serial="S")


def refused(bundle: object, package: object, facts: DeviceFacts) -> MismatchError:
    with pytest.raises(MismatchError) as caught:
        check_fit(bundle, package, facts, serial="S")  # type: ignore[arg-type]
    return caught.value


def test_a_package_for_another_platform() -> None:
    error = refused(BUNDLE, package_manifest("android-arm64-v8a"), LINUX)
    assert "android-arm64-v8a" in error.what and "linux-aarch64" in error.what
    assert "adt compile toy.onnx --for linux-aarch64" in error.remedy
    assert "adt build-target --for android-arm64-v8a" in error.remedy


def test_a_package_for_another_machine() -> None:
    target = replace(PACKAGE.target, machine="X86_64")
    assert "X86_64" in refused(BUNDLE, replace(PACKAGE, target=target), LINUX).what


def test_a_module_abi_that_the_runner_does_not_have() -> None:
    tvm = replace(PACKAGE.tvm, context_symbols=("__TVMFFIHandleInitOnce",), version="0.27.0")
    error = refused(BUNDLE, replace(PACKAGE, tvm=tvm), LINUX)
    assert "__TVMFFIHandleInitOnce" in error.what
    assert "0.27.0" in error.remedy and BUNDLE.tvm.version in error.remedy


def test_a_package_that_assumes_more_alignment_than_the_runtime_gives() -> None:
    error = refused(BUNDLE, replace(PACKAGE, alignment=64), LINUX)
    assert "--alignment 64" in error.remedy


def test_less_alignment_is_fine() -> None:
    check_fit(BUNDLE, replace(PACKAGE, alignment=16), LINUX, serial="S")


def test_an_opencl_package_on_a_bundle_without_opencl() -> None:
    package = replace(PACKAGE, target=replace(PACKAGE.target, device="opencl"))
    error = refused(BUNDLE, package, LINUX)
    assert "--opencl" in error.remedy and "--target cpu" in error.remedy
    check_fit(replace(BUNDLE, options=replace(BUNDLE.options, opencl=True)), package, LINUX, serial="S")


def test_a_cuda_package_on_a_bundle_without_cuda() -> None:
    package = replace(PACKAGE, target=replace(PACKAGE.target, device="cuda"))
    error = refused(BUNDLE, package, LINUX)
    assert "--for linux-aarch64 --cuda" in error.remedy and "--target cpu" in error.remedy
    check_fit(replace(BUNDLE, options=replace(BUNDLE.options, cuda=True)), package, LINUX, serial="S")


def test_a_clml_package_on_a_bundle_without_clml() -> None:
    error = refused(BUNDLE, replace(PACKAGE, offload="clml"), LINUX)
    assert "CLML" in error.what
    assert "adt build-target --for linux-aarch64 --clml SDK" in error.remedy
    assert "--offload none" in error.remedy
    able = replace(BUNDLE, options=replace(BUNDLE.options, clml=True))
    check_fit(able, replace(PACKAGE, offload="clml"), LINUX, serial="S")
    error = refused(able, replace(PACKAGE, offload="clml,xnnpack"), LINUX)
    assert "XNNPACK" in error.what and "--offload clml" in error.remedy


def test_an_xnnpack_package_on_a_bundle_without_xnnpack() -> None:
    package = replace(package_manifest("android-arm64-v8a"), offload="xnnpack")
    error = refused(ANDROID, package, PHONE)
    assert "XNNPACK" in error.what
    assert "adt build-target --for android-arm64-v8a --xnnpack" in error.remedy
    check_fit(replace(ANDROID, options=replace(ANDROID.options, xnnpack=True)), package, PHONE, serial="S")


def test_code_for_other_processors_than_the_devices() -> None:
    package = replace(PACKAGE, target=replace(PACKAGE.target, cpu_features=("asimddp", "i8mm")))
    old = replace(LINUX, cpu_features=frozenset({"asimd", "asimdhp", "asimddp"}))
    error = refused(BUNDLE, package, old)
    assert "CPUs with i8mm, which those of device S lack" in error.what
    assert "--like S" in error.remedy and "--for linux-aarch64 --cpu generic" in error.remedy
    check_fit(BUNDLE, package, replace(old, cpu_features=old.cpu_features | {"i8mm"}), serial="S")
    check_fit(BUNDLE, package, LINUX, serial="S")  # a device that does not say, such as a virtual one
    check_fit(BUNDLE, PACKAGE, old, serial="S")


def test_code_for_other_processors_than_this_machines() -> None:
    package = package_manifest("host")
    check_own_cpu(package)
    newer = replace(package, target=replace(package.target, cpu_features=("avx4096", "sve9")))
    with pytest.raises(
        MismatchError, match="CPUs with avx4096, sve9, which those of this machine lack"
    ) as caught:
        check_own_cpu(newer)
    assert "adt compile toy.onnx --for host" in caught.value.remedy


def test_what_every_cpu_of_a_device_offers() -> None:
    """The kernel lists each CPU; those of one chip may differ."""
    text = (
        "==machine==\naarch64\n==page==\n4096\n==features==\n"
        "Features\t: fp asimd asimdhp asimddp\nFeatures\t: fp asimd asimdhp\n==properties==\n[ro.x]: [y]\n"
    )
    facts = parse(text).facts
    assert facts.cpu_features == {"fp", "asimd", "asimdhp"}
    assert (facts.machine, facts.page_size, facts.properties) == ("aarch64", 4096, {"ro.x": "y"})
    assert parse("==machine==\nx86_64\n==page==\n4096\n==features==\n").facts.cpu_features == frozenset()
    text = "==machine==\n{}\n==features==\nflags\t\t: fpu sse avx2\nflags\t\t: fpu avx2\n==properties==\n"
    assert parse(text.format("x86_64")).facts.cpu_features == {"fpu", "avx2"}
    emulated = parse(text.format("aarch64")).facts.cpu_features
    assert emulated == frozenset(), "these are the flags of the machine that emulates it"


def test_a_linux_bundle_on_a_phone() -> None:
    error = refused(BUNDLE, PACKAGE, PHONE)
    assert "device S runs android-arm64-v8a" in error.what
    assert "adt build-target --for android-arm64-v8a" in error.remedy
    assert "adt compile MODEL --for android-arm64-v8a" in error.remedy


def test_an_android_bundle_on_the_virtual_device() -> None:
    assert "linux-aarch64" in refused(ANDROID, None, LINUX).remedy


def test_an_api_level_that_the_device_does_not_reach() -> None:
    assert "--api-level 28" in refused(replace(ANDROID, api_level=31), None, PHONE).remedy


def test_pages_of_the_device_that_are_larger_than_the_files_alignment() -> None:
    error = refused(replace(ANDROID, page_alignment=4096), None, PHONE)
    assert "16384" in error.what


@pytest.mark.parametrize("precision", ["float16", "float16_acc32"])
def test_half_kernels_on_an_opencl_without_half_precision(precision: str) -> None:
    target = replace(PACKAGE.target, name="opencl", device="opencl")
    package = replace(PACKAGE, precision=precision, target=target)
    with pytest.raises(MismatchError, match="Adreno 330 of device S does not") as caught:
        check_half(package, "Adreno 330 of device S", fp16=False)
    assert "--target opencl --precision float32" in caught.value.remedy
    check_half(package, "S", fp16=True)
    check_half(replace(package, precision="float32"), "S", fp16=False)
    check_half(replace(PACKAGE, precision=precision), "S", fp16=False)  # on the CPU it always runs


def test_a_function_that_the_runtime_lacks() -> None:
    package = package_manifest("android-arm64-v8a")
    calls = replace(package, made=replace(package.made, functions=("vm.builtin.copy", "relax.run.unique")))
    knows = replace(ANDROID, functions=("vm.builtin.copy",))

    error = refused(knows, calls, PHONE)

    assert "relax.run.unique" in error.what and "vm.builtin.copy" not in error.what
    check_fit(ANDROID, calls, PHONE, serial="S")
    check_fit(knows, package, PHONE, serial="S")


def test_a_model_in_half_precision_on_an_opencl_without_it() -> None:
    target = replace(PACKAGE.target, name="opencl", device="opencl")
    package = replace(PACKAGE, precision="float32", target=target, made=CompilationRecord(half=True))
    with pytest.raises(MismatchError, match="as the model itself does") as caught:
        check_half(package, "PoCL", fp16=False)
    assert "--target cpu" in caught.value.remedy and "--precision" not in caught.value.remedy


@pytest.mark.parametrize("file", ["a b.onnx", "x.onnx; echo $(id) #", "-o", "it's.onnx"])
def test_a_remedy_takes_no_strangers_file_name_for_the_shells_language(file: str) -> None:
    package = replace(PACKAGE, source=replace(PACKAGE.source, file=file))
    facts = replace(LINUX, cpu_features=frozenset({"neon"}))
    package = replace(package, target=replace(package.target, cpu_features=("sve",)))
    command = refused(BUNDLE, package, facts).remedy.partition(": ")[2].partition("; or for any CPU")[0]
    words = shlex.split(command)
    assert words[:2] == ["adt", "compile"] and words[2].removeprefix("./") == file and words[3] == "--like"
    assert not words[2].startswith("-")
