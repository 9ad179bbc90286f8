#!/system/bin/sh
# getprop [KEY [DEFAULT]]
if [ $# -eq 0 ]; then
  while IFS='=' read -r key value; do echo "[$key]: [$value]"; done < /dev/adt/properties
  exit 0
fi
while IFS='=' read -r key value; do
  if [ "$key" = "$1" ]; then echo "$value"; exit 0; fi
done < /dev/adt/properties
echo "$2"
