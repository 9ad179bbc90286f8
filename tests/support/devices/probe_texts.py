"""Made-up outputs of the probe's script, in the layouts that the kernel's documentation describes.

None was recorded: the numbers are plausible for a phone with an Adreno, one
with a Mali, and a board, and the virtual device's is what its script prints.
(Documentation/admin-guide/pm/cpufreq.rst, Documentation/ABI/testing/sysfs-devices-system-cpu,
Documentation/driver-api/thermal/sysfs-api.rst, Documentation/filesystems/proc.rst.)
"""


def cpuinfo(*parts: tuple[int, int], features: str) -> str:
    """Return a block for each (implementer, part), as 64-bit Arm kernels write them."""
    return "".join(
        f"processor\t: {number}\nBogoMIPS\t: 38.40\nFeatures\t: {features}\n"
        f"CPU implementer\t: {implementer:#04x}\nCPU architecture: 8\nCPU variant\t: 0x1\n"
        f"CPU part\t: {part:#05x}\nCPU revision\t: 0\n\n"
        for number, (implementer, part) in enumerate(parts)
    )


PHONE_FEATURES = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
)

ADRENO = f"""\
==boot==
1e2d3c4b-0001-4000-8000-000000000001
==kernel==
5.10.149-android12-9
==selinux==
Enforcing
==memory==
MemTotal:        7602176 kB
MemFree:          221184 kB
MemAvailable:    3145728 kB
Buffers:            4096 kB
==cpuinfo==
Processor\t: AArch64 Processor rev 14 (aarch64)

{cpuinfo(*[(0x41, 0xD46)] * 4, *[(0x41, 0xD47)] * 3, (0x41, 0xD48), features=PHONE_FEATURES + " i8mm bf16")}
Hardware\t: Made Up Technologies, Inc
==cpus==
0 300000 1785600 1171200 walt -
1 300000 1785600 1171200 walt -
2 300000 1785600 1171200 walt -
3 300000 1785600 1171200 walt -
4 633600 2496000 633600 walt -
5 633600 2496000 633600 walt -
6 633600 2496000 633600 walt -
7 787200 2995200 2995200 walt -
==thermal==
41300 cpu-0-0
- battery
-273000 modem-off
38250 gpuss-0
==gpu==
/sys/class/kgsl/kgsl-3d0/gpu_model Adreno730v2
==board==


"""

MALI = f"""\
==boot==
1e2d3c4b-0002-4000-8000-000000000002 77
==kernel==
5.10.157-android13-4
==selinux==
Enforcing
==memory==
MemTotal:        7864320 kB
MemAvailable:    2097152 kB
==cpuinfo==
{cpuinfo(*[(0x41, 0xD05)] * 4, *[(0x41, 0xD41)] * 2, *[(0x41, 0xD44)] * 2, features=PHONE_FEATURES)}
==cpus==
0 300000 1803000 738000 sched_pixel 0x00000000412fd050
1 300000 1803000 738000 sched_pixel 0x00000000412fd050
2 300000 1803000 738000 sched_pixel 0x00000000412fd050
3 300000 1803000 738000 sched_pixel 0x00000000412fd050
4 400000 2253000 400000 sched_pixel 0x00000000411fd410
5 400000 2253000 400000 sched_pixel 0x00000000411fd410
6 500000 2802000 500000 sched_pixel 0x00000000411fd440
7 500000 2802000 500000 sched_pixel 0x00000000411fd440
==thermal==
- BIG
- LITTLE
==gpu==
/sys/class/misc/mali0/device/gpuinfo Mali-G78 20 cores r0p1 0x9202
==board==


"""

BOARD = f"""\
==boot==
1e2d3c4b-0003-4000-8000-000000000003 12
==kernel==
6.1.0-rpi7-rpi-v8
==selinux==
sh: 1: getenforce: not found
==memory==
MemTotal:        3884056 kB
MemAvailable:    3355444 kB
==cpuinfo==
{cpuinfo(*[(0x41, 0xD08)] * 4, features="fp asimd evtstrm crc32 cpuid")}
Hardware\t: BCM2835
Revision\t: c03114
Model\t\t: Raspberry Pi 4 Model B Rev 1.4
==cpus==
0 600000 1800000 1500000 ondemand 0x00000000410fd083
1 600000 1800000 1500000 ondemand 0x00000000410fd083
2 600000 1800000 1500000 ondemand 0x00000000410fd083
3 600000 1800000 1500000 ondemand 0x00000000410fd083
==thermal==
52095 cpu-thermal
==gpu==
==board==
Raspberry Pi 4 Model B Rev 1.4
raspberrypi,4-model-b brcm,bcm2711
"""

VIRTUAL = """\
==boot==
47f755cd-39a1-449d-897a-4ea091806abc 1297422
==kernel==
6.18.44
==selinux==
sh: getenforce: inaccessible or not found
==memory==
MemTotal:       24684084 kB
MemAvailable:   23324104 kB
==cpuinfo==
processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Some CPU of the computer
flags\t\t: fpu sse2 avx2

processor\t: 1
vendor_id\t: GenuineIntel
model name\t: Some CPU of the computer
flags\t\t: fpu sse2

==cpus==
0 - - - - -
1 - - - - -
==thermal==
==gpu==
==board==
"""
