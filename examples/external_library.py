# %% [markdown]
# # External libraries: fused into a kernel, or handed to a library?
#
#     python examples/external_library.py
#
# Every step of TVM's tutorial on external libraries, with XNNPACK for cuDNN. As there, what a library computes is a
# call that TVM does not look into; unlike there, what follows a convolution can go with it, as far as the library's rules
# have it. On a machine with NVIDIA's GPU: `--target cuda:sm_90 --offload cudnn,cublas`.

# %%
from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from simple_network import SHAPE, simple_network

import adt
from adt.measure.bench import sentence

LIBRARY = "xnnpack"


def show(title: str, text: str) -> None:
    """Print a step."""
    print(f"\n== {title}\n{text}")


# %% [markdown]
# ## A simple network, in kernels that are generated
#
# Convolution, batch norm and ReLU become one kernel: the tutorial's target `cuda`. Its `USE_CUDNN` of the build is
# `adt build-target --for host --xnnpack`.

# %%
adt.build_target(platform="host", xnnpack=True)
model = simple_network(Path("simple_net.onnx"))
data = np.random.default_rng(1).uniform(-1, 1, SHAPE).astype(np.float32)
fused = adt.compile(model, platform="host", out=Path("fused"))
show("one kernel", "\n".join(adt.inspect(fused.path).tir_functions()))
out_fused = adt.run(fused.path, inputs={"data": data}).outputs["out"]

# %% [markdown]
# ## The convolution by the library
#
# The tutorial's `cuda -libs=cudnn`: only `offload` is new.

# %%
library = adt.compile(model, platform="host", offload=LIBRARY, out=Path("library"))
show("what the library is called for", json.dumps(adt.inspect(library.path).library_calls(), indent=2))
show("what stays, and why", "\n".join(library.manifest.made.offload.left) or "nothing")
out_library = adt.run(library.path, inputs={"data": data}).outputs["out"]

# %% [markdown]
# ## The same result
#
# The tutorial's `rtol=1e-5`; near 0 a relative limit means nothing.

# %%
largest = float(np.abs(out_fused).max())
np.testing.assert_allclose(out_library, out_fused, rtol=1e-5, atol=1e-5 * largest)
show("both give the same", f"off by at most {np.abs(out_library - out_fused).max():.2g} of {largest:.3g}")

# %% [markdown]
# ## Its conclusion, as figures
#
#     adt compare-offload simple_net.onnx --for host --offload xnnpack

# %%
comparison = adt.compare_offload(model, platform="host", offload=LIBRARY, protocol="quick", record=False)
for name, variant in (("fused", comparison.fused), ("library", comparison.library)):
    assert variant.profile is not None  # only an emulated device has none
    times = [f"{call.mean_us:8.1f} µs  {call.name}" for call in variant.profile.calls if call.index >= 0]
    show(f"{name}, call by call", "\n".join(times))
assert comparison.ratio is not None
show("which is faster?", sentence(comparison.ratio, ("fused", "the library")))
