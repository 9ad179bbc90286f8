"""`adt generate cpp`: the project as a user has it, built, tested, installed, moved, used and run on a device.

The compilers, CMake and pkg-config are real; the device is the virtual one.
"""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from test_cpp_runner import Built, Package, built, echo, mixed, symbolic  # noqa: F401

import adt
from adt.device.transport.adb import find_adb
from adt.host.directories import resource
from adt.host.elf import read_elf
from adt.host.process import cmake, ninja
from support.devices.fixtures import Rack
from support.devices.programs import adt_json, try_program
from support.devices.programs import program_output as run
from support.models.small import detector, small_model
from support.standins.ndk import make_standin_ndk

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"]
RNG = np.random.default_rng(7)
BYTES = RNG.integers(0, 257, (1, 2048), dtype=np.int32)
X = RNG.standard_normal((1, 4)).astype(np.float32)


def installed_from(project: Path, preset: str, *definitions: str, **env: str) -> Path:
    """Configure, build and install *project* as its README says; return where it was installed."""
    tools = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja().path}"]
    run(cmake().path, "--preset", preset, *tools, *definitions, cwd=project, **env)
    run(cmake().path, "--build", "--preset", preset, cwd=project)
    prefix = project / "out" / preset
    run(cmake().path, "--install", project / "build" / preset, "--prefix", prefix)
    return prefix


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generate two models for this machine and for the device, and remove their packages."""
    directory = tmp_path_factory.mktemp("cpp")
    models = {
        "model": detector(directory / "model.onnx"),
        "small": small_model(directory / "small.onnx"),
    }
    packages, bundles = [], []
    for platform in ("host", "linux-aarch64"):
        bundles.append(adt.build_target(platform=platform).bundle.path)
        for name, model in models.items():
            packages.append(directory / f"{name}-{platform}")
            adt.compile(model, out=packages[-1], platform=platform)
    adt.generate(
        "cpp",
        packages,
        out=directory / "vision",
        java_package="com.example.vision",
        bundles=bundles,
        classes={"model": "Detector"},
    )
    inputs = directory / "inputs"
    inputs.mkdir()
    BYTES.tofile(inputs / "detector.bytes.bin")
    X.tofile(inputs / "small.x.bin")
    for package in packages:
        shutil.rmtree(package)
    return directory / "vision"


@pytest.fixture(scope="module")
def installed(project: Path) -> Path:
    """Return the host's install tree, moved away from where it was installed."""
    flags = f"-DCMAKE_CXX_FLAGS={' '.join(WARNINGS)}"
    prefix = installed_from(project, "host", flags)
    assert "100% tests passed" in run("ctest", "--preset", "host", cwd=project, PATH=path_with_cmake())
    moved = project.parent / "moved to" / "elsewhere"
    moved.parent.mkdir()
    prefix.rename(moved)
    shutil.rmtree(project / "build/host")
    return moved


def path_with_cmake() -> str:
    return f"{cmake().path.parent}:{os.environ['PATH']}"


def check_outputs(outputs: Path, *, tolerance: float) -> None:
    """Check the outputs of the example against onnxruntime's."""
    for model, feed, file in (
        (outputs.parent / "model.onnx", {"bytes": BYTES}, "detector.target_label.bin"),
        (outputs.parent / "small.onnx", {"x": X}, "small.y.bin"),
    ):
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        (expected,) = session.run(None, feed)
        values: NDArray[np.float32] = np.fromfile(outputs / file, np.float32).reshape(expected.shape)
        np.testing.assert_allclose(values, expected, rtol=tolerance, atol=tolerance)


def test_example_matches_onnxruntime_wherever_it_was_moved(project: Path, installed: Path) -> None:
    program = installed / "bin/vision_example"
    outputs = project.parent / "outputs-host"
    outputs.mkdir()
    output = run(program, installed / "share/vision/models", project.parent / "inputs", outputs)
    assert "detector on cpu" in output and "small on cpu" in output
    check_outputs(outputs, tolerance=1e-5)
    assert "detector.target_label: 214 elements" in run(program), "without arguments: zeros, its own models"
    assert read_elf(program).runpath == "$ORIGIN/../lib"
    everything = b"".join(file.read_bytes() for file in installed.rglob("*") if file.is_file())
    assert str(project).encode() not in everything.replace(program.read_bytes(), b"")


def test_device_matches_onnxruntime(project: Path, rack: Rack) -> None:
    prefix = installed_from(
        project, "linux-aarch64", f"-DCMAKE_CXX_FLAGS={' '.join(WARNINGS)}", "-DVISION_TESTS=OFF"
    )
    program = prefix / "bin/vision_example"
    assert (read_elf(program).machine, read_elf(program).runpath) == ("AARCH64", "$ORIGIN/../lib")
    report = adt_json("elf", prefix, "--for", "linux-aarch64")
    assert {file["verdict"] for file in report["files"]} <= {"ok", "skipped"}, report

    device = rack.start("cpp")
    adb = [find_adb().path, "-s", device.serial]
    place = "/data/local/tmp/vision"
    outputs = project.parent / "outputs-device"
    outputs.mkdir()
    run(*adb, "push", prefix, place)
    run(*adb, "push", project.parent / "inputs", f"{place}/inputs")
    run(*adb, "shell", f"mkdir {place}/outputs")
    command = f"cd / && {place}/bin/vision_example {place}/share/vision/models {place}/inputs {place}/outputs"
    assert "detector on cpu" in run(*adb, "shell", command)
    for name in ("detector.target_label.bin", "small.y.bin"):
        run(*adb, "pull", f"{place}/outputs/{name}", outputs)
    check_outputs(outputs, tolerance=1e-4)


USER = r"""
#include <algorithm>
#include <cstdio>
#include <vector>

#include "vision/detector.h"
#include "vision/small.h"

int failures = 0;
void Expect(bool condition, const char* what) {
  if (!condition) std::printf("failed: %s\n", what);
  failures += condition ? 0 : 1;
}
template <typename Function>
void Refused(adt::ErrorKind kind, const char* word, const Function& function) {
  try {
    function();
    Expect(false, word);
  } catch (const adt::Error& error) {
    const bool said = std::string(error.what()).find(word) != std::string::npos;
    Expect(error.kind() == kind && said && !error.remedy().empty(), error.what());
  }
}

int main(int argc, char** argv) {
  const std::string models = argc > 1 ? argv[1] : VISION_MODELS;
  using vision::Small;
  Small model(models + "/small");
  static_assert(std::is_move_constructible_v<Small> && std::is_move_assignable_v<Small>);
  static_assert(!std::is_copy_constructible_v<Small>);
  static_assert(Small::Outputs::YTensor::View::kRank == 2);
  static_assert(Small::Outputs::YTensor::View::kShape[1] == 3);
  Expect(Small::kPackage == model.runner().package(), "the package's name");

  const std::vector<float> x = {1.0F, 2.0F, 3.0F, 4.0F};
  const Small::Outputs outputs = model.run({x});
  const std::vector<float> y(outputs.y.begin(), outputs.y.end());
  Expect(outputs.y(0, 2) == y[2] && y[2] > 0, "an element by its indices");

  Small::Inputs::XTensor bound;  // aligned memory of its own
  std::copy(x.begin(), x.end(), bound.begin());
  model.bind({bound});
  Expect(std::equal(y.begin(), y.end(), model.run().y.begin()), "a bound input");
  bound[3] = 0.0F;
  Expect(model.run().y(0, 2) != y[2], "what is written to a bound array counts");
  Expect(std::equal(y.begin(), y.end(), model.run({x}).y.begin()), "an array again after bind()");

  Small moved = std::move(model);
  Expect(moved.run().y(0, 2) == y[2], "moved");
  Refused(adt::ErrorKind::kInput, "3 elements, not 4", [&] { moved.run({std::vector<float>(3)}); });
  Refused(adt::ErrorKind::kInput, "for the input x", [&] { moved.run({Small::Inputs::XTensor::ConstView()}); });
  Refused(adt::ErrorKind::kMismatch, "is not the one that this class was generated from",
          [&] { Small other(models + "/detector"); });
  Refused(adt::ErrorKind::kPackage, "", [&] { Small other(models + "/none"); });
  return failures;
}
"""


def test_from_another_project_by_cmake_and_by_pkg_config(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "main.cc").write_text(USER)
    (tmp_path / "CMakeLists.txt").write_text(
        """cmake_minimum_required(VERSION 3.23)
project(user LANGUAGES CXX)
find_package(vision 0.1 CONFIG REQUIRED)
add_executable(user main.cc)
target_link_libraries(user PRIVATE vision::vision)
target_compile_definitions(user PRIVATE VISION_MODELS="${vision_MODELS}")
"""
    )
    tools = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja().path}", f"-DCMAKE_CXX_FLAGS={' '.join(WARNINGS)}"]
    run(cmake().path, "-S", tmp_path, "-B", tmp_path / "b", *tools, f"-DCMAKE_PREFIX_PATH={installed}")
    run(cmake().path, "--build", tmp_path / "b")
    run(tmp_path / "b/user")

    environment = {"PKG_CONFIG_PATH": str(installed / "lib/pkgconfig")}
    quoted = run("pkg-config", "--cflags", "--libs", "vision", **environment)
    models = run("pkg-config", "--variable=modelsdir", "vision", **environment).strip().replace("\\", "")
    command = f"g++ main.cc -o user -DVISION_MODELS='\"\"' {quoted.strip()}"
    run("sh", "-c", command, cwd=tmp_path)
    run(tmp_path / "user", models, LD_LIBRARY_PATH=str(installed / "lib"))


EVERY_TYPE = r"""
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "vision/echo.h"
#include "vision/mixed.h"
#include "vision/symbolic.h"

int failures = 0;
void Expect(bool condition, const char* what) {
  if (!condition) std::printf("failed: %s\n", what);
  failures += condition ? 0 : 1;
}
template <typename Array>
void Fill(Array& array) {
  auto* bytes = reinterpret_cast<unsigned char*>(array.data());
  for (std::size_t i = 0; i < array.size() * sizeof(array[0]); ++i) bytes[i] = i * 7 % 3 == 0;
}
template <typename Given, typename Found>
void Same(const Given& given, const Found& found, const char* what) {
  Expect(given.shape() == found.shape() && given.size() == found.size() &&
         std::memcmp(given.data(), found.data(), found.size() * sizeof(found[0])) == 0, what);
}

int main(int, char** argv) {
  const std::string models = argv[1];
  using vision::Echo;
  Echo echo(models + "/echo");
  Echo::Inputs inputs;
@FILL@
  const Echo::Outputs outputs = echo.run(inputs);
@SAME@
  Expect(outputs.relu(2, 1, 3) == in_float32_data(2, 1, 3), "relu");

  vision::Mixed mixed(models + "/mixed");
  const float x[6] = {0, 0, 0, 0, 2, 1};
  const std::array<std::int64_t, 4> n{1, 2, 3, 4};
  const vision::Mixed::Outputs both = mixed.run({x, n});
  Expect(both.m[3] == 8 && both.y(1, 4) > 0 && both.y(0, 4) == 0, "two inputs, two outputs");

  vision::Symbolic symbolic(models + "/symbolic");
  using Inputs = vision::Symbolic::Inputs;
  for (const std::int64_t extent : {2, 5, 1}) {
    Inputs::ATensor a({extent});
    Inputs::BTensor b({extent});
    std::fill(a.begin(), a.end(), 1.0F);
    std::fill(b.begin(), b.end(), 2.0F);
    const vision::Symbolic::Outputs sum = symbolic.run({a, b});
    Expect(sum.z.shape()[0] == extent && sum.z.size() == a.size(), "the shape of this run");
    Expect(std::count(sum.z.begin(), sum.z.end(), 3.0F) == extent, "the sum");
  }
  try {
    const std::vector<float> four(4);
    symbolic.run({{four, {5}}, {four, {4}}});
    Expect(false, "an array that is not of its shape");
  } catch (const adt::Error& error) {
    Expect(error.kind() == adt::ErrorKind::kInput, "the kind of error");
  }
  return failures;
}
"""


def test_every_element_type_and_symbolic_extents(
    built: Built,  # noqa: F811
    echo: Package,  # noqa: F811
    mixed: Package,  # noqa: F811
    symbolic: Package,  # noqa: F811
    tmp_path: Path,
) -> None:
    out = tmp_path / "vision"
    packages = [echo.path, mixed.path, symbolic.path]
    bundles = [built.installed]
    adt.generate("cpp", packages, out=out, java_package="com.example.vision", bundles=bundles)
    specs = echo.manifest.entries[0].inputs
    names = [spec.name for spec in specs]
    fill = [
        f"  Echo::Inputs::{spec.name.title().replace('_', '')}Tensor {spec.name}_data;\n"
        f"  {'std::fill_n' if spec.values else 'Fill'}({spec.name}_data{f'.data(), {spec.name}_data.size(), 1' if spec.values else ''});\n"
        f"  inputs.{spec.name} = {spec.name}_data;"
        for spec in specs
    ]
    same = [f'  Same({name}_data, outputs.{name.replace("in_", "out_")}, "{name}");' for name in names]
    source = EVERY_TYPE.replace("@FILL@", "\n".join(fill)).replace("@SAME@", "\n".join(same))
    (tmp_path / "main.cc").write_text(source)
    bundle = out / "bundles/host"
    options = ["-std=c++17", *WARNINGS, f"-I{out / 'include'}", f"-I{bundle / 'include'}"]
    libraries = [f"-L{bundle / 'lib'}", "-ladt_runner", f"-Wl,-rpath-link,{bundle / 'lib'}"]
    run("g++", *options, "main.cc", "-o", "main", *libraries, cwd=tmp_path)
    run(tmp_path / "main", out / "models/host", LD_LIBRARY_PATH=str(bundle / "lib"))


def test_as_a_part_of_another_project(project: Path, tmp_path: Path) -> None:
    (tmp_path / "main.cc").write_text(USER)
    (tmp_path / "CMakeLists.txt").write_text(
        f"""cmake_minimum_required(VERSION 3.23)
project(user LANGUAGES CXX)
add_subdirectory("{project}" vision)
add_executable(user main.cc)
target_link_libraries(user PRIVATE vision::vision)
file(GENERATE OUTPUT models.txt CONTENT "${{vision_MODELS}}")
"""
    )
    tools = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja().path}", "-DVISION_PLATFORM=host"]
    run(cmake().path, "-S", tmp_path, "-B", tmp_path / "b", *tools)  # that targets exist; compiled above
    assert (tmp_path / "b/models.txt").read_text() == str(project / "models/host")


def test_another_machine_is_refused_in_words(project: Path, tmp_path: Path) -> None:
    words = [cmake().path, "-S", project, "-B", tmp_path, "-G", "Ninja", "-DVISION_PLATFORM=linux-aarch64"]
    done = try_program(*words, f"-DCMAKE_MAKE_PROGRAM={ninja().path}")
    assert done.returncode != 0
    message = " ".join(done.stderr.split())
    assert "is for Linux aarch64, and this build is for Linux x86_64" in message


IMAGES = r"""
#include <cstdio>

#include "adt/image.h"
#include "adt/tensor.h"

template <typename T>
void Write(const T* data, std::size_t count) { std::fwrite(data, sizeof(T), count, stdout); }

int main() {
  adt::Tensor<std::uint16_t, 65536> back;
  adt::Tensor<float, 65536> floats;
  for (std::size_t i = 0; i < back.size(); ++i) {
    floats[i] = adt::ToFloat(adt::Float16{static_cast<std::uint16_t>(i)});
    back[i] = adt::ToFloat16(floats[i]).bits;
  }
  Write(floats.data(), floats.size());
  Write(back.data(), back.size());
  adt::Tensor<std::uint8_t, 5, 7, 4> pixels;  // rows of six pixels, and one that is not of the picture
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 37);
  adt::ImageFormat format;
  format.layout = adt::ImageLayout::kNchw;
  format.color = adt::ImageColor::kBgr;
  format.height = 5;
  format.width = 6;
  format.scale = 1.0F / 255.0F;
  format.mean = {0.5F, 0.25F, 0.125F};
  format.std = {0.5F, 1.0F, 2.0F};
  const adt::Picture picture{pixels.data(), 5, 6, 4, 28};
  adt::Tensor<float, 1, 3, 5, 6> planes;
  adt::FillImage(format, picture, planes);
  Write(planes.data(), planes.size());
  format.layout = adt::ImageLayout::kNhwc;
  format.color = adt::ImageColor::kRgb;
  adt::Tensor<adt::Float16, 1, 5, 6, 3> half;
  adt::FillImage(format, picture, half);
  Write(half.data(), half.size());
  adt::Tensor<std::uint8_t, 1, 5, 6, 3> plain;
  adt::FillImage(format, picture, plain.view());
  Write(plain.data(), plain.size());
  try {
    adt::FillImage(format, {pixels.data(), 5, 0, 4, 28}, plain);
  } catch (const adt::Error&) {
    return 0;
  }
  return 1;
}
"""


def test_pictures_and_half_precision_match_numpy(tmp_path: Path) -> None:
    (tmp_path / "main.cc").write_text(IMAGES)
    include = resource("cpp_runner") / "include"
    # The inline functions of the library are not called, and need not be linked.
    run("g++", "-std=c++17", "-O1", *WARNINGS, f"-I{include}", "main.cc", "-o", "main", cwd=tmp_path)
    out = subprocess.run([tmp_path / "main"], capture_output=True, check=True).stdout
    floats, out = np.frombuffer(out[: 4 << 16], np.float32), out[4 << 16 :]
    halves, out = np.frombuffer(out[: 2 << 16], np.uint16), out[2 << 16 :]
    everything = np.arange(65536, dtype=np.uint16)
    numbers = ~np.isnan(everything.view(np.float16))
    np.testing.assert_array_equal(floats, everything.view(np.float16).astype(np.float32))
    np.testing.assert_array_equal(halves[numbers], everything[numbers])
    assert np.isnan(halves.view(np.float16)[~numbers]).all()

    pixels = (np.arange(5 * 7 * 4) * 37).astype(np.uint8).reshape(5, 7, 4)[:, :6, :3]
    mean, std = np.float32([0.5, 0.25, 0.125]), np.float32([0.5, 1, 2])
    scale = np.float32(1) / np.float32(255)
    planes = ((pixels[..., ::-1].astype(np.float32) * scale - mean) / std).transpose(2, 0, 1)
    half = ((pixels.astype(np.float32) * scale - mean) / std).astype(np.float16)
    sizes = (planes.size * 4, half.size * 2, pixels.size)
    assert len(out) == sum(sizes)
    np.testing.assert_array_equal(np.frombuffer(out[: sizes[0]], np.float32), planes.ravel())
    np.testing.assert_array_equal(np.frombuffer(out[sizes[0] : -sizes[2]], np.float16), half.ravel())
    np.testing.assert_array_equal(np.frombuffer(out[-sizes[2] :], np.uint8), pixels.ravel())


@pytest.mark.nightly
def test_android_preset_builds_with_a_standin_ndk(tmp_path: Path) -> None:
    ndk = str(make_standin_ndk())
    bundle = adt.build_target(platform="android-arm64-v8a", ndk=ndk).bundle.path
    package = tmp_path / "small"
    adt.compile(
        small_model(tmp_path / "s.onnx"), out=package, platform="android-arm64-v8a", ndk=ndk, bundle=bundle
    )
    project_directory = tmp_path / "vision"
    adt.generate("cpp", [package], out=project_directory, java_package="com.example.vision", bundles=[bundle])
    prefix = installed_from(project_directory, "android-arm64-v8a", ANDROID_NDK=ndk)
    program = read_elf(prefix / "bin/vision_example")
    assert (program.machine, program.runpath) == ("AARCH64", "$ORIGIN/../lib")
    assert program.page_alignment >= 16384
    older = [cmake().path, "--preset", "android-arm64-v8a", "-B", "older", "-DANDROID_PLATFORM=android-24"]
    tools = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja().path}"]
    done = try_program(*older, *tools, cwd=project_directory, ANDROID_NDK=ndk)
    assert done.returncode != 0
    assert "needs Android's API level 28 or later, and this build is for 24" in " ".join(done.stderr.split())


@pytest.mark.nightly
def test_outputs_of_an_opencl_device(project: Path, installed: Path, tmp_path: Path) -> None:
    model = project.parent / "small.onnx"
    models = tmp_path / "models"
    adt.compile(model, out=models / "small", platform="host", target="opencl")
    shutil.copytree(installed / "share/vision/models/detector", models / "detector")
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    output = run(installed / "bin/vision_example", models, project.parent / "inputs", outputs)
    assert "small on opencl" in output
    (expected,) = onnxruntime.InferenceSession(model).run(None, {"x": X})
    np.testing.assert_allclose(np.fromfile(outputs / "small.y.bin", np.float32), expected.ravel(), rtol=1e-5)
