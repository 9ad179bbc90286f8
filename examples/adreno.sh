#!/usr/bin/env bash
# %% [markdown]
# # A model on an Adreno GPU, from the build to the app
#
#     bash examples/adreno.sh [MODEL.onnx]
#
# You compile a model so that its tensors lie in the GPU's textures, tune it, run it, verify it, look at its kernels and
# generate an app's code. A virtual device stands for the phone: it is behind real ADB, and its OpenCL computes on this machine's
# processor. Each step names what changes with a phone. The default model is one convolution.
#
# For those who know TVM's guide for Adreno: `tests/seeds.md` has today's form of each of its commands.

# %%
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) # everything is written there, and removed at the end
model=${1:+$(realpath "$1")}
cd "$work"
if [ -z "$model" ]; then
  model=simple_net.onnx
  python3 "$here/simple_network.py" "$model"
fi

# %% [markdown]
# ## The device and its runtime
#
# With a phone on the cable, leave the emulator out and build `--for android-arm64-v8a` with the NDK in `ANDROID_NDK_HOME`; with
# Qualcomm's SDK add `--clml SDK`. `adt devices` prints:
#
#     SERIAL           STATE   VIA  MODEL                                           SOC        GPU  API  ABIS
#     127.0.0.1:35783  device  tcp  adt virtual device (x86-64 Linux, not Android)  native     -    -    x86_64

# %%
serial=$(adt emulator start tutorial --abi x86_64 --opencl | awk '{ print $2 }')
end() {
  adt rpc stop --serial "$serial"
  adt tracker stop # leave it out if other devices use the tracker
  adt emulator stop tutorial
  rm -rf "$work"
}
trap end EXIT
adt devices
adt build-target --for host

# %% [markdown]
# ## RPC: a tracker here, a server on the device
#
# Tuning measures over RPC. `adt rpc status` prints:
#
#     key      total  free  pending
#     android  1      1     0

# %%
adt rpc start --serial "$serial" --key android
adt rpc status

# %% [markdown]
# ## Tune, then compile with the records
#
# On a phone use `--for android-arm64-v8a`, a thousand trials, and a directory of records that you keep. You can also compile
# without tuning: a kernel without a record gets its schedule from the GPU's row in adt's table. The compile prints:
#
#     kernels  2 for opencl (x86_64-linux-gnu), 1 tuned
#     textures 2 of 2 kernels use them, 100% of the arithmetic; 1 of 1 weights are images

# %%
adt tune "$model" --for host --target adreno --key android --trials 2 --repeat 1 --db records
adt compile "$model" --for host --target adreno --db records -o model.tar
tar tf model.tar

# %% [markdown]
# ## Run it: over RPC, and natively
#
# `adt run` calls `rtvm` on the device, or with `--via rpc` TVM's server. `adt deploy` leaves the package there, and prints its
# directory for `adb shell`. `--fill-mode` chooses generated inputs; `--input IN.npz` passes yours. `adt verify` prints:
#
#     ✓ out: float32[1, 16, 224, 224] max abs 2.86e-06 max rel 2.41e-07 cosine 1.00000000

# %%
adt run model.tar --serial "$serial" --via rpc
adt run model.tar --serial "$serial" --fill-mode ones --output out.npz
adt verify model.tar --serial "$serial"
adt deploy model.tar --serial "$serial"

# %% [markdown]
# ## Look at the generated source
#
# Kernels for textures have `image2d_array_t` arguments:
#
#     __kernel void fused_conv_blocks_add_relu_texture_kernel
#     __kernel void unpack_blocks_texture_kernel
#     __read_only image2d_array_t

# %%
adt inspect model.tar --opencl | tee kernels.cl | grep -m 3 -o "__kernel void [a-z_0-9]*"
grep -m 1 -o "__read_only image2d[a-z_]*" kernels.cl

# %% [markdown]
# ## CLML: layers for Qualcomm's library
#
# The other layers keep their kernels and records. The package runs only on a phone whose bundle was built with `--clml SDK`;
# here you can look at the layers for the library:
#
#     offload  of 3 operators 3 to clml in 1 subgraphs
#              clml_0_conv2d calls 1 × openclml.relu.bias.nn.conv2d

# %%
adt compile "$model" --for host --target adreno --offload clml --db records -o clml.tar
adt inspect clml.tar --offload | head -20

# %% [markdown]
# ## Half precision
#
# `float16`, or `float16_acc32` with sums in float32. The OpenCL of this machine has no half precision, so this package is for
# the CPU; with a phone use `--target adreno`.
#
#     float16_acc32: 1 operators compute in half precision; in float32: add 1×, nn.relu 1×

# %%
adt compile "$model" --for host --precision float16_acc32 --half-only nn.conv2d,nn.dense -o half.tar
adt run half.tar

# %% [markdown]
# ## Into an app
#
# `cpp` needs no SDK. `jni`, `android-app` and `aar` are for Java and Android; `adt apk` makes an APK without Gradle.

# %%
adt generate cpp model.tar --package com.example.files -o app
ls app
