# Hold Android awake until standard input ends: sh -c awake sh PARENT TAG. The last who does puts the setting back.
. ./workspace.sh
before=$parent/before
# Nobody reads or writes the setting while another does. The lock ends with the subshell, however that ends.
locked() { (flock 9; "$@") 9<"$parent" </dev/null >/dev/null 2>&1; }
setting() { verb=$1; shift; settings "$verb" global stay_on_while_plugged_in "$@"; }
hold() {
  [ -s "$before" ] || setting get >"$before" # there from one who was killed: then it is the true one
  svc power stayon true
}
release() {
  rm -rf "$dir"
  for d in "$parent"/*-adt*; do [ -d "$d" ] && alive "$d" && return; done
  read -r value <"$before" || return
  case $value in null) setting delete;; *) setting put "$value";; esac
  rm "$before"
}
cleanup() { deaf; locked release; }
command -v svc >/dev/null && command -v settings >/dev/null && locked hold # a Linux has neither
. ./serve.sh
