# What cleaning asks for, in a workspace: sh -c removal sh PARENT TAG.
# First the marks of the living, then what they may use: what is marked later waits for us.
. ./workspace.sh
base=${parent%/*}
do_list() {
  echo "==spaces=="
  for d in "$base"/tmp/*-adt* "$base"/runs/*-adt*; do
    [ -d "$d" ] || continue
    if alive "$d"; then echo "alive ${d#"$base"/}"; else echo "dead ${d#"$base"/}"; fi
  done
  echo "==used=="
  cat "$base"/rpc/*/deployment 2>/dev/null
  echo
  cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep "^$base/deployments/"
  echo "==manifests=="
  [ -d "$base/deployments" ] && cd "$base/deployments" && for f in *; do
    turn=
    { read -r turn <"$f/.used"; } 2>/dev/null
    [ -d "$f" ] && echo "directory $f $turn"
    [ -f "$f" ] && echo "file $(stat -c %Y "$f") $f" && cat "$f" && echo && echo "==end=="
  done
  echo "==store=="
  [ -d "$base/store" ] && cd "$base/store" && ls -ln
  cd /
}
do_remove() {
  n=$1
  set --
  while [ "$n" -gt 0 ]; do IFS= read -r row <&3 || return 1; n=$((n-1)); set -- "$@" "$base/$row"; done
  rm -rf "$@"
}
serve() { task=$1; shift; "do_$task" "$@"; }
. ./serve.sh
