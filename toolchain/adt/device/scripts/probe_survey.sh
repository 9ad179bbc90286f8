# What `adt probe` reads of a device.
. ./value.sh
echo "==boot=="
. ./boot.sh
echo "==kernel=="
uname -r
echo "==selinux=="
getenforce 2>&1
echo "==memory=="
cat /proc/meminfo 2>&1
echo "==cpuinfo=="
cat /proc/cpuinfo 2>&1
echo "==cpus=="
for c in /sys/devices/system/cpu/cpu[0-9]*; do
  [ -d "$c" ] || continue
  row=${c##*/cpu}
  for f in cpufreq/cpuinfo_min_freq cpufreq/cpuinfo_max_freq cpufreq/scaling_cur_freq \
    cpufreq/scaling_governor regs/identification/midr_el1; do
    value "$c/$f"
    row="$row ${v:--}"
  done
  echo "$row"
done
. ./thermal.sh
echo "==gpu=="
for f in /sys/class/kgsl/kgsl-3d0/gpu_model /sys/class/misc/mali0/device/gpuinfo /sys/kernel/gpu/gpu_model; do
  value "$f"
  [ -n "$v" ] && echo "$f $v"
done
echo "==board=="
{ tr '\0' ' ' </proc/device-tree/model; echo; tr '\0' ' ' </proc/device-tree/compatible; echo; } 2>/dev/null
exit 0
