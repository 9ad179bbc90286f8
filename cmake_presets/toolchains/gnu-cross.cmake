# What the toolchain files for Debian's and Ubuntu's cross GCCs have in common. Set before including it:
#   adt_triple   GCC's target, e.g. aarch64-linux-gnu
#   adt_package  the Debian package that brings the compiler
set(ADT_CROSS_PREFIX "${adt_triple}-" CACHE STRING "Prefix of the cross compiler's programs")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ADT_CROSS_PREFIX)

find_program(ADT_CROSS_CXX "${ADT_CROSS_PREFIX}g++")
if(NOT ADT_CROSS_CXX)
  message(
    FATAL_ERROR
      "There is no ${ADT_CROSS_PREFIX}g++ on PATH. Install the cross compiler "
      "(Debian, Ubuntu: apt-get install ${adt_package}) or set ADT_CROSS_PREFIX."
  )
endif()

set(CMAKE_C_COMPILER "${ADT_CROSS_PREFIX}gcc")
set(CMAKE_CXX_COMPILER "${ADT_CROSS_PREFIX}g++")
foreach(tool IN ITEMS ar ranlib strip nm objcopy objdump readelf)
  string(TOUPPER "${tool}" upper)
  set(CMAKE_${upper} "${ADT_CROSS_PREFIX}${tool}" CACHE STRING "")
endforeach()

# Programs come from this machine, everything that is compiled or linked from the target's tree.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
if(NOT CMAKE_FIND_ROOT_PATH)
  set(CMAKE_FIND_ROOT_PATH "/usr/${adt_triple}")
endif()
