# An RPC server that is an app's, in $app; without one it is tvm_rpc, and `stop_app` does nothing.
stop_app() { [ -z "$app" ] || am force-stop "$app" >/dev/null 2>&1; }
# Start the app by `am start -n ARGUMENT...`, and live as long as it does. It says nothing here, but to the log.
serve_app() {
  said=$(am start -S -n "$@" 2>&1)
  echo "$said"
  case $said in *Error* | *Exception*) exit 95 ;; esac # whatever its exit code
  # shellcheck disable=SC2154 # of who includes this
  echo "bind to 127.0.0.1:$port"
  n=0
  until pid=$(pidof "$app") || [ $n = 10 ]; do n=$((n+1)); sleep 1; done
  pid=${pid%% *}
  while [ -d "/proc/${pid:-none}" ]; do sleep 1; done
  logcat -d -t 100 -s adt:V DEBUG:V AndroidRuntime:E libc:F | tail -n 8
  exit 95
}
