# Finds the NDK, then hands over to the NDK's own toolchain file.
set(ADT_NDK "$ENV{ANDROID_NDK}" CACHE PATH "Root of the Android NDK")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ADT_NDK)

if(NOT ADT_NDK)
  message(FATAL_ERROR "No Android NDK: set the environment's ANDROID_NDK, or pass -DADT_NDK=<directory>.")
endif()
if(NOT EXISTS "${ADT_NDK}/build/cmake/android.toolchain.cmake")
  message(
    FATAL_ERROR
      "${ADT_NDK} is no Android NDK: it lacks build/cmake/android.toolchain.cmake. "
      "Set ANDROID_NDK or ADT_NDK to the directory that holds source.properties."
  )
endif()
# CMake's own trial projects run this file again, without our cache but with our environment.
set(ENV{ANDROID_NDK} "${ADT_NDK}")
include("${ADT_NDK}/build/cmake/android.toolchain.cmake")
