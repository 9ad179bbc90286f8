"""Each way in which a bundle, a package and a device do not fit, and what to rebuild then."""

import shlex
from dataclasses import replace

import pytest

from adt.bundle.bundle import BundleManifest
from adt.device.deploy.payload import check_fit
from adt.device.survey import DeviceFacts, parse
from adt.errors import MismatchError
from adt.package.compatibility import check_half, check_own_cpu
from adt.package.manifest import CompilationRecord, PackageManifest
from support.standins.artefacts import bundle_manifest, package_manifest

LINUX = DeviceFacts({"ro.adt.platform": "linux-aarch64"}, "aarch64", 4096)
PHONE = DeviceFacts(
    {"ro.product.cpu.abilist": "arm64-v8a,armeabi-v7a", "ro.build.version.sdk": "28"}, "aarch64", 16384
)
BUNDLE = bundle_manifest()
PACKAGE = package_manifest()
ANDROID = bundle_manifest("android-arm64-v8a", api_level=28)


OTHER = package_manifest("android-arm64-v8a")
OPENCL = replace(PACKAGE, target=replace(PACKAGE.target, device="opencl"))
CUDA = replace(PACKAGE, target=replace(PACKAGE.target, device="cuda"))
CLML, XNNPACK = replace(PACKAGE, offload="clml"), replace(OTHER, offload="xnnpack")
MACHINE = replace(PACKAGE, target=replace(PACKAGE.target, machine="X86_64"))
NEWER_TVM = replace(PACKAGE.tvm, context_symbols=("__TVMFFIHandleInitOnce",), version="0.27.0")


def with_options(bundle: BundleManifest, **options: bool) -> BundleManifest:
    return replace(bundle, options=replace(bundle.options, **options))


@pytest.mark.parametrize(
    ("bundle", "package", "facts"),
    [
        (BUNDLE, PACKAGE, LINUX),
        (BUNDLE, None, LINUX),
        (ANDROID, OTHER, PHONE),
        (BUNDLE, replace(PACKAGE, alignment=16), LINUX),
        (with_options(BUNDLE, opencl=True), OPENCL, LINUX),
        (with_options(BUNDLE, cuda=True), CUDA, LINUX),
        (with_options(BUNDLE, clml=True), CLML, LINUX),
        (with_options(ANDROID, xnnpack=True), XNNPACK, PHONE),
    ],
)
def test_what_fits_passes(bundle: BundleManifest, package: PackageManifest, facts: DeviceFacts) -> None:
    check_fit(bundle, package, facts, serial="S")


def refused(bundle: BundleManifest, package: PackageManifest | None, facts: DeviceFacts) -> MismatchError:
    with pytest.raises(MismatchError) as caught:
        check_fit(bundle, package, facts, serial="S")
    return caught.value


BUILD, COMPILE = "adt build-target --for android-arm64-v8a", "adt compile MODEL --for android-arm64-v8a"


@pytest.mark.parametrize(
    ("bundle", "package", "facts", "message", "remedies"),
    [
        (BUNDLE, OTHER, LINUX, "linux-aarch64", ("adt compile toy.onnx --for linux-aarch64", BUILD)),
        (BUNDLE, MACHINE, LINUX, "X86_64", ()),
        (
            *(BUNDLE, replace(PACKAGE, tvm=NEWER_TVM), LINUX),
            *("__TVMFFIHandleInitOnce", ("0.27.0", BUNDLE.tvm.version)),
        ),
        (BUNDLE, replace(PACKAGE, alignment=64), LINUX, "", ("--alignment 64",)),
        (BUNDLE, OPENCL, LINUX, "", ("--opencl", "--target cpu")),
        (BUNDLE, CUDA, LINUX, "", ("--for linux-aarch64 --cuda", "--target cpu")),
        (BUNDLE, CLML, LINUX, "CLML", ("--for linux-aarch64 --clml SDK", "--offload none")),
        (
            *(with_options(BUNDLE, clml=True), replace(PACKAGE, offload="clml,xnnpack"), LINUX),
            *("XNNPACK", ("--offload clml",)),
        ),
        (ANDROID, XNNPACK, PHONE, "XNNPACK", (f"{BUILD} --xnnpack",)),
        (BUNDLE, PACKAGE, PHONE, "device S runs android-arm64-v8a", (BUILD, COMPILE)),
        (ANDROID, None, LINUX, "", ("linux-aarch64",)),
        (replace(ANDROID, api_level=31), None, PHONE, "", ("--api-level 28",)),
        (replace(ANDROID, page_alignment=4096), None, PHONE, "16384", ()),
    ],
)
def test_what_does_not_fit_is_refused_with_its_remedies(
    bundle: BundleManifest,
    package: PackageManifest | None,
    facts: DeviceFacts,
    message: str,
    remedies: tuple[str, ...],
) -> None:
    error = refused(bundle, package, facts)
    assert message in error.what
    assert [remedy for remedy in remedies if remedy not in error.remedy] == []


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
    """Compare all CPUs that the kernel lists: those of one chip may differ."""
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
