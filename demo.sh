#!/usr/bin/env bash
# What kind of file is this? A real model answers, on a virtual arm64 phone, verified against onnxruntime.
#
#   ./demo.sh [FILE]
#
# Needs no phone and no NDK. The model is magika's, from its Python package; adt builds TVM's runtime and the
# runner for arm64, starts a virtual device (an arm64 Linux behind real ADB, not Android), sends everything over
# ADB, runs the model there and compares its outputs with onnxruntime's.
source "$(dirname "${BASH_SOURCE[0]}")/scripts/setup.sh"
file=$(realpath -- "${1:-$root/toolchain/adt/errors.py}")
need_packages g++-aarch64-linux-gnu python3-venv qemu-user-static
install_adt "[demo]"

python=$venv/bin/python
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
model=$("$python" "$root/examples/magika_file_type.py" model)
"$python" "$root/examples/magika_file_type.py" features "$file" "$scratch/in.npz"
"$venv/bin/adt" up "$model" --input "$scratch/in.npz" --output "$scratch/out.npz"
"$python" "$root/examples/magika_file_type.py" answer "$file" "$scratch/out.npz"
