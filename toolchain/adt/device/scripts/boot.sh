# Which boot of the device this is: the kernel's ID, and when the first process started where that may be read.
# A virtual device that was restarted is another boot on the same kernel.
( b=; { IFS= read -r b </proc/sys/kernel/random/boot_id; } 2>/dev/null
  s=; { IFS= read -r s </proc/1/stat; } 2>/dev/null
  # shellcheck disable=SC2086 # the words are wanted
  set -- ${s##*\) }
  echo "$b ${20}" )
