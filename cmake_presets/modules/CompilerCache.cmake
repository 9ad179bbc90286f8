# ccache or sccache in front of the compiler, when one is installed; never needed.

option(ADT_COMPILER_CACHE "Use ccache or sccache when one is on PATH" ON)

# Sets CMAKE_<LANG>_COMPILER_LAUNCHER for this directory and those below it. A launcher of the user's own
# (-DCMAKE_CXX_COMPILER_LAUNCHER, or CMake's variable in the environment) stays.
macro(adt_use_compiler_cache)
  set(USE_CCACHE OFF CACHE STRING "TVM's own search for ccache; the superbuild has done it" FORCE)
  if(ADT_COMPILER_CACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    find_program(ADT_COMPILER_CACHE_PROGRAM NAMES ccache sccache)
    if(ADT_COMPILER_CACHE_PROGRAM)
      message(STATUS "Compiling through ${ADT_COMPILER_CACHE_PROGRAM}")
      set(CMAKE_C_COMPILER_LAUNCHER "${ADT_COMPILER_CACHE_PROGRAM}")
      set(CMAKE_CXX_COMPILER_LAUNCHER "${ADT_COMPILER_CACHE_PROGRAM}")
    endif()
  endif()
endmacro()
