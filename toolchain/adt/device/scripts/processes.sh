# Processes, their groups and births, and the directories of wrappers.
stat_of() { { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1; line=${line##*) }; }
# shellcheck disable=SC2086 # the fields are wanted
group_of() { stat_of "$1" || return 1; set -- $line; echo "$3"; }
# shellcheck disable=SC2086 # the same
birth_of() { stat_of "$1" || return 1; set -- $line; shift 19; echo "$1"; }
members() {
  group=$1 not=$2 nor=$3
  for p in /proc/[0-9]*; do
    p=${p#/proc/}
    stat_of "$p" || continue
    # shellcheck disable=SC2086 # the same
    set -- $line
    [ "$3" = "$group" ] && [ "$p" != "$not" ] && [ "$p" != "$nor" ] && echo "$p"
  done
}
is_wrapper() {
  case $({ tr '\0' ' ' <"/proc/$1/cmdline"; } 2>/dev/null) in *"$2"*) return 0 ;; esac
  return 1
}
end_all() {
  [ $# -gt 0 ] || return 0
  kill -TERM "$@" 2>/dev/null
  n=0
  while kill -0 "$@" 2>/dev/null && [ $n -lt 20 ]; do n=$((n+1)); sleep 0.1 2>/dev/null || sleep 1; done
  kill -KILL "$@" 2>/dev/null
}
# $1: a directory whose wrapper is gone. Its group outlives it as long as it has members, so the
# number of the group cannot have been given to others while one of ours is in it.
clear() {
  g=${1##*/}
  g=${g%%-*}
  # shellcheck disable=SC2046 # several processes
  if ! [ -d "/proc/$g" ]; then end_all $(members "$g" 0 0); fi
  if { read -r pid born <"$1/server"; } 2>/dev/null && [ "$(birth_of "$pid")" = "$born" ]; then
    end_all "$pid"
  fi
  rm -rf "$1"
}
sweep() {
  for d in "$1"/*-adt*; do
    [ -d "$d" ] || continue
    n=${d##*/}
    is_wrapper "${n%%-*}" "${n#*-}" || clear "$d"
  done
}
