# The temperatures of the thermal zones, a line each: millidegrees and kind.
. ./value.sh
echo "==thermal=="
for z in /sys/class/thermal/thermal_zone*; do
  [ -e "$z" ] || continue
  value "$z/type"
  kind=$v
  value "$z/temp"
  echo "${v:--} $kind"
done
