"""Shell functions that several of our scripts for a device begin with."""

from __future__ import annotations

ENDING = """
deaf() { trap '' HUP INT TERM PIPE; }
hear() { trap '' HUP PIPE; trap 'deaf; exit 1' INT TERM; }
settle() {
  now=$(ls -lnR "$@" 2>/dev/null)
  until last=$now; sleep 1; now=$(ls -lnR "$@" 2>/dev/null); [ "$now" = "$last" ]; do :; done
}
"""
"""For a script that lives until its stdin ends, and cleans up in a trap on EXIT.

``deaf``: let no signal end what follows. Call it first in what a signal runs, and before an ``exit`` that a
signal may accompany: a second ``exit`` during the first skips the trap on EXIT.
``hear``: INT and TERM end the script. Not HUP, which comes together with the end of stdin, and that tells
us all. Not PIPE: nobody may read our answer any more, and dying of that skips the trap on EXIT, too.
``settle PATH...``: wait until nothing there changes any more, a second at least. When a connection is cut, a
script is ahead of the daemon, which may still be writing files that are under way, and makes any directory
that it misses.
"""

HASHER = """
hasher=
pick() {
  [ "$hasher" ] && return
  for h in 'busybox sha256sum' sha256sum 'toybox sha256sum'; do
    case $($h </dev/null 2>/dev/null) in e3b0c44298fc1c14*) hasher=$h; return 0;; esac
  done
  return 1
}
"""
"""``pick``: set ``$hasher`` to a command that prints sha256 sums; fails when there is none.

busybox comes first: where both are, toybox is mostly one without a cryptographic library, many times slower.
"""
