# A fresh directory $dir below PARENT ($1), which lives as long as this shell; TAG ($2) is in its name.
. ./ending.sh
umask 022
parent=$1 tag=$2
shift 2
alive() {
  n=${1##*/}
  # tr, because toybox's grep stops at the zero bytes between a process's arguments
  case $({ tr '\0' ' ' <"/proc/${n%%-*}/cmdline"; } 2>/dev/null) in
    *"${n#*-}"*) return 0;;
  esac
  return 1
}
[ -d "$parent" ] || mkdir -p "$parent" || exit 1
for d in "$parent"/*-adt*; do
  [ -d "$d" ] && ! alive "$d" && rm -rf "$d"
done
dir=$parent/$$-$tag
bye=
cleanup() {
  deaf
  [ "$bye" ] || settle "$dir"
  rm -rf "$dir"
}
trap cleanup EXIT
hear
mkdir "$dir" || exit 1
if [ "${parent##*/}" != clean ]; then
  for d in "${parent%/*}"/clean/*-adt*; do
    while [ -d "$d" ] && alive "$d"; do sleep 0.1 || sleep 1; done
  done
fi
