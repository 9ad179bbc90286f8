# shellcheck shell=bash
# Sourced by demo.sh and test.sh: system packages, a virtual environment in .venv, adt installed in it.
# Runs twice without harm: what is there and unchanged is left alone.
set -euo pipefail
unset PYTHONDONTWRITEBYTECODE # each process would compile what it imports
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv

say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }

# need_packages PACKAGE...: install the Debian packages that are missing.
need_packages() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      as_root=(sudo)
    else
      echo "error: these system packages are missing: ${missing[*]}" >&2
      echo "remedy: as root, apt-get update && apt-get install ${missing[*]}   (then run this again)" >&2
      exit 4
    fi
  fi
  say "installing ${missing[*]}"
  local options=(-y -qq --no-install-recommends)
  if ! DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install "${options[@]}" "${missing[@]}" >/dev/null 2>&1; then
    "${as_root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install "${options[@]}" "${missing[@]}" >/dev/null
  fi
}

# find_python: the first Python of at least 3.11. The system's own comes first: it is there on a fresh machine, stays
# when a version manager's goes, and is what CI runs.
find_python() {
  local candidate
  for candidate in /usr/bin/python3 python3 python3.11 python3.12 python3.13 python; do
    if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2])' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  echo "error: no Python of version 3.11 or newer was found" >&2
  echo "remedy: apt-get install python3.11 python3.11-venv" >&2
  exit 4
}

# digest PATH...: one sha256 of the names and contents of all files below the paths.
digest() {
  (cd "$root" && find "$@" -type f ! -path '*/__pycache__/*' ! -path '*/build/*' -print0 |
    LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1)
}

# install_by_uv PACKAGE...: install into $venv what pip would, in a fifth of the time. Fails where pip's configuration
# says more than uv is told here, or uv cannot.
install_by_uv() {
  local key value settings=(UV_NATIVE_TLS=1)
  while IFS='=' read -r key value; do
    value=${value:1:-1} # without quotes
    case ${key##*.}:$value in
      disable-pip-version-check:* | default-timeout:* | timeout:* | root-user-action:*) ;;
      *[[:space:],\\]*) return 1 ;; # several values
      index-url:*) settings+=("UV_DEFAULT_INDEX=$value") ;;
      extra-index-url:*) settings+=("UV_INDEX=$value" UV_INDEX_STRATEGY=unsafe-best-match) ;; # as pip chooses
      find-links:*) settings+=("UV_FIND_LINKS=$value") ;;
      constraint:*) settings+=("UV_CONSTRAINT=$value") ;;
      cert:*) settings+=("SSL_CERT_FILE=$value") ;;
      *) return 1 ;;
    esac
  done < <("$venv/bin/python" -m pip config list)
  "$venv/bin/python" -m pip install -q --disable-pip-version-check uv==0.13.9 &&
    env "${settings[@]}" "$venv/bin/uv" pip install -q --python "$venv/bin/python" --reinstall-package adt-toolchain "$@"
}

# install_adt EXTRAS [PYTHON]: create $venv and install adt there with its pinned dependencies.
install_adt() {
  local extras=$1 python=${2:-}
  if [ ! -x "$venv/bin/pip" ]; then # the last file that venv writes
    [ -n "$python" ] || python=$(find_python)
    say "creating ${venv##*/} with $("$python" --version)"
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
      need_packages "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    fi
    "$python" -m venv "$venv"
  fi
  local wanted stamp=$venv/.adt-installed
  wanted="$extras $(digest pyproject.toml CMakeLists.txt README.md toolchain cmake_presets cpp_runner templates)"
  if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    say "installing adt${extras}"
    # What is in a directory, both install again each time. Of the files of other packages a third is ever imported:
    # Python compiles these then.
    install_by_uv "$root$extras" 2>/dev/null ||
      "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-compile "$root$extras"
    "$venv/bin/python" -m compileall -q -j 0 "$venv"/lib/python*/site-packages/{adt,tvm} >/dev/null
    echo "$wanted" >"$stamp"
  fi
}
