# %% [markdown]
# # External libraries: fused into a kernel, or handed to a library?
#
#     python examples/external_library.py
#
# You compile one network twice: with TVM's generated kernels, which fuse a convolution with the operators after it, and with
# a library (XNNPACK) that computes the convolution. Then you compare results and times. The library's rules decide which of the
# later operators it computes too. On a machine with an NVIDIA GPU use `--target cuda:sm_90 --offload cudnn,cublas`.
#
# For those who know TVM's tutorial on external libraries: `tests/seeds.md` has today's form of each of its steps.

# %%
from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
from simple_network import SHAPE, simple_network

import adt

LIBRARY = "xnnpack"
work = tempfile.TemporaryDirectory()  # removed at the end
here = Path(work.name)


def show(title: str, text: str) -> None:
    """Print a step."""
    print(f"\n== {title}\n{text}")


# %% [markdown]
# ## A simple network, in generated kernels
#
# Convolution, batch norm and ReLU become one kernel; a second one restores the layout. The runtime is built with the library, as by
# `adt build-target --for host --xnnpack`.
#
#     == one kernel
#     fused_conv_blocks_add_relu
#     unpack_blocks

# %%
adt.build_target(platform="host", xnnpack=True)
model = simple_network(here / "simple_net.onnx")
data = np.random.default_rng(1).uniform(-1, 1, SHAPE).astype(np.float32)
fused = adt.compile(model, platform="host", out=here / "fused")
show("one kernel", "\n".join(adt.inspect(fused.path).tir_functions()))
out_fused = adt.run(fused.path, inputs={"data": data}).outputs["out"]

# %% [markdown]
# ## The convolution by the library
#
# Only `offload` is new.
#
#     == what the library is called for
#     {
#       "xnnpack_0_conv2d": {
#         "xnnpack.conv2d": 1
#       }
#     }

# %%
library = adt.compile(model, platform="host", offload=LIBRARY, out=here / "library")
show("what the library is called for", json.dumps(adt.inspect(library.path).library_calls(), indent=2))
show("what stays, and why", "\n".join(library.manifest.made.offload.left) or "nothing")
out_library = adt.run(library.path, inputs={"data": data}).outputs["out"]

# %% [markdown]
# ## The same result
#
# Near 0 a relative limit means nothing, so there is an absolute one too.
#
#     == both give the same
#     off by at most 5.7e-06 of 24.3

# %%
largest = float(np.abs(out_fused).max())
np.testing.assert_allclose(out_library, out_fused, rtol=1e-5, atol=1e-5 * largest)
show("both give the same", f"off by at most {np.abs(out_library - out_fused).max():.2g} of {largest:.3g}")

# %% [markdown]
# ## Which is faster?
#
#     adt compare-offload simple_net.onnx --for host --offload xnnpack
#
# The same from Python, with the time of each call. The answer depends on your processor and its load; on a busy x86-64 machine:
#
#     == which is faster?
#     fused is 1.35 to 12.4 × as fast as the library

# %%
comparison = adt.compare_offload(model, platform="host", offload=LIBRARY, protocol="quick", record=False)
for name, variant in (("fused", comparison.fused), ("library", comparison.library)):
    assert variant.profile is not None  # only an emulated device has none
    times = [f"{call.mean_us:8.1f} µs  {call.name}" for call in variant.profile.calls if call.index >= 0]
    show(f"{name}, call by call", "\n".join(times))
assert comparison.ratio is not None
show("which is faster?", adt.sentence(comparison.ratio, ("fused", "the library")))
work.cleanup()
