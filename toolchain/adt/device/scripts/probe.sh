# Ask OpenCL libraries, each once: sh -c probe sh PROGRAM SECONDS LIBRARY...
program=$1 seconds=$2
shift 2
n=$# seen=
while [ $n -gt 0 ]; do
  p=$1 n=$((n-1))
  shift
  [ -e "$p" ] || continue
  real=$(readlink -f "$p" 2>/dev/null)
  case " $seen " in *" ${real:-$p} "*) continue;; esac
  seen="$seen ${real:-$p}"
  set -- "$@" "$p"
done
"$program" --timeout "$seconds" "$@" 2>"$program.err" || { code=$?; cat "$program.err" >&2; exit $code; }
