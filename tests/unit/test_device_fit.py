"""Each way in which a bundle, a package and a device do not fit, and what to rebuild then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adt.device.device import DeviceFacts
from adt.device.fit import check_fit
from adt.errors import MismatchError
from standin_payload import bundle_manifest, package_manifest

LINUX = DeviceFacts({"ro.adt.platform": "linux-aarch64"}, "aarch64", 4096)
PHONE = DeviceFacts(
    {"ro.product.cpu.abilist": "arm64-v8a,armeabi-v7a", "ro.build.version.sdk": "28"}, "aarch64", 16384
)
BUNDLE = bundle_manifest()
PACKAGE = package_manifest()
ANDROID = replace(bundle_manifest("android-arm64-v8a"), api_level=28)


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


def test_a_clml_package_on_a_bundle_without_clml() -> None:
    assert "CLML" in refused(BUNDLE, replace(PACKAGE, offload="clml"), LINUX).what


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
