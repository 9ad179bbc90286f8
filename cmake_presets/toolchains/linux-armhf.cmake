# 32-bit ARM Linux with glibc and hard float: Raspberry Pi 2 and 3 with a 32-bit system.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR armv7l)
set(adt_triple arm-linux-gnueabihf)
set(adt_package g++-arm-linux-gnueabihf)
include("${CMAKE_CURRENT_LIST_DIR}/gnu-cross.cmake")
# The distribution's default leaves NEON out; every board named above has it.
set(CMAKE_C_FLAGS_INIT "-march=armv7-a+neon-vfpv4")
set(CMAKE_CXX_FLAGS_INIT "-march=armv7-a+neon-vfpv4")
string(APPEND CMAKE_CXX_FLAGS_INIT " -Wno-psabi") # notes on how GCC 7 changed its ABI
