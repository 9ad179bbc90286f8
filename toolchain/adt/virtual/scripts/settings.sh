#!/system/bin/sh
# settings get|put|delete NAMESPACE KEY [VALUE]
file=/data/settings/$2/$3
case $1.$# in
  get.3) cat "$file" 2>/dev/null || echo null;;
  put.4) mkdir -p "${file%/*}" && echo "$4" >"$file.$$" && mv "$file.$$" "$file";;
  delete.3) rm -f "$file";;
  *) echo "usage: settings get|put|delete NAMESPACE KEY [VALUE]" >&2; exit 1;;
esac
