# End a command and all of its process group: sh -c kill sh PID
# On a slow device that takes longer than the connection lasts: its hang-up does not keep it from the last line.
trap '' HUP
kill -TERM -- -"$1" 2>/dev/null || kill -TERM "$1" 2>/dev/null || exit 0
n=0
while kill -0 -- -"$1" 2>/dev/null && [ $n -lt 20 ]; do n=$((n+1)); sleep 0.1 || sleep 1; done
kill -KILL -- -"$1" 2>/dev/null
exit 0
