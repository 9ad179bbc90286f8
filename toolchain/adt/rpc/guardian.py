"""The shell scripts that run on the device around a server.

A server never runs alone: a shell on the device, its guardian, starts it in a
fresh directory and waits for two things: the server's end, and the end of its
own standard input, which comes when the watchdog, the adb server or the cable
is gone. Either way it ends all processes that the server left, removes the
directory, and exits with the server's exit code. Should the guardian itself be
killed, whoever comes next finds its directory and does the same.
"""

from __future__ import annotations

import signal

from adt.device.shell_functions import ENDING

PORT_TAKEN = 98
"""Exit code of START when the port is in use on the device."""
NOT_MADE = 97
"""Exit code of START when the directory cannot be made."""
NOT_THERE = 96
"""Exit code of START when the server's program is not on the device any more."""

# A process's times are in field 22 of its stat; what stands before ")" may hold anything.
_LIBRARY = r"""
stat_of() { { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1; line=${line##*) }; }
group_of() { stat_of "$1" || return 1; set -- $line; echo "$3"; }
birth_of() { stat_of "$1" || return 1; set -- $line; shift 19; echo "$1"; }
members() {
  group=$1 not=$2 nor=$3
  for p in /proc/[0-9]*; do
    p=${p#/proc/}
    stat_of "$p" || continue
    set -- $line
    [ "$3" = "$group" ] && [ "$p" != "$not" ] && [ "$p" != "$nor" ] && echo "$p"
  done
}
is_guardian() {
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
# $1: a directory whose guardian is gone. Its group outlives it as long as it has members, so the
# number of the group cannot have been given to others while one of ours is in it.
clear() {
  g=${1##*/}
  g=${g%%-*}
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
    is_guardian "${n%%-*}" "${n#*-}" || clear "$d"
  done
}
"""

START = (
    ENDING
    + _LIBRARY
    + r"""
umask 022
parent=$1 tag=$2 home=$3 port=$4 digest=$5
shift 5
mkdir -p "$parent" || exit 97
sweep "$parent"
[ -x "$home/bin/tvm_rpc" ] || exit 96
# in any state: tvm_rpc cannot take a port that the kernel still holds for an old connection either
grep -qi "^ *[0-9]*: [0-9a-f]*:$(printf %04x "$port") " /proc/net/tcp /proc/net/tcp6 2>/dev/null && exit 98
dir=$parent/$$-$tag
group=$(group_of $$)
leave() {
  deaf
  case $group in
    $$|$PPID) end_all $(members "$group" $$ $PPID) ;;
    *) end_all $server $reader ;;
  esac
  cd /
  rm -rf "$dir"
}
trap leave EXIT
trap 'deaf; exit 143' HUP INT TERM
mkdir "$dir" && mkdir "$dir/work" && cd "$dir" || exit 97
echo "$digest" >deployment
exec 3<&0
LD_LIBRARY_PATH=$home/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
"$home/bin/tvm_rpc" server "$@" "--work-dir=$dir/work" </dev/null 3<&- &
server=$!
born=$(birth_of $server)
echo "$server $born" >server
{
  read -r nothing <&3
  if is_guardian $$ "$tag"; then
    kill -TERM $$
  else  # it was killed, and we are what is left
    [ "$(birth_of $server)" = "$born" ] && kill -KILL $server
    rm -rf "$dir"
    [ "$group" = $$ ] && kill -KILL -- -$$
  fi
} >/dev/null 2>&1 &
reader=$!
trap '' PIPE  # dying of it skips the trap on EXIT; not before, for what we start would inherit it
echo "guardian $$ $server $dir"
wait $server
code=$?
deaf
exit $code
"""
)
"""Run as ``sh -c START sh PARENT TAG DEPLOYMENT PORT DIGEST ARGUMENT…`` with standard input kept open."""

END = (
    _LIBRARY
    + r"""
parent=$1 tag=$2
for d in "$parent"/*-"$tag"; do
  [ -d "$d" ] || continue
  g=${d##*/}
  g=${g%%-*}
  if is_guardian "$g" "$tag"; then
    kill -TERM "$g" 2>/dev/null
    n=0
    while [ -d "$d" ] && [ $n -lt 50 ]; do n=$((n+1)); sleep 0.1 2>/dev/null || sleep 1; done
    is_guardian "$g" "$tag" && kill -KILL "$g" 2>/dev/null
  fi
  [ -d "$d" ] && clear "$d"
done
sweep "$parent"
rmdir "$parent" 2>/dev/null
exit 0
"""
)
"""Run as ``sh -c END sh PARENT TAG``: nothing of server TAG is left, nor of those without a guardian."""


def server_arguments(*, key: str, port: int, tracker_port: int) -> list[str]:
    """What tvm_rpc is told on a device: its own loopback only, one port, and the tracker there.

    Args:
        tracker_port: the device's port that leads to the tracker; 0 for none.
    """
    words = ["--host=127.0.0.1", f"--port={port}", f"--port-end={port + 1}", f"--key={key}"]
    if tracker_port:
        words += [f"--tracker=127.0.0.1:{tracker_port}", "--custom-addr=127.0.0.1"]
    return words


def explain_exit(code: int) -> str:
    """Why a server ended, for people."""
    if code > 128:
        try:
            return f"tvm_rpc was ended by {signal.Signals(code - 128).name}"
        except ValueError:
            return f"tvm_rpc was ended by signal {code - 128}"
    return {
        NOT_THERE: "tvm_rpc is no longer on the device",
        NOT_MADE: "the device does not let us make a working directory",
        PORT_TAKEN: "the port is in use on the device",
        127: "tvm_rpc could not be started",
        126: "tvm_rpc may not be executed on the device",
    }.get(code, f"tvm_rpc ended with exit code {code}")
