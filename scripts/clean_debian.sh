#!/usr/bin/env bash
# Run a command as on a machine where Debian was just installed: as root, then as an ordinary user.
#
#   sudo scripts/clean_debian.sh [--as root|user] bookworm|trixie COMMAND...
#
# The machine is a minimal Debian (apt and what it needs, nothing else) in a directory of its own, with a clone of
# HEAD as the current directory, an empty home and an empty cache. The user's clone, home and cache are others than
# root's; what root's run installed with apt is there. This machine's ways to package registries are carried in:
# apt's sources and proxies, the settings of pip and npm, certificates. Processes and mounts end with the command,
# the directory goes, too. The network and the kernel are this machine's. The minimal Debian itself is kept in adt's
# cache; remove the file to have it made again.
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

usage() {
  sed -n '4s/^# *//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

who=both
if [ "${1:-}" = --as ]; then
  who=${2:-}
  shift 2 || usage
fi
case "$who" in root | user | both) ;; *) usage ;; esac
case "${1:-}" in bookworm | trixie) suite=$1 ;; *) usage ;; esac
shift
[ $# -gt 0 ] || usage
if [ "$(id -u)" -ne 0 ]; then
  echo "error: only root can make a Debian with the rights of one" >&2
  echo "remedy: sudo scripts/clean_debian.sh $suite $*" >&2
  exit 4
fi
need_packages bubblewrap debian-archive-keyring git mmdebstrap

cache=${ADT_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/adt}/debian
image=$cache/$suite.tar
scratch=$(mktemp -d "${TMPDIR:-/var/tmp}/clean-debian.XXXXXX")
debian=$scratch/debian
trap 'rm -rf --one-file-system "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# make_image: the minimal Debian, from where this machine's packages come from, else from Debian itself.
make_image() {
  local codename sources=() origin release uri
  codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  while read -r origin release uri; do
    case "$origin $release" in "Debian $codename" | "Debian $codename-updates" | "Debian $codename-security")
      sources+=("deb $uri $suite${release#"$codename"} main") ;;
    esac
  done < <(
    # shellcheck disable=SC2016 # apt fills these in
    apt-get indextargets --format '$(ORIGIN) $(RELEASE) $(REPO_URI)' 'Created-By: Packages' | sort -u
  )
  apt-config dump | grep -E '^Acquire::([a-z]+::[Pp]roxy|Check-|Retries|ForceIPv|Max-ValidTime)' >"$scratch/apt.conf" || true
  mkdir -p "$cache"
  say "making a minimal Debian $suite"
  mmdebstrap --quiet --variant=apt --aptopt="$scratch/apt.conf" "$suite" "$scratch/image.tar" "${sources[@]}"
  mv "$scratch/image.tar" "$image"
}

# carry PATH...: copy files and directories of this machine to the same places.
carry() {
  local path
  for path in "$@"; do
    [ ! -e "$path" ] || (mkdir -p "$debian${path%/*}" && cp -rL "$path" "$debian${path%/*}/")
  done
}

[ -f "$image" ] || make_image
mkdir "$debian"
tar -C "$debian" -xf "$image" --exclude='./dev/*'
carry /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt /usr/local/share/ca-certificates
carry /etc/pip.conf /etc/xdg/pip /etc/npmrc
echo 'builder:x:1000:1000::/home/builder:/bin/bash' >>"$debian/etc/passwd"
echo 'builder:x:1000:' >>"$debian/etc/group"
for home in /root /home/builder; do
  mkdir -p "$debian$home/.config"
  cp -rL "$HOME/.npmrc" "$HOME/.pip" "$debian$home/" 2>/dev/null || true
  cp -rL "$HOME/.config/pip" "$debian$home/.config/" 2>/dev/null || true
  git clone -q --no-hardlinks "$root" "$debian$home/adt"
done
chown -R 1000:1000 "$debian/home/builder"

# What tells pip, npm and others their way, and the local files and directories that this names.
variables=()
while IFS= read -r variable; do
  case "$variable" in
    PIP_* | npm_config_* | NPM_CONFIG_* | *_proxy | *_PROXY | SSL_CERT_* | *_CA_BUNDLE | NODE_EXTRA_CA_CERTS | TERM)
      variables+=(--setenv "$variable" "${!variable}") ;;
  esac
done < <(compgen -e)
mounts=()
while IFS= read -r path; do
  path=${path%/simple} # an index's files are often beside it
  if [ -e "$debian$path" ]; then
    continue
  elif [ -d "$path" ]; then
    mkdir -p "$debian$path" # what bwrap would make is root's alone
    mounts+=(--ro-bind "$path" "$path")
  else
    carry "$path"
  fi
done < <({ printf '%s\n' "${variables[@]}"; cat "$debian"/etc/{pip.conf,npmrc,xdg/pip/*} "$debian"/root/{.npmrc,.pip/*,.config/pip/*} 2>/dev/null; } |
  grep -oE '(^|[ =:]|file://)/[[:alnum:]_./+-]+' | sed -E 's,^[^/]*(//)?/,/,' | sort -u)

# inside HOME UID COMMAND...: run it in HOME/adt; everything that it started ends with it.
# bwrap's /proc has covers on it, with which the kernel lets nobody mount another in a namespace of their own: unshare's
# has none.
inside() {
  local home=$1 uid=$2 began=$SECONDS status=0
  shift 2
  say "$suite, $([ "$uid" -eq 0 ] && echo root || echo user): $*"
  bwrap --bind "$debian" / --dev /dev --perms 1777 --tmpfs /dev/shm --proc /proc --ro-bind /sys /sys "${mounts[@]}" \
    --unshare-pid --unshare-ipc --unshare-uts --hostname clean-debian --die-with-parent --cap-add ALL \
    --clearenv "${variables[@]}" --setenv HOME "$home" --setenv USER "${home##*/}" \
    --setenv PATH /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    --setenv ANDROID_ADB_SERVER_PORT "$adb_port" --chdir "$home/adt" \
    unshare --mount-proc setpriv --reuid "$uid" --regid "$uid" --clear-groups -- "$@" || status=$?
  say "$suite, $([ "$uid" -eq 0 ] && echo root || echo user): exit code $status after $((SECONDS - began)) s"
  return "$status"
}

# The network is shared: an adb server of this machine's is no business of a fresh one.
adb_port=$(shuf -i 20000-30000 -n 1)
[ "$who" = user ] || inside /root 0 "$@"
[ "$who" = root ] || inside /home/builder 1000 "$@"
