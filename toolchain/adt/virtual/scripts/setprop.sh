#!/system/bin/sh
# setprop KEY VALUE
if [ $# -ne 2 ]; then echo "usage: setprop NAME VALUE" >&2; exit 1; fi
case $1 in
  ro.*|*=*|'') echo "setprop: failed to set property '$1' to '$2'" >&2; exit 1;;
esac
tries=0
until mkdir /dev/adt/properties.lock 2>/dev/null; do
  tries=$((tries + 1))
  if [ $tries -gt 200 ]; then echo "setprop: the property store is locked" >&2; exit 1; fi
  sleep 0.02
done
trap 'rmdir /dev/adt/properties.lock' EXIT
while IFS='=' read -r key value; do
  [ "$key" = "$1" ] || echo "$key=$value"
done < /dev/adt/properties > /dev/adt/properties.new
echo "$1=$2" >> /dev/adt/properties.new
mv /dev/adt/properties.new /dev/adt/properties
