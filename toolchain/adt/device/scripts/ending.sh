# For a script that lives until its standard input ends, and cleans up in a trap on EXIT.
#
# deaf: let no signal end what follows. Call it first in what a signal runs, and before an `exit` that a signal may
#   accompany: a second `exit` during the first skips the trap on EXIT.
# hear: INT and TERM end the script. Not HUP, which comes together with the end of standard input, and that tells us
#   all. Not PIPE: nobody may read our answer any more, and dying of that skips the trap on EXIT, too.
# settle PATH...: wait until nothing there changes any more, a second at least, 30 at most: what `ls` prints of
#   a time hangs on the clock, too. When a connection is cut, a script is
#   ahead of the daemon, which may still be writing files that are under way, and makes any directory that it misses.
deaf() { trap '' HUP INT TERM PIPE; }
hear() { trap '' HUP PIPE; trap 'deaf; exit 1' INT TERM; }
settle() {
  n=0 now=$(ls -lnR "$@" 2>/dev/null)
  until last=$now n=$((n+1)); sleep 1; now=$(ls -lnR "$@" 2>/dev/null); [ "$now" = "$last" ]; do
    [ $n -lt 30 ] || break
  done
}
