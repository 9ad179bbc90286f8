# %% [markdown]
# # Cross-compile a kernel, and run it over RPC
#
#     python examples/cross_compile_and_rpc.py
#
# You write a kernel of one line, compile it here for another processor, and call it there from Python. A virtual arm64 device
# stands for a Raspberry Pi. A second one, with OpenCL that computes on this machine's processor, stands for an RK3399.
#
# For those who know TVM's tutorial on cross-compilation and RPC: `tests/seeds.md` has today's form of each of its steps.

# %%
from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import tvm
from tvm import te

import adt

work = tempfile.TemporaryDirectory()  # removed at the end

# %% [markdown]
# ## TVM's runtime and a server on the board
#
# adt compiles TVM's runtime here for the board, sends it and starts its RPC server. A board without ADB runs what
# `adt rpc serve --board USER@BOARD` prints. Expected output, with ports of your machine:
#
#     ready: key=board tracker=127.0.0.1:9190 server=127.0.0.1:9090 serial=127.0.0.1:33201

# %%
adt.build_target(platform="linux-aarch64")
board = adt.emulator_start(name="tutorial-board")
print(adt.rpc_start(serial=board.serial, key="board").ready_line)

# %% [markdown]
# ## Declare a kernel, and compile it for the board
#
# `platform` names system and processor; `cpu="cortex-a76,+dotprod"` may add a core and features. TVM's own target strings
# (`target="llvm -mtriple=armv7l-linux-gnueabihf"`) work too.
#
#     …/add_one.so for linux-aarch64

# %%
a = te.placeholder((1024,), "float32", name="A")
b = te.compute((1024,), lambda i: a[i] + 1.0, name="B")
library = adt.compile_kernel(
    [a, b], name="add_one", platform="linux-aarch64", out=Path(work.name, "add_one.so")
)
print(library.path, "for", library.platform)


# %% [markdown]
# ## Run it on the board
#
# The library is linked here, so the board needs no compiler. On a real board
# `function.time_evaluator("add_one", device, number=10)(x, y).mean` gives the seconds per call, timed on the board without the
# network. Times of an emulated processor say nothing, so this tutorial takes none.
#
#     cpu: right


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
# A kernel that binds no threads gets a simple schedule; a kernel of `tvm.s_tir.Schedule` keeps its own. For an RK3399 use
# `platform="linux-aarch64", target="mali"`.
#
#     opencl: right

# %%
adt.build_target(platform="host")
gpu = adt.emulator_start(name="tutorial-gpu", abi="x86_64", opencl=True)
print(adt.rpc_start(serial=gpu.serial, key="gpu").ready_line)
kernel = adt.compile_kernel(
    [a, b], name="add_one", platform="host", target="opencl", out=Path(work.name, "add_one_cl.so")
)
run_remotely("gpu", kernel.path, "opencl")

# %% [markdown]
# ## Clean up

# %%
for device in (board, gpu):
    adt.rpc_stop(serial=device.serial)
    adt.emulator_stop(name=device.name)
adt.tracker_stop()  # leave it out if other devices use the tracker
work.cleanup()
