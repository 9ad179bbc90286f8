# Wait for what an app writes: sh -c app_wait sh DIRECTORY APP SECONDS SECONDS_WITHOUT_THE_APP OVER FILE...
# OVER is a file that says that all is over. Exits with 3 (the app does not run) or 4 (it took too long).
dir=$1 app=$2 left=$3 patience=$4 over=$5
shift 5
gone=0
while :; do
  missing=
  for f do [ -f "$dir/$f" ] || missing=$f; done
  [ "$missing" ] || exit 0
  [ -f "$dir/$over" ] && exit 0
  if pidof "$app" >/dev/null; then gone=0; else gone=$((gone+1)); fi
  [ "$gone" -lt "$patience" ] || { echo "$missing"; exit 3; }
  [ "$left" -gt 0 ] || { echo "$missing"; exit 4; }
  left=$((left-1))
  sleep 1
done
