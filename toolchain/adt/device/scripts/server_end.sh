# Leave nothing of server TAG, nor of those without a wrapper: sh -c server_end sh PARENT TAG [APP]
. ./processes.sh
. ./server_app.sh
parent=$1 tag=$2 app=$3
for d in "$parent"/*-"$tag"; do
  [ -d "$d" ] || continue
  g=${d##*/}
  g=${g%%-*}
  if is_wrapper "$g" "$tag"; then
    kill -TERM "$g" 2>/dev/null
    n=0
    while [ -d "$d" ] && [ $n -lt 50 ]; do n=$((n+1)); sleep 0.1 2>/dev/null || sleep 1; done
    is_wrapper "$g" "$tag" && kill -KILL "$g" 2>/dev/null
  fi
  [ -d "$d" ] && clear "$d"
done
sweep "$parent"
stop_app
rmdir "$parent" 2>/dev/null
exit 0
