# used DIRECTORY: number this use of a deployment, higher than all before. No time tells that: clocks of devices jump.
used() {
  turn=
  { read -r turn <"${1%/*}/../used"; } 2>/dev/null
  case $turn in '' | *[!0-9]*) turn=0 ;; esac
  turn=$((turn+1))
  # each whole or, on a full disk, not at all
  for f in "${1%/*}/../used" "$1/.used"; do
    { echo "$turn" >"$1/.used.$$" && mv -f "$1/.used.$$" "$f"; } 2>/dev/null || rm -f "$1/.used.$$"
  done
}
