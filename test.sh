#!/usr/bin/env bash
# Everything that must hold: style, types, unit tests, integration tests with real parts.
#
#   ./test.sh            all of it, as CI does
#   ./test.sh --all      the nightly tests, too: whole builds of every preset (half an hour the first time), and the
#                        unit tests with Python 3.12 and 3.13, where they are on PATH
#   ./test.sh --fast     style, types and unit tests (under a minute once installed)
#   ./test.sh -- ARGS    pytest with ARGS
source "$(dirname "${BASH_SOURCE[0]}")/scripts/setup.sh"
mode=${1:-all}
packages=(aapt adb android-framework-res apksigner clang g++ g++-aarch64-linux-gnu g++-arm-linux-gnueabihf iproute2 libclang-rt-dev ocl-icd-libopencl1 default-jdk-headless dexdump pkgconf pocl-opencl-icd python3-venv qemu-user-static shellcheck strace zipalign)
command -v chromium-headless-shell chromium google-chrome >/dev/null || packages+=(chromium-headless-shell)
command -v npm >/dev/null || packages+=(npm) # the Kotlin compiler comes by it
marked=()
formats=tflite
if [ "$mode" = --all ]; then
  formats=tflite,torch,keras
  marked=(-m "")
fi
need_packages "${packages[@]}"
install_adt "[dev,demo,tune,dask,cuda,$formats]"
cd "$root"
export PATH="$venv/bin:$PATH"

if [ "$mode" = -- ]; then
  shift
  exec python -m pytest "$@"
fi

# build_early OPTIONS...: make these bundles, for the integration tests, while the checks and the unit tests run. One at
# a time: one with XNNPACK is built in the directory of the one without, and a second build would wait for its lock.
build_early() {
  [ "$mode" != --fast ] || return 0
  (
    trap 'kill "${build:-}" 2>/dev/null; exit' TERM
    for options in "$@"; do
      read -ra words <<<"$options"
      ADT_TVM_PROVIDER=registry nice adt build-target --for "${words[@]}" >/dev/null 2>&1 &
      build=$!
      wait "$build" || true
    done
  ) &
  early=$!
}
# wait_for_early: the tests say what is wrong.
wait_for_early() { [ "$mode" = --fast ] || wait "$early" || true; }
trap 'kill "${early:-}" 2>/dev/null || true' EXIT
build_early host

say "style and types"
ruff check toolchain tests docs examples bench
ruff format --check toolchain tests docs examples bench
find cpp_runner cmake_presets \( -name '*.cc' -o -name '*.h' \) -print0 | xargs -0 clang-format --dry-run --Werror
shellcheck -x ./*.sh examples/*.sh scripts/*.sh .ci/run toolchain/adt/device/scripts/*.sh toolchain/adt/virtual/scripts/*.sh
mypy
python docs/generate.py --check
site=$(mktemp -d)
NO_MKDOCS_2_WARNING=1 mkdocs build --strict --site-dir "$site" # every link leads somewhere
rm -r "$site"

wait_for_early
build_early linux-aarch64 "host --xnnpack" "linux-aarch64 --xnnpack"
say "unit tests"
longest_first=(--dist loadfile --no-loadscope-reorder) # see tests/conftest.py
python -m pytest -q -n 2 "${longest_first[@]}" tests/unit
if [ "$mode" = --all ]; then
  for version in 3.12 3.13; do
    if "python$version" -c '' 2>/dev/null; then
      (
        venv=$venv-$version
        install_adt "[dev,demo,tune,dask,tflite]" "python$version"
        say "unit tests with $("$venv/bin/python" --version)"
        PATH="$venv/bin:$PATH" python -m pytest -q -n 2 "${longest_first[@]}" tests/unit
      )
    else
      say "no python$version on PATH: the unit tests did not run with it"
    fi
  done
fi
if [ "$mode" != --fast ]; then
  wait_for_early
  say "integration tests"
  # What fails has failed, but for tests that are marked with the reason why they are tried once more (flaky); the
  # summary shows how those failed at first.
  # Builds come first, by themselves: others use what they make, and one of them damages bundles and has them mended;
  # the tests of one platform's bundle run one after another.
  # Then two processes compute, and beside them four mostly wait, for devices, servers and time limits.
  builds=tests/integration/test_build_target.py
  waiting=(tests/integration/test_{activity,adb,apk,awake,clean,container,deploy,device,doctor,kills,listeners,loading,rack,rpc,stalled,tune_builders,tune_fleet,virtual}*.py)
  common=(-q -raR --durations 20 "${marked[@]}")
  status=0
  python -m pytest "${common[@]}" -n 2 --dist loadgroup "$builds" || status=$?
  beside=$(mktemp)
  python -m pytest "${common[@]}" -n 4 "${longest_first[@]}" "${waiting[@]}" >"$beside" 2>&1 &
  python -m pytest "${common[@]}" -n 2 "${longest_first[@]}" --ignore "$builds" "${waiting[@]/#/--ignore=}" tests/integration || status=$?
  say "integration tests that mostly wait"
  wait $! || status=$?
  cat "$beside"
  rm "$beside"
  exit "$status"
fi
