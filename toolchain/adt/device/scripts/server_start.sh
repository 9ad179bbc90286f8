# Start an RPC server and watch it: sh -c server_start sh PARENT TAG DEPLOYMENT PORT DIGEST ARGUMENT...
# DEPLOYMENT: a directory with tvm_rpc, or the activity of an app, APP/CLASS.
. ./ending.sh
. ./processes.sh
. ./server_app.sh
umask 022
parent=$1 tag=$2 home=$3 port=$4 digest=$5
shift 5
mkdir -p "$parent" || exit 97
sweep "$parent"
app=
case $home in
  /*) [ -x "$home/bin/tvm_rpc" ] || exit 96 ;;
  *) app=${home%%/*} ;;
esac
# in any state: tvm_rpc cannot take a port that the kernel still holds for an old connection either
grep -qi "^ *[0-9]*: [0-9a-f]*:$(printf %04x "$port") " /proc/net/tcp /proc/net/tcp6 2>/dev/null && exit 98
dir=$parent/$$-$tag
group=$(group_of $$)
leave() {
  deaf
  stop_app
  # shellcheck disable=SC2046,SC2086 # several processes, or none
  case $group in
    "$$" | "$PPID") end_all $(members "$group" $$ $PPID) ;;
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
if [ "$app" ]; then
  serve_app "$home" "$@" </dev/null 3<&- &
else
  LD_LIBRARY_PATH=$home/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export LD_LIBRARY_PATH
  "$home/bin/tvm_rpc" server "$@" "--work-dir=$dir/work" </dev/null 3<&- &
fi
server=$!
born=$(birth_of $server)
echo "$server $born" >server
{
  # shellcheck disable=SC2034 # only its end tells
  read -r nothing <&3
  if is_wrapper $$ "$tag"; then
    kill -TERM $$
  else  # it was killed, and we are what is left
    stop_app
    [ "$(birth_of $server)" = "$born" ] && kill -KILL $server
    rm -rf "$dir"
    [ "$group" = $$ ] && kill -KILL -- -$$
  fi
} >/dev/null 2>&1 &
reader=$!
trap '' PIPE  # dying of it skips the trap on EXIT; not before, for what we start would inherit it
echo "wrapper $$ $server $dir"
wait $server
code=$?
deaf
exit $code
