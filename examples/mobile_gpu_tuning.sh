#!/usr/bin/env bash
# %% [markdown]
# # Tune a network for a mobile GPU, on several devices at once
#
#     pip install ".[tune]"
#     bash examples/mobile_gpu_tuning.sh [MODEL.onnx]
#
# You register two devices with a tracker, tune a network's kernels on both, and compile with the best records. Two virtual
# devices stand for two boards with a Mali GPU: their OpenCL computes on this machine's processor, so no time here says
# anything about a GPU, and adt shows none.
#
# For those who know TVM's guide to tuning for mobile GPUs: `tests/seeds.md` has today's form of each of its commands.

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
# ## Start the tracker, and register devices
#
# Phones and boards with ADB need only their serials. A board without ADB runs what `adt rpc serve --board USER@BOARD`
# prints. adt keeps a phone awake; leave it on its charger. Build for a phone with `--for android-arm64-v8a`, for an RK3399 with
# `--for linux-aarch64`. `adt rpc status` prints:
#
#     key     total  free  pending
#     rk3399  2      2     0

# %%
adt build-target --for host
serials=()
end() {
  for serial in "${serials[@]}"; do adt rpc stop --serial "$serial"; done
  adt tracker stop # leave it out if other devices use the tracker
  for name in left right; do adt emulator stop "$name"; done
  rm -rf "$work"
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
# All devices measure at once. For real: 1000 trials for each kernel (`--trials 1000 --per-task`), an early end after 450 without
# gain, ten calls, ten seconds, and a directory of records that you keep. Here it is two trials. `records/logs` has a log of each
# kernel, with every failure. With as few trials the table may name no faster schedule:
#
#     trials    4 of 4; … records of this session are kept

# %%
adt tune "$model" --for host --target mali --key rk3399 --trials 2 --per-task --early-stopping 450 \
  --number 10 --repeat 1 --timeout 60 --tuner evolutionary --db records

# %% [markdown]
# ## Compile with the best records, and verify
#
# On a real board `adt bench` also prints the mean and the deviation of its runs. On a virtual device it verifies only:
#
#     outputs     right: 1 of 1

# %%
adt compile "$model" --for host --target mali --db records -o net.tar
adt run net.tar --serial "$serial"
adt bench net.tar --serial "$serial" --protocol quick
