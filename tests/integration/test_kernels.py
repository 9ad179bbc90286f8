"""The tutorials' ``add_one``: kernels without a model, compiled for each kind of device and run over RPC."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

import adt
from adt.compiler.kernels import CompiledKernel
from adt.errors import CompileError, ConfigError, MismatchError, ModelError
from adt.host.elf import read_elf
from support.devices.fixtures import Rack
from support.standins.ndk import make_standin_ndk

LENGTH = 1000
"""No multiple of a work group: a schedule must guard the rest."""


def add_one() -> list[Any]:
    a = te.placeholder((LENGTH,), "float32", name="A")
    return [a, te.compute((LENGTH,), lambda i: a[i] + 1.0, name="B")]


def two_kernels() -> Any:
    """Return a module of two functions, one of which is bound to threads already, as the tutorials' is."""

    plain = te.create_prim_func(add_one())
    schedule = tvm.s_tir.Schedule(plain)
    outer, inner = schedule.split(schedule.get_loops(schedule.get_sblock("B"))[0], [None, 32])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
    named = {"plain": plain, "bound": schedule.mod["main"]}
    return tvm.IRModule({name: function.with_attr("global_symbol", name) for name, function in named.items()})


def check(remote: Any, library: CompiledKernel) -> None:
    remote.upload(str(library.path))
    module = remote.load_module(library.path.name)
    device = remote.cl(0) if library.device == "opencl" else remote.cpu(0)
    data = np.random.default_rng(0).random(LENGTH, dtype=np.float32)
    for name in library.functions:
        a = tvm.runtime.tensor(data, device)
        b = tvm.runtime.tensor(np.zeros(LENGTH, np.float32), device)
        module[name](a, b)
        np.testing.assert_array_equal(b.numpy(), data + 1)


@pytest.fixture
def no_servers() -> Iterator[None]:
    yield
    adt.rpc_stop(all=True)


def test_on_an_arm64_device(rack: Rack, no_servers: None, tmp_path: Path) -> None:
    bundle = adt.build_target(platform="linux-aarch64").bundle.path
    library = adt.compile_kernel(
        add_one(), name="add_one", platform="linux-aarch64", cpu="cortex-a53", out=tmp_path / "add_one.so"
    )
    assert (library.functions, library.device, library.alignment) == (("add_one",), "cpu", 32)
    serial = rack.start("kernels").serial
    started = adt.rpc_start(serial=serial, bundle=bundle, use_tracker=False, key="board")
    with adt.rpc_session(address=started.address, key="board", timeout=300) as remote:
        check(remote, library)


def test_on_an_opencl_device(no_servers: None, tmp_path: Path) -> None:
    """Run in PoCL on a virtual device: one kernel with a schedule of ours, one with its own."""
    bundle = adt.build_target(platform="host").bundle.path
    library = adt.compile_kernel(
        two_kernels(), platform="host", target="opencl -device=mali", out=tmp_path / "two.so"
    )
    assert (library.functions, library.device, library.target) == (("bound", "plain"), "opencl", "mali")
    info = adt.emulator_start("opencl-kernels", abi="x86_64", opencl=True)
    try:
        started = adt.rpc_start(serial=info.serial, bundle=bundle, use_tracker=False, key="gpu")
        with adt.rpc_session(address=started.address, key="gpu", timeout=300) as remote:
            check(remote, library)
        adt.rpc_stop(serial=info.serial)
    finally:
        adt.emulator_stop(info.name)


def test_an_opencl_kernels_constants_have_all_their_digits(tmp_path: Path) -> None:
    a = te.placeholder((LENGTH,), "float32", name="A")
    kernel = [a, te.compute((LENGTH,), lambda i: a[i] * 1.2345678, name="B")]

    library = adt.compile_kernel(kernel, platform="host", target="opencl", out=tmp_path / "kernel.so")

    bits = np.float32(1.2345678).view(np.int32)
    assert f"as_float({bits})".encode() in library.path.read_bytes()


def test_on_this_machine_in_each_form(tmp_path: Path) -> None:
    function = te.create_prim_func(add_one())
    forms = {
        "tensors": add_one(),
        "function": function,
        "named": function.with_attr("global_symbol", "named"),
        "module": tvm.IRModule({"main": function}),
    }
    for form, kernel in forms.items():
        name = "" if form == "named" else form
        library = adt.compile_kernel(kernel, name=name, target="host", out=tmp_path / f"{form}.so")
        assert (library.functions, library.platform) == ((form,), "host")
        a = tvm.runtime.tensor(np.arange(LENGTH, dtype=np.float32))
        b = tvm.runtime.empty((LENGTH,), "float32")
        tvm.runtime.load_module(str(library.path))[form](a, b)
        np.testing.assert_array_equal(b.numpy(), a.numpy() + 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{form}.so" for form in forms)


def test_for_android_the_library_names_what_supplies_its_symbols(tmp_path: Path) -> None:
    ndk = str(make_standin_ndk())
    with pytest.raises(MismatchError, match="no bundle for android-armeabi-v7a"):
        adt.compile_kernel(add_one(), platform="android-armeabi-v7a", ndk=ndk, out=tmp_path / "none.so")
    bundle = adt.build_target(platform="android-arm64-v8a", ndk=ndk).bundle.path
    library = adt.compile_kernel(
        add_one(),
        name="add_one",
        platform="android-arm64-v8a",
        target="opencl -device=adreno",
        ndk=ndk,
        bundle=bundle,
        out=tmp_path / "add_one.so",
    )
    elf = read_elf(library.path)
    assert (elf.machine, elf.page_alignment) == ("AARCH64", 16384) and not any(
        "tvm" in name for name in elf.needed
    )


def test_what_is_no_kernel(tmp_path: Path) -> None:
    from tvm.relax.testing import nn  # noqa: F401  # registers relax

    relax = tvm.relax.BlockBuilder()
    with relax.function("main", [x := tvm.relax.Var("x", tvm.relax.TensorStructInfo((4,), "float32"))]):
        relax.emit_func_output(x)
    for kernel, message in (
        (5, "a int is no kernel"),
        ([], "a list is no kernel"),
        ([*add_one(), 3], "a list is no kernel"),
        (relax.get(), "main is no kernel but a Function"),
    ):
        with pytest.raises(ModelError, match=message):
            adt.compile_kernel(kernel, platform="host", out=tmp_path / "x.so")
    with pytest.raises(ModelError, match="2 functions and one name"):
        adt.compile_kernel(two_kernels(), name="x", platform="host", out=tmp_path / "x.so")
    with pytest.raises(ConfigError, match="no processor"):
        adt.compile_kernel(add_one(), cpu="cortex-z1", platform="linux-aarch64", out=tmp_path / "x.so")
    with pytest.raises(CompileError, match="could not compile the kernel"):  # threads, for a CPU
        adt.compile_kernel(two_kernels(), platform="host", out=tmp_path / "x.so")
    assert list(tmp_path.iterdir()) == []


def test_code_for_a_phones_chip_has_no_sve(tmp_path: Path) -> None:
    """Compile divisions without SVE, which LLVM uses for the chip's cores and the phone's kernel forbids."""

    a, b = (te.placeholder((LENGTH,), "int32", name=name) for name in "ab")
    quotient = te.compute((LENGTH,), lambda i: tirx.truncdiv(a[i], b[i]), name="q")
    uses_sve = {}
    for cpu in ("cortex-x2", "snapdragon-8gen1", "cortex-x2,-sve"):
        library = adt.compile_kernel(
            [a, b, quotient], name="divide", platform="linux-aarch64", cpu=cpu, out=tmp_path / "divide.so"
        )
        words = ["aarch64-linux-gnu-objdump", "-d", str(library.path)]
        code = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        uses_sve[cpu] = bool(re.search(r"\bz\d+\.s\b", code))
    assert uses_sve == {"cortex-x2": True, "snapdragon-8gen1": False, "cortex-x2,-sve": False}
