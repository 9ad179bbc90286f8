# What `adt doctor` asks a device: sh -c doctor sh DIRECTORY PATH...
tmp=$1; shift
echo "==df=="
df -k "$tmp" 2>&1
echo "==exec=="
d=$tmp/.adt-doctor-$$
if mkdir "$d" 2>&1; then
  trap 'rm -rf "$d"' EXIT
  trap 'exit 1' HUP INT TERM
  echo "#!$(command -v sh)" >"$d/try" && echo 'exit 7' >>"$d/try" && chmod 700 "$d/try"
  "$d/try" 2>&1
  echo "code $?"
fi
echo "==selinux=="
getenforce 2>/dev/null
echo "==opencl=="
for p in "$@"; do
  [ -e "$p" ] && echo "$p $(readlink -f "$p" 2>/dev/null)"
done
echo "==public=="
cat /vendor/etc/public.libraries.txt /system/etc/public.libraries.txt 2>/dev/null
echo "==deployments=="
for f in /data/local/tmp/adt/*/deployments/*.json; do
  [ -f "$f" ] && echo "$f"
done
echo "==store=="
du -sk /data/local/tmp/adt 2>/dev/null
exit 0
