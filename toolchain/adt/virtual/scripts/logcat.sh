#!/system/bin/sh
# logcat [-c] [-d]: all of the log; filters and formats are accepted and not applied
for word in "$@"; do
  case $word in
    -c|--clear) : > /data/log/main; exit 0;;
    -d) exec cat /data/log/main;;
  esac
done
exec tail -n +1 -f /data/log/main
