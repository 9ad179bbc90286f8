# Under which conditions something is measured on a device.
. ./value.sh
echo "==governors=="
for g in /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor; do
  value "$g"
  [ -n "$v" ] && echo "$v"
done
. ./thermal.sh
echo "==cpu=="
{ grep -m1 "^model name" /proc/cpuinfo || grep -m1 "^Hardware" /proc/cpuinfo; } 2>/dev/null
echo "==board=="
{ tr '\0' ' ' </proc/device-tree/model; } 2>/dev/null
echo
echo "==battery=="
for s in /sys/class/power_supply/*; do
  value "$s/type"
  if [ "$v" = Battery ]; then
    value "$s/status"
    [ -n "$v" ] && echo "status: $v"
  fi
done
command -v dumpsys >/dev/null 2>&1 && dumpsys battery 2>/dev/null
echo "==power=="
command -v dumpsys >/dev/null 2>&1 && dumpsys power 2>/dev/null | grep -m1 mWakefulness=
exit 0
