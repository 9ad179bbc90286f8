# Copy a deployment into an app's directory, as the app: sh -c private_copy sh FROM DIGEST [SHA256 NAME]...
# Exits with 3 when a copy has other contents than it should, whose name it prints.
. ./hasher.sh
umask 077
from=$1 digest=$2
shift 2
home=$PWD/files/adt into=$PWD/files/adt/$digest
pick || { echo "no sha256sum" >&2; exit 1; }
wrong() { # prints the first name whose contents in $1 are not right, and succeeds
  at=$1
  shift
  [ -d "$at" ] || { echo "$at"; return 0; }
  while [ $# -gt 0 ]; do
    sum=$(cd "$at" && $hasher <"$2") || sum=
    [ "${sum%% *}" = "$1" ] || { echo "$2"; return 0; }
    shift 2
  done
  return 1
}
if wrong "$into" "$@" >/dev/null; then
  new=$home/.$digest.$$
  trap 'rm -rf "$new"' EXIT
  trap 'exit 1' HUP INT TERM
  for d in "$home"/.*.[0-9]*; do
    [ -d "$d" ] && ! kill -0 "${d##*.}" 2>/dev/null && rm -rf "$d"
  done
  mkdir -p "$new" || exit 1
  cp -RL "$from"/. "$new" || exit 1
  if wrong "$new" "$@"; then exit 3; fi
  chmod -R u+rwX,go-rwx "$new" || exit 1
  rm -rf "$into"
  mv "$new" "$into" || exit 1
  echo copied
fi
echo "at $into"
