#!/usr/bin/env bash
# %% [markdown]
# # Tune a network for a mobile GPU, over a tracker
#
#     pip install ".[tune]"
#     bash examples/mobile_gpu_tuning.sh [MODEL.onnx]
#
# Every step of TVM's guide to tuning for mobile GPUs. Two virtual devices stand for two boards with a Mali GPU: they run
# this machine's own programs, and their OpenCL computes on the processor. The times are of that, and of no GPU.

# %%
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
model=${1:-simple_net.onnx}
[ $# -gt 0 ] || python3 "$here/simple_network.py" "$model"

# %% [markdown]
# ## Start the tracker, and register devices
#
# Phones and boards with ADB need their serials only; a board without it runs what `adt rpc serve --board USER@BOARD`
# prints. A phone is kept awake; leave it on its charger. Build for it with `--for android-arm64-v8a --ndk $NDK`, for an RK3399 with
# `--for linux-aarch64`. All of it ends with this script; leave `adt tracker stop` out where other devices use the tracker.

# %%
adt build-target --for host
serials=()
end() {
  for serial in "${serials[@]}"; do adt rpc stop --serial "$serial"; done
  adt tracker stop
  for name in left right; do adt emulator stop "$name"; done
}
trap end EXIT
adt tracker start
for name in left right; do
  serial=$(adt emulator start "$name" --abi x86_64 --opencl | awk '{ print $2 }')
  serials+=("$serial")
  adt rpc start --serial "$serial" --key rk3399
done
adt rpc status

# %% [markdown]
# ## Tune
#
# As many measurements are under way as there are devices. The guide's options: 1000 trials for each kernel, an early end after
# 450 without gain, ten calls, ten seconds. Here it is two trials. The log of each kernel, with every failure, is below `records/logs`.

# %%
adt tune "$model" --for host --target mali --key rk3399 --trials 2 --per-task --early-stopping 450 \
  --number 10 --repeat 1 --timeout 60 --tuner evolutionary --db records

# %% [markdown]
# ## Compile with the best records, upload, and time it
#
# The mean and the deviation of 30 runs.

# %%
adt compile "$model" --for host --target mali --db records -o net.tar
adt run net.tar --serial "$serial" --run-count 30
adt bench net.tar --serial "$serial" --protocol quick
