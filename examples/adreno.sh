#!/usr/bin/env bash
# %% [markdown]
# # A model on an Adreno GPU, from the build to the app
#
#     bash examples/adreno.sh [MODEL.onnx]
#
# Every stage of TVM's guide for Adreno. Here a virtual device stands for the phone: it is behind real ADB, runs this
# machine's own programs, and has OpenCL that computes on the processor. Each step says what a phone takes instead.
# Without a model it is one convolution.

# %%
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
model=${1:-simple_net.onnx}
[ $# -gt 0 ] || python3 "$here/simple_network.py" "$model"

# %% [markdown]
# ## The device, and what is built for it
#
# The guide has a container, or two CMake builds. With a phone on the cable, leave the emulator out and build
# `--for android-arm64-v8a --ndk $NDK`; with Qualcomm's SDK add `--clml SDK`. `adt devices` is its `adb devices`.

# %%
serial=$(adt emulator start tutorial --abi x86_64 --opencl | awk '{ print $2 }')
trap 'adt rpc stop --serial "$serial"; adt tracker stop; adt emulator stop tutorial' EXIT
adt devices
adt build-target --for host

# %% [markdown]
# ## RPC: a tracker here, a server on the device
#
# The guide's `setup-adreno-env.sh -e tracker`, `-e device -d SERIAL` and `-e query`. All of it ends with this script; leave
# `adt tracker stop` out of the `trap` where other devices use the tracker.

# %%
adt rpc start --serial "$serial" --key android
adt rpc status

# %% [markdown]
# ## Tune, then compile with the records
#
# On a phone `--for android-arm64-v8a`, and a thousand trials. Tuning is no need for compiling; what has no record
# gets its schedule from the GPU's row in adt's table.

# %%
adt tune "$model" --for host --target adreno --key android --trials 2 --repeat 1 --db records
adt compile "$model" --for host --target adreno --db records -o model.tar
tar tf model.tar

# %% [markdown]
# ## Run it: over RPC, and natively
#
# `adt run` without `--via rpc` calls `rtvm` on the device, which times its runs there; `adt deploy` leaves the
# package and prints where, for `adb shell`. `--fill-mode` says what the inputs are filled with; `--input IN.npz` gives your own.

# %%
adt run model.tar --serial "$serial" --via rpc
adt run model.tar --serial "$serial" --fill-mode ones --run-count 10 --output out.npz
adt verify model.tar --serial "$serial"
adt deploy model.tar --serial "$serial"

# %% [markdown]
# ## Look at the generated source
#
# Kernels for textures have `image2d_array_t` arguments.

# %%
adt inspect model.tar --opencl | tee kernels.cl | grep -m 3 -o "__kernel void [a-z_0-9]*"
grep -m 1 -o "__read_only image2d[a-z_]*" kernels.cl

# %% [markdown]
# ## CLML: layers for Qualcomm's library
#
# What it is not handed stays with the kernels above, and the same records hold. The package runs on a phone whose bundle was
# built with `--clml SDK` only; what it hands over can be looked at here.

# %%
adt compile "$model" --for host --target adreno --offload clml --db records -o clml.tar
adt inspect clml.tar --offload | head -20

# %% [markdown]
# ## Half precision
#
# `float16`, or sums in float32: `float16_acc32`. PoCL has no half precision, so this one is for a CPU; with a phone
# `--target adreno`.

# %%
adt compile "$model" --for host --precision float16_acc32 --half-only nn.conv2d,nn.dense -o half.tar
adt run half.tar

# %% [markdown]
# ## Into an app
#
# `cpp` needs no SDK; `jni`, `android-app` and `aar` are for Android, and `adt apk` makes an APK without Gradle.

# %%
adt generate cpp model.tar --package com.example.files -o app
ls app
