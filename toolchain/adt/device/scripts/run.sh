# Run a program of a deployment: sh -c run sh DIRECTORY MANIFEST LIBRARIES PROGRAM ARGUMENT...
# LD_LIBRARY_PATH: the programs are links into the store, so their $ORIGIN is not beside lib/;
# and Android looks for what mod.so needs from where mod.so is.
. ./used.sh
cd "$1" || exit 5
if ! [ -f "$2" ]; then
  echo "error: the deployment is not on the device any more" >&2
  echo "remedy: run the same command again: it is sent again" >&2
  exit 5
fi
used "${3%/lib}"
LD_LIBRARY_PATH=$3${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
shift 3
exec "$@"
