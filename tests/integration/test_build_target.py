"""The cross-build: what it makes, when it does nothing, what it says when it cannot."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

import adt
from adt.bundle.build import ELSEWHERE, UP_TO_DATE, sources_of
from adt.bundle.bundle import MANIFEST, TargetBundle, load_bundle
from adt.compiler.importers.functions import unregistered
from adt.host import manifest
from adt.host.directories import resource
from adt.host.elf import read_elf
from adt.host.ndk import LOWEST_API_LEVEL
from adt.host.process import ninja
from support.codegen.bionic_levels import LEVELS
from support.devices.programs import ADT, adt_json, command_lines, forked_adt, program_output, real_program
from support.devices.programs import adt as run_adt
from support.standins.ndk import DESCRIPTION, make_standin_ndk
from support.waiting import wait_for

GLIBCS = {
    "pthread_setaffinity_np": "TVM calls it where __ANDROID__ is not defined",
    "stdout": "a macro below level 23",
    "stderr": "a macro below level 23",
}
"""Symbols that only a build for glibc uses, although bionic has them above the lowest level, and why."""
MOST_TVM_SOURCES = 75
"""TVM's runtime, its RPC server and tvm-ffi; the whole of TVM is 557."""

LINUX, HOST, ANDROID = PLATFORMS = ("linux-aarch64", "host", "android-arm64-v8a")


def at(platform: str, *values: object, nightly: bool = False) -> ParameterSet:
    """Return parameters whose test runs in the process of all tests that use or damage *platform*'s bundle."""
    marks = [pytest.mark.xdist_group(platform), *([pytest.mark.nightly] if nightly else [])]
    return pytest.param(platform, *values, marks=marks)


@pytest.fixture(scope="session")
def standin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create the NDK stand-in at a permanent path, so that a second run of the tests builds nothing."""
    from adt.host.cache import cache_dir

    return make_standin_ndk(cache_dir() / "tests/ndk-standin")


@pytest.fixture(scope="session", params=[at(platform) for platform in PLATFORMS])
def built(request: pytest.FixtureRequest) -> dict[str, Any]:
    ndk = ["--ndk", request.getfixturevalue("standin")] if request.param == ANDROID else []
    arguments = ["--for", request.param, *ndk]
    return built_here(*arguments) | {"arguments": arguments}


def built_here(*arguments: object) -> dict[str, Any]:
    """Return the document of a build that was the last one in its directory.

    Another checkout, or a build with other options, may have been the last one in a cache that was used before.
    """
    document = adt_json("build-target", *arguments)
    if adt_json("build-target", *arguments, "--explain")["steps"] == [ELSEWHERE]:
        Path(document["path"], MANIFEST).unlink()
        document = adt_json("build-target", *arguments)
    return document


def linked(source: str, copy: str) -> None:
    """Link *source* as *copy*; copy it where that is another file system, as /tmp may be."""
    try:
        os.link(source, copy)
    except OSError:
        shutil.copy2(source, copy)


@contextmanager
def damaged(file: Path, contents: bytes) -> Iterator[None]:
    """Put *contents* into a *file* that other tests use, too; if they stay, put back what was there."""
    before = file.read_bytes()
    file.write_bytes(contents)
    try:
        yield
    finally:
        if file.is_file() and file.read_bytes() == contents:
            file.write_bytes(before)


def test_the_installed_wheel_carries_its_sources() -> None:
    checkout = Path(__file__).resolve().parents[2]
    package = Path(adt.__file__).resolve()
    assert checkout / "toolchain" not in package.parents, "the tests must run what `pip install .` installed"
    for name in (
        "cmake_presets/CMakePresets.json",
        "cpp_runner/CMakeLists.txt",
        "cpp_runner/java/common/java/org/adt/runtime/Tensor.java",
        "templates/adt.toml.j2",
    ):
        top, _, rest = name.partition("/")
        assert package.parent in resource(top).parents
        assert (resource(top) / rest).read_bytes() == (checkout / name).read_bytes()


def test_a_bundle_is_complete_and_would_load(built: dict[str, Any]) -> None:
    bundle = load_bundle(Path(built["path"]))
    facts = bundle.manifest
    assert set(facts.files) >= {
        "bin/adt_probe",
        "bin/rtvm",
        "bin/tvm_rpc",
        "lib/libadt_runner.so",
        "lib/libtvm_ffi.so",
        "lib/libtvm_runtime.so",
    }
    device = facts.platform != "host"
    assert facts.options.alignment == (32 if device else 64)
    assert facts.options.opencl and facts.options.rpc and facts.options.build_type == "Release"
    assert "__TVMBackendGetFuncFromEnv" in facts.context_symbols
    names = {Path(name).name for name in facts.files}
    for name in facts.files:
        elf = read_elf(bundle.file(name))
        assert elf.machine == facts.machine
        assert elf.page_alignment >= (16384 if device else 4096)
        if Path(name).name != "libc++_shared.so":  # the NDK's own file, which names no path
            assert elf.runpath in ("$ORIGIN", "$ORIGIN/../lib")
        own = [needed for needed in elf.needed if needed.startswith(("libtvm", "libadt"))]
        assert set(own) <= names
        sections = program_output("readelf", "-SW", bundle.file(name))
        assert ".symtab" not in sections and ".debug_info" not in sections


def test_a_bundle_names_the_functions_that_its_runtime_registers(built: dict[str, Any]) -> None:
    """Compare names read from the sources with those that this machine's libraries register."""
    import tvm.relax  # noqa: F401  # registers more, in Python
    import tvm_ffi

    bundle = load_bundle(Path(built["path"]))
    named = set(bundle.manifest.functions)
    assert {"vm.builtin.reshape", "tvm.contrib.sort.topk", "device_api.opencl"} <= named
    assert "relax.run.shape_to_tensor" not in named
    if bundle.manifest.platform != "host":
        return
    others = {name for name in tvm_ffi.registry.list_global_func_names() if "." in name} - named
    libraries = [bundle.file(f"lib/lib{name}.so") for name in ("tvm_ffi", "tvm_runtime", "adt_runner")]
    assert unregistered(libraries, sorted(named)) == ()
    assert set(unregistered(libraries, sorted(others))) == others


def test_only_the_needed_files_are_compiled(built: dict[str, Any]) -> None:
    ask = [ninja().path, "-C", built["build_dir"], "-t"]
    commands = json.loads(program_output(*ask, "compdb"))
    needed = program_output(*ask, "inputs", "all").split()
    units = [c for c in commands if c["output"].endswith(".o") and c["output"] in needed]
    ours = "source/cmake_presets/src"  # which adt adds to TVM's runtime
    tvm = [c for c in units if c["output"].startswith("tvm/") and ours not in c["file"]]
    sources = [file for c in tvm for file in sources_of(Path(c["directory"]) / c["file"])]
    assert len(tvm) < MOST_TVM_SOURCES / 2, "most of TVM's sources are joined"
    assert 60 < len(sources) <= MOST_TVM_SOURCES
    assert not [file for file in sources if "disco" in file.parts or "kv_" in file.name]
    assert len([c for c in commands if c["output"].endswith(".o")]) > 400, "the whole of TVM is in the graph"


def test_nothing_is_built_twice(built: dict[str, Any]) -> None:
    again = adt_json("build-target", *built["arguments"])
    assert again["reused"] and again["compiled"] == 0
    assert again["bundle"] == built["bundle"]


def test_a_copied_cache_has_its_bundles(
    tmp_path: Path, built: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Configure, compile and pack nothing again, even with the compiler at another path."""
    source = Path(os.environ["ADT_CACHE_DIR"]) / "tvm-source"
    shutil.copytree(source, tmp_path / "tvm-source", copy_function=linked, symlinks=True)
    shutil.copytree(built["path"], tmp_path / "bundles" / Path(built["path"]).name)
    (tmp_path / "bin").mkdir()
    for compiler in ("aarch64-linux-gnu-g++", "c++"):
        (tmp_path / "bin" / compiler).symlink_to(str(real_program(compiler)))
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    explained = adt_json("build-target", *built["arguments"], "--explain")["steps"]
    assert explained == [
        "nothing: the bundle is up to date; what was built here last had other paths or options"
    ]
    copied = adt_json("build-target", *built["arguments"])
    assert copied["reused"] and copied["bundle"] == built["bundle"]
    assert Path(copied["path"]).parent == tmp_path / "bundles"
    assert not (Path(copied["build_dir"]) / "CMakeCache.txt").exists()


@pytest.mark.parametrize("built", [at(ANDROID)], indirect=True)
def test_the_android_bundle_names_the_standin(built: dict[str, Any]) -> None:
    assert built["bundle"]["ndk_revision"] == "27.0.0"
    assert built["bundle"]["api_level"] == 28
    assert "STAND-IN" in DESCRIPTION


def changed(**fields: object) -> Callable[[TargetBundle], bytes]:
    """Return a function that writes a bundle's manifest with other *fields*."""
    return lambda bundle: manifest.dumps(replace(bundle.manifest, **fields)).encode()


LIBRARY = "lib/libtvm_ffi.so"
DAMAGES: dict[str, tuple[str, Callable[[TargetBundle], bytes]]] = {
    "a damaged library": (LIBRARY, lambda bundle: bundle.file(LIBRARY).read_bytes()[:1000]),
    # An older adt did not tell which functions its runtime has, or tells other sources: a change may compile nothing.
    "without functions": (MANIFEST, changed(functions=())),
    "of other sources": (MANIFEST, changed(sources="0" * 64)),
}
"""Name of the changed file, and its contents."""


@pytest.mark.parametrize(
    ("built", "damage"),
    [
        at(platform, damage, nightly=row != column)
        for row, platform in enumerate(PLATFORMS)
        for column, damage in enumerate(DAMAGES)
    ],
    indirect=["built"],
)
def test_a_bundle_that_is_damaged_or_of_an_older_adt_is_packed_again(
    built: dict[str, Any], damage: str
) -> None:
    path = Path(built["path"])
    bundle = load_bundle(path)
    name, contents = DAMAGES[damage]
    with damaged(path / name, contents(bundle)):
        done = run_adt("build-target", *built["arguments"], "--json")
        again = json.loads(done.stdout)
        assert not again["reused"] and again["compiled"] == 0
        assert ("packing it again" in done.stderr) == (name == LIBRARY)
        mended = load_bundle(path).manifest
        # The first build downloads the source, and the next finds it in the cache.
        provider = bundle.manifest.tvm.source_provider
        assert replace(mended, tvm=replace(mended.tvm, source_provider=provider)) == bundle.manifest


@pytest.mark.xdist_group(LINUX)
def test_out_never_replaces_what_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    done = run_adt("build-target", "--for", "linux-aarch64", "-o", tmp_path)
    assert done.returncode == 11 and "left alone" in done.stderr
    assert (tmp_path / "precious").read_text() == "x"
    out = tmp_path / "bundle"
    for _ in range(2):
        assert run_adt("build-target", "--for", "linux-aarch64", "-o", out).returncode == 0
    load_bundle(out)


@pytest.mark.xdist_group(LINUX)
def test_two_builds_at_once_wait_for_each_other() -> None:
    words = [forked_adt(str(ADT)), "build-target", "--for", "linux-aarch64"]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
    assert [process.wait(timeout=600) for process in both] == [0, 0]


def test_no_cross_compiler(tmp_path: Path) -> None:
    """Print the package of the cross compiler that PATH lacks."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sh").symlink_to("/bin/sh")
    done = run_adt("build-target", "--for", "linux-aarch64", env=os.environ | {"PATH": str(tmp_path / "bin")})
    assert done.returncode == 4
    assert "apt-get install g++-aarch64-linux-gnu" in done.stderr


def test_a_failing_compiler_shows_command_code_and_tail(tmp_path: Path) -> None:
    (tmp_path / "aarch64-linux-gnu-g++").write_text("#!/bin/sh\necho this compiler is broken >&2\nexit 7\n")
    (tmp_path / "aarch64-linux-gnu-g++").chmod(0o755)
    environ = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = run_adt("build-target", "--for", "linux-aarch64", env=environ)
    assert done.returncode == 7
    assert "this compiler is broken" in done.stderr and "configure.log" in done.stderr


def test_interrupting_a_build_leaves_no_process_and_loses_nothing(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    source = Path(os.environ["ADT_CACHE_DIR"]) / "tvm-source"
    shutil.copytree(source, cache / "tvm-source", copy_function=linked, symlinks=True)
    # A ccache that has the objects, or an sccache, would start no compiler of ours.
    environ = {**os.environ, "ADT_CACHE_DIR": str(cache), "CMAKE_CXX_COMPILER_LAUNCHER": "env"}
    words = [str(ADT), "build-target", "--for", "linux-aarch64"]
    child = subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(
        lambda: any("cc1plus" in line for line in command_lines(str(cache)).values()),
        "the start of a compiler",
        300,
    )
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=300)
    assert child.returncode == 130 and "interrupted" in errors and "Traceback" not in errors
    wait_for(lambda: not command_lines(str(cache)), "the end of all that it started")
    assert not list((cache / "bundles").glob("*")) if (cache / "bundles").exists() else True


def test_explain_says_what_and_why(built: dict[str, Any]) -> None:
    explained = adt_json("build-target", *built["arguments"], "--explain")
    assert explained["steps"] == [UP_TO_DATE]
    other = adt_json("build-target", *built["arguments"], "--alignment", 128, "--explain")["steps"]
    assert other[0].startswith("configure") and "USE_KALLOC_ALIGNMENT" in other[0] and "→ 128" in other[0]


def test_explain_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = adt_json("source")["path"]
    monkeypatch.setenv("ADT_CACHE_DIR", str(tmp_path / "cache"))
    explained = adt_json("build-target", "--for", "host", "--tvm-source", source, "--explain")
    assert "nothing was built for host before" in explained["steps"][0]
    assert not (tmp_path / "cache/build").exists() and not (tmp_path / "cache/bundles").exists()


@pytest.mark.parametrize("built", [at(ANDROID)], indirect=True)
def test_what_is_called_is_in_bionic_from_the_lowest_level_on(built: dict[str, Any]) -> None:
    """Check a build with Debian's clang, which lacks the parts for Android alone."""
    bundle = load_bundle(Path(built["path"]))
    undefined: set[str] = set()
    for name in (*bundle.manifest.files, *bundle.manifest.app_files):
        undefined |= set(read_elf(bundle.file(name)).undefined)
    later = {name for name in undefined if LEVELS.get(name, 0) > LOWEST_API_LEVEL}
    assert later - GLIBCS.keys() == set()


@pytest.mark.xdist_group(HOST)
def test_a_changed_runner_source_recompiles_that_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from adt.bundle import build

    for name in ("cmake_presets", "cpp_runner"):
        shutil.copytree(resource(name), tmp_path / name)
    built_here("--for", "host")
    monkeypatch.setattr(build, "resource", lambda name: tmp_path / name)
    (tmp_path / "cpp_runner/tests").mkdir(exist_ok=True)
    (tmp_path / "cpp_runner/tests/another.c").touch()
    assert adt.build_target(platform="host").reused, "the runner's own tests are no part of a bundle"
    changed = tmp_path / "cpp_runner/src/sha256.cc"
    changed.write_text(changed.read_text() + "// a comment\n")
    result = adt.build_target(platform="host")
    assert result.compiled == 1
    monkeypatch.undo()
    again = adt.build_target(platform="host")
    assert again.compiled == 1, "put back: the same file once more"
    assert adt.build_target(platform="host").reused


@pytest.mark.xdist_group(ANDROID)
def test_libraries_laid_out_for_an_app(standin: Path, tmp_path: Path) -> None:
    words = ("build-target", "--abi", "arm64-v8a", "--layout", "jni", "--ndk", standin)
    for _ in range(2):
        assert run_adt(*words, "-o", tmp_path / "app").returncode == 0
    libraries = {path.name for path in (tmp_path / "app/jniLibs/arm64-v8a").iterdir()}
    assert {"libtvm_runtime.so", "libtvm_ffi.so", "libadt_runner.so"} <= libraries
    assert {path.name for path in (tmp_path / "app/include/adt").iterdir()} >= {"adt_runner.h", "runner.h"}
    assert json.loads((tmp_path / "app/arm64-v8a.bundle.json").read_text())["abi"] == "arm64-v8a"
    done = run_adt("build-target", "--abi", "arm64-v9", "--ndk", standin)
    assert done.returncode == 3 and "android-arm64-v8a" in done.stderr
    done = run_adt("build-target", "--abi", "arm64-v8a", "--layout", "jna", "--ndk", standin)
    assert done.returncode == 3 and "bundle, jni" in done.stderr


def compiler_cache(settings: str) -> list[str]:
    """Return the path of the ccache or sccache that CMake's *settings* name, if any."""
    return re.findall(r"^ADT_COMPILER_CACHE_PROGRAM:\w+=(/.*)$", settings, re.MULTILINE)


@pytest.mark.xdist_group(HOST)
def test_a_compiler_cache_that_is_gone_does_not_stop_the_build() -> None:
    """Let CMake find this machine's compiler cache then, if there is one."""
    cache_file = Path(adt_json("build-target", "--for", "host")["build_dir"]) / "CMakeCache.txt"
    before = cache_file.read_text()
    others = re.sub(r"^ADT_COMPILER_CACHE_PROGRAM:.*\n", "", before, flags=re.MULTILINE)
    cache_file.write_text(others + "ADT_COMPILER_CACHE_PROGRAM:FILEPATH=/gone/ccache\n")
    try:
        explained = adt_json("build-target", "--for", "host", "--explain")["steps"]
        assert "/gone/ccache is gone" in explained[0]
        compiled = adt_json("build-target", "--for", "host")["compiled"]
        after = cache_file.read_text()
        assert "/gone/ccache" not in after
    except BaseException:
        cache_file.unlink(missing_ok=True)  # the next build configures afresh
        raise
    assert (compiled == 0) == (compiler_cache(after) == compiler_cache(before)), "for the same commands"
