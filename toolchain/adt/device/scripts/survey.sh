# What a device says of itself: sh -c survey sh "PART..." DIRECTORY LIBRARY...
# Each part is a heading, and what the function of its name prints.
parts=$1 dir=$2
shift 2

# value FILE: set $v to its first line; empty where it may not be read.
value() { v=; { IFS= read -r v <"$1"; } 2>/dev/null; }

part_machine() { uname -m; }
part_page() { getconf PAGESIZE 2>/dev/null || getconf PAGE_SIZE 2>/dev/null; }
part_features() { grep -E '^(Features|flags)' /proc/cpuinfo 2>/dev/null; }
part_properties() { getprop 2>/dev/null; }

# Which boot this is: the kernel's ID, and when the first process started where that may be read.
# A virtual device that was restarted is another boot on the same kernel.
part_boot() (
  b=; { IFS= read -r b </proc/sys/kernel/random/boot_id; } 2>/dev/null
  s=; { IFS= read -r s </proc/1/stat; } 2>/dev/null
  # shellcheck disable=SC2086 # the words are wanted
  set -- ${s##*\) }
  echo "$b ${20}"
)

part_kernel() { uname -r; }
part_selinux() { getenforce 2>&1; }
part_memory() { cat /proc/meminfo 2>&1; }
part_cpuinfo() { cat /proc/cpuinfo 2>&1; }
part_cpus() {
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
}
# The thermal zones, a line each: millidegrees and kind.
part_thermal() {
  for z in /sys/class/thermal/thermal_zone*; do
    [ -e "$z" ] || continue
    value "$z/type"
    kind=$v
    value "$z/temp"
    echo "${v:--} $kind"
  done
}
part_gpu() {
  for f in /sys/class/kgsl/kgsl-3d0/gpu_model /sys/class/misc/mali0/device/gpuinfo /sys/kernel/gpu/gpu_model; do
    value "$f"
    [ -n "$v" ] && echo "$f $v"
  done
}
part_board() {
  { tr '\0' ' ' </proc/device-tree/model; echo; tr '\0' ' ' </proc/device-tree/compatible; echo; } 2>/dev/null
}

# The processor's name alone, without the rest of a long /proc/cpuinfo.
part_processor() {
  { grep -m1 "^model name" /proc/cpuinfo || grep -m1 "^Hardware" /proc/cpuinfo; } 2>/dev/null
}
part_governors() {
  for g in /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor; do
    value "$g"
    [ -n "$v" ] && echo "$v"
  done
}
part_battery() {
  for s in /sys/class/power_supply/*; do
    value "$s/type"
    if [ "$v" = Battery ]; then
      value "$s/status"
      [ -n "$v" ] && echo "status: $v"
    fi
  done
  command -v dumpsys >/dev/null 2>&1 && dumpsys battery 2>/dev/null
}
part_screen() {
  command -v dumpsys >/dev/null 2>&1 && dumpsys power 2>/dev/null | grep -m1 mWakefulness=
}

part_space() { df -k "$dir" 2>&1; }
# Whether a program that is made in DIRECTORY runs there; it exits with 7.
part_programs() (
  d=$dir/.adt-doctor-$$
  mkdir "$d" 2>&1 || exit
  trap 'rm -rf "$d"' EXIT
  trap 'exit 1' HUP INT TERM
  echo "#!$(command -v sh)" >"$d/try" && echo 'exit 7' >>"$d/try" && chmod 700 "$d/try"
  "$d/try" 2>&1
  echo "code $?"
)
part_libraries() {
  for p do
    [ -e "$p" ] && echo "$p $(readlink -f "$p" 2>/dev/null)"
  done
}
part_public() { cat /vendor/etc/public.libraries.txt /system/etc/public.libraries.txt 2>/dev/null; }
part_deployments() {
  for f in "$dir"/adt/*/deployments/*.json; do
    [ -f "$f" ] && echo "$f"
  done
}
part_store() { du -sk "$dir/adt" 2>/dev/null; }

for part in $parts; do
  echo "==$part=="
  "part_$part" "$@"
done
exit 0
