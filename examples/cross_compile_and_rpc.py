# %% [markdown]
# # Cross-compile a kernel, and run it over RPC
#
#     python examples/cross_compile_and_rpc.py
#
# Every step of TVM's tutorial on cross-compilation and RPC. A virtual arm64 device stands for the Raspberry Pi, one
# with OpenCL that computes on this machine's processor for the RK3399.

# %%
from __future__ import annotations

from pathlib import Path

import numpy as np
import tvm
from tvm import te

import adt

# %% [markdown]
# ## TVM's runtime and a server on the board
#
# The tutorial clones TVM on the board, compiles its runtime there and starts a server. Here it is compiled for the board, sent
# and started; a board without ADB runs what `adt rpc serve --board USER@BOARD` prints.

# %%
adt.build_target(platform="linux-aarch64")
board = adt.emulator_start(name="tutorial-board")
print(adt.rpc_start(serial=board.serial, key="board").ready_line)

# %% [markdown]
# ## Declare a kernel here, and compile it for there
#
# `platform` names what the tutorial's `-mtriple` does; TVM's own words (`target="llvm -mtriple=armv7l-linux-gnueabihf"`)
# are understood. `cpu="cortex-a76,+dotprod"` is its `-mcpu` and `-mattr`.

# %%
a = te.placeholder((1024,), "float32", name="A")
b = te.compute((1024,), lambda i: a[i] + 1.0, name="B")
library = adt.compile_kernel([a, b], name="add_one", platform="linux-aarch64", out=Path("add_one.so"))
print(library.path, "for", library.platform)


# %% [markdown]
# ## Run it there
#
# The library is linked already, so the board needs no compiler. On a real board
# `function.time_evaluator("add_one", device, number=10)(x, y).mean` is seconds per call, timed on the board, so without
# the network. That of an emulated processor, or of OpenCL on this one, says nothing, and is not taken here.


# %%
def run_remotely(key: str, library: Path, kind: str) -> None:
    """Upload the kernel to a free device with *key*, and compare what it computes."""
    with adt.rpc_session(key=key) as remote:
        remote.upload(str(library))
        function = remote.load_module(library.name)
        device = remote.device(kind, 0)
        given = np.random.default_rng(0).uniform(size=1024).astype("float32")
        x, y = (tvm.runtime.tensor(array, device) for array in (given, np.zeros(1024, "float32")))
        function["add_one"](x, y)
        np.testing.assert_equal(y.numpy(), given + 1)
        print(f"{kind}: right")


run_remotely("board", library.path, "cpu")

# %% [markdown]
# ## OpenCL
#
# A kernel that binds no threads gets a simple schedule; one of `tvm.s_tir.Schedule` keeps its own. For an RK3399
# `platform="linux-aarch64", target="mali"`.

# %%
adt.build_target(platform="host")
gpu = adt.emulator_start(name="tutorial-gpu", abi="x86_64", opencl=True)
print(adt.rpc_start(serial=gpu.serial, key="gpu").ready_line)
kernel = adt.compile_kernel(
    [a, b], name="add_one", platform="host", target="opencl", out=Path("add_one_cl.so")
)
run_remotely("gpu", kernel.path, "opencl")

# %%
for device in (board, gpu):
    adt.rpc_stop(serial=device.serial)
    adt.emulator_stop(name=device.name)
adt.tracker_stop()  # unless other devices use it
