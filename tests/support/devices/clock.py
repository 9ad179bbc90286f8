"""A virtual device whose clock jumps: every program of it that is linked dynamically sees the jumps.

The kernel's clock is the whole machine's, so the C library's functions are replaced (``/etc/ld.so.preload``).
Each odd look at the clock in a process is off by as many years as the file ``YEARS`` says, each even one is right.
"""

import shutil
import subprocess
from pathlib import Path

from adt.virtual import emulator, userland
from adt.virtual.abis import X86_64

YEARS = "/data/local/tmp/years"
"""By how many years the device's clock is off; 0 without the file."""
LIBRARY = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long shift(void) {
  static int looks;
  char text[16] = {0};
  int fd = (int)syscall(SYS_openat, AT_FDCWD, "YEARS", O_RDONLY);
  if (fd < 0) return 0;
  ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  return got > 0 && __atomic_add_fetch(&looks, 1, __ATOMIC_RELAXED) % 2 ? atol(text) * 31557600 : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int code = (int)syscall(SYS_clock_gettime, clock, now);
  if (!code && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
  return code;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec, now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *into) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (into) *into = exact.tv_sec;
  return exact.tv_sec;
}

int utimensat(int at, const char *path, const struct timespec times[2], int flags) {
  struct timespec now[2];
  clock_gettime(CLOCK_REALTIME, now);
  now[1] = now[0];
  for (int i = 0; times && i < 2; i++)
    if (times[i].tv_nsec != UTIME_NOW) now[i] = times[i];
  return (int)syscall(SYS_utimensat, at, path, now, flags);
}

int futimens(int fd, const struct timespec times[2]) { return utimensat(fd, NULL, times, 0); }
"""


def start(name: str, directory: Path) -> emulator.EmulatorInfo:
    """Start the virtual device *name*, without emulation; its userland is made in *directory*."""
    tree = directory / "userland"
    shutil.copytree(userland.ensure_userland(None, X86_64), tree, symlinks=True)
    source = directory / "clock.c"
    source.write_text(LIBRARY.replace("YEARS", YEARS))
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", tree / "usr/lib/clock.so", source], check=True)
    (tree / "etc/ld.so.preload").write_text("/usr/lib/clock.so\n")
    return emulator.start(name, rootfs=tree, abi=X86_64.name)
