#!/usr/bin/env bash
# What kind of file is this? A real model answers, here and on a virtual arm64 phone, verified against onnxruntime.
#
#   ./demo.sh [FILE]
#
# Needs no phone and no NDK. The model is magika's, from its Python package. A first answer comes from this machine,
# with the runtime in TVM's wheel. Then adt builds TVM's runtime and the runner for arm64, starts a virtual device (an
# arm64 Linux behind real ADB, not Android), sends everything over ADB, runs the model there and compares again.
source "$(dirname "${BASH_SOURCE[0]}")/scripts/setup.sh"
file=$(realpath -- "${1:-$root/toolchain/adt/errors.py}")
need_packages g++ g++-aarch64-linux-gnu python3-venv qemu-user-static
install_adt "[demo]"

python=$venv/bin/python
scratch=$(mktemp -d)
trap 'kill "${build:-}" 2>/dev/null || true; rm -rf "$scratch"' EXIT
# TVM's source is downloaded first: by the time that compilers run, the first answer is there or nearly so.
nice -n 5 "$venv/bin/adt" build-target --for linux-aarch64 >/dev/null 2>"$scratch/build.log" &
build=$!
# verified_answer OPTION...: run the model on the file where the options of `adt up` say.
verified_answer() {
  "$venv/bin/adt" up "$model" "$@" --input "$scratch/in.npz" --output "$scratch/out.npz"
  "$python" "$root/examples/magika_file_type.py" answer "$file" "$scratch/out.npz"
}

say "on this machine first, which needs nothing that is built"
model=$("$python" "$root/examples/magika_file_type.py" model)
"$python" "$root/examples/magika_file_type.py" features "$file" "$scratch/in.npz"
verified_answer --for host
say "a verified answer after $SECONDS s; now on a virtual arm64 phone, for which TVM's runtime is being built"
device=$("$venv/bin/adt" emulator start) # named below: a phone may be connected, too
read -r _ serial _ <<<"$device"
tail -n +1 -f -s 0.5 --pid="$build" "$scratch/build.log" >&2
wait "$build"
build=
verified_answer --serial "$serial"
say "a verified answer from arm64 after $SECONDS s"
