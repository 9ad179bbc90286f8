# 64-bit ARM Linux with glibc: RK3399, Raspberry Pi 4 and 5, and the virtual device.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(adt_triple aarch64-linux-gnu)
set(adt_package g++-aarch64-linux-gnu)
include("${CMAKE_CURRENT_LIST_DIR}/gnu-cross.cmake")
