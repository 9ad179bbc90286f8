# What a deployment asks for, in a workspace: sh -c deploy sh PARENT TAG.
. ./workspace.sh
. ./hasher.sh
. ./used.sh
boot=
{ read -r boot </proc/sys/kernel/random/boot_id; } 2>/dev/null
facts='%n %s %i %z'
seal() {
  [ "$boot" ] || { cat >/dev/null; return 0; }
  for f in "$base"/sealed-*; do
    [ "$f" = "$base/sealed-$boot" ] || rm -f "$f"
  done
  cat >>"$base/sealed-$boot"
}
do_look() {
  base=$1 name=$2 digest=$3 n=$4
  view=$base/deployments/$digest
  manifest=$base/deployments/$name.$digest.json
  set --
  echo "==links=="
  while [ "$n" -gt 0 ]; do
    IFS= read -r row <&3 || return 1
    n=$((n-1)) s=${row%% *}
    [ -f "$base/store/$s" ] || continue
    set -- "$@" "$s"
    # shellcheck disable=SC3013 # the shells of Android and busybox have it
    [ "$view/${row#* }" -ef "$base/store/$s" ] && echo "$n"
  done
  echo "==stats=="
  if [ $# -gt 0 ]; then
    said=$(cd "$base/store" && stat -c "$facts" "$@" 2>/dev/null) || said=
    # a stat that does not know the format: hash everything, every time
    if [ "$said" ]; then echo "$said"; else boot=; for s; do echo "$s 0 0 unknown"; done; fi
  fi
  echo "==sealed=="
  [ -f "$base/sealed-$boot" ] && cat "$base/sealed-$boot"
  echo "==manifest=="
  [ -f "$manifest" ] && cat "$manifest"
  return 0
}
do_hash() {
  n=$1
  set --
  while [ "$n" -gt 0 ]; do read -r row <&3 || return 1; n=$((n-1)); set -- "$@" "$row"; done
  pick || return 4
  (cd "$base/store" && $hasher "$@")
  return 0
}
do_seal() {
  n=$1
  while [ "$n" -gt 0 ]; do read -r row <&3 || return 1; n=$((n-1)); echo "$row"; done | seal
}
do_used() { used "$view"; }
do_ready() {
  df -k "$base" 2>/dev/null
  pick || return 4
}
do_finish() {
  [ -d "$base/store" ] && [ -d "$base/deployments" ] || mkdir -p "$base/store" "$base/deployments" || return 1
  if [ "$1" -gt 0 ]; then
    (
      cd "$dir/store" || exit 1
      wanted=$1
      set -- *
      [ $# -eq "$wanted" ] || exit 1
      sums=$($hasher "$@") || exit 1
      echo "$sums" | while read -r sum file; do
        [ "$sum" = "${file#[*]}" ] || { echo "damaged ${file#[*]}"; exit 3; }
      done || exit $?
      mv -f "$@" "$base/store/" || exit 1
      cd "$base/store" && stat -c "$facts" "$@" | seal
      exit 0
    ) || return $?
  fi
  deaf # a few moves, all of them or none
  put_in_place
  code=$?
  hear
  return "$code"
}
put_in_place() {
  if [ -f "$dir/links.tar" ]; then
    mkdir "$dir/links" || return 1
    for tar in 'busybox tar' tar 'toybox tar' none; do
      [ "$tar" != none ] || return 5
      (cd "$dir/links" && $tar -xf ../links.tar) && break
    done
    if [ -d "$view" ]; then mv "$view" "$dir/old" || return 1; fi
    mv "$dir/links" "$view" || return 1
  fi
  used "$view"
  mv -f "$dir/manifest" "$manifest"
}
serve() { task=$1; shift; "do_$task" "$@"; }
. ./serve.sh
