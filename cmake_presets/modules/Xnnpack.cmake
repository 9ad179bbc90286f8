# XNNPACK, Google's kernels for CPUs, and libadt_xnnpack.so, which computes subgraphs of a model with it.
#
#   ADT_XNNPACK         build it (OFF)
#   ADT_XNNPACK_SOURCE  directory with the source trees xnnpack, pthreadpool, fxdiv and cpuinfo

set(ADT_SOURCES_AT_ONCE 40) # more take longer to compile in parallel, fewer read the same headers more often

# Stop with a remedy unless *root* has the four source trees.
function(adt_check_xnnpack root)
  foreach(file IN ITEMS xnnpack/include/xnnpack.h pthreadpool/include/pthreadpool.h fxdiv/include/fxdiv.h
                        cpuinfo/include/cpuinfo.h
  )
    if(NOT EXISTS "${root}/${file}")
      message(FATAL_ERROR "No source of XNNPACK: ${root}/${file} is missing. Pass -DADT_XNNPACK_SOURCE=<directory>.")
    endif()
  endforeach()
endfunction()

# Compile the C files of *target* that have the same flags together: each reads the same headers, and most are short.
# CMake's own UNITY_BUILD leaves files with flags of their own alone.
function(adt_join_sources target)
  get_target_property(sources ${target} SOURCES)
  get_target_property(directory ${target} SOURCE_DIR)
  set(remaining "")
  set(groups "")
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${directory}" OUTPUT_VARIABLE path)
    if(NOT source MATCHES "\\.c$")
      list(APPEND remaining "${path}")
      continue()
    endif()
    get_property(
      flags
      SOURCE "${path}"
      TARGET_DIRECTORY ${target}
      PROPERTY COMPILE_FLAGS
    )
    string(REGEX MATCH "scalar" kind "${source}") # which has other types by the names of NEON's
    string(MD5 group "${flags}${kind}")
    if(NOT group IN_LIST groups)
      list(APPEND groups ${group})
      set(flags_${group} "${flags}")
    endif()
    list(APPEND sources_${group} "${path}")
  endforeach()
  foreach(group IN LISTS groups)
    list(LENGTH sources_${group} count)
    foreach(begin RANGE 0 ${count} ${ADT_SOURCES_AT_ONCE})
      list(SUBLIST sources_${group} ${begin} ${ADT_SOURCES_AT_ONCE} part)
      if(NOT part)
        continue()
      endif()
      list(TRANSFORM part REPLACE "^(.+)$" "#include \"\\1\"\n")
      list(JOIN part "" text)
      set(file "${CMAKE_CURRENT_BINARY_DIR}/${target}/${group}_${begin}.c")
      file(CONFIGURE OUTPUT "${file}" CONTENT "${text}" @ONLY) # leaves an unchanged file alone
      list(APPEND remaining "${file}")
      set_property(
        SOURCE "${file}"
        TARGET_DIRECTORY ${target}
        PROPERTY COMPILE_FLAGS "${flags_${group}}"
      )
    endforeach()
  endforeach()
  set_property(TARGET ${target} PROPERTY SOURCES ${remaining})
endfunction()

# Adds the target XNNPACK, a static library; takes ADT_XNNPACK_SOURCE.
function(adt_add_xnnpack)
  foreach(part IN ITEMS XNNPACK_BUILD_TESTS XNNPACK_BUILD_BENCHMARKS XNNPACK_BUILD_ALL_MICROKERNELS
                        XNNPACK_ENABLE_KLEIDIAI PTHREADPOOL_BUILD_TESTS PTHREADPOOL_BUILD_BENCHMARKS
                        FXDIV_BUILD_TESTS FXDIV_BUILD_BENCHMARKS
  )
    set(${part} OFF CACHE BOOL "" FORCE)
  endforeach()
  # For 4-bit weights alone, which no subgraph of ours has, and each function is there twice.
  set(XNNPACK_ENABLE_AVX512VNNIGFNI OFF CACHE BOOL "" FORCE)
  # GCC has no intrinsics for SME before version 14, and src/xnnpack_threads.c no tiles of its width.
  set(XNNPACK_ENABLE_ARM_SME OFF CACHE BOOL "" FORCE)
  set(XNNPACK_ENABLE_ARM_SME2 OFF CACHE BOOL "" FORCE)
  foreach(library IN ITEMS XNNPACK PTHREADPOOL CPUINFO)
    set(${library}_LIBRARY_TYPE static CACHE STRING "" FORCE)
  endforeach()
  set(CPUINFO_LOG_LEVEL none CACHE STRING "" FORCE) # a phone's programs may not read all of /sys
  foreach(tree IN ITEMS cpuinfo fxdiv pthreadpool)
    string(TOUPPER ${tree} upper)
    set(${upper}_SOURCE_DIR "${ADT_XNNPACK_SOURCE}/${tree}")
  endforeach()
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  # Not add_compile_options(), which would change the runner's flags, too; -w: warnings of trees that are not ours.
  foreach(language IN ITEMS C CXX ASM)
    string(APPEND CMAKE_${language}_FLAGS " -w -ffile-prefix-map=${ADT_XNNPACK_SOURCE}=xnnpack")
    string(APPEND CMAKE_${language}_FLAGS " -ffunction-sections -fdata-sections")
  endforeach()
  add_subdirectory("${ADT_XNNPACK_SOURCE}/xnnpack" xnnpack EXCLUDE_FROM_ALL SYSTEM)
  adt_join_sources(microkernels-prod)
endfunction()

# Adds libadt_xnnpack.so, or its archive for ADT_ONE_LIBRARY; takes ADT_TVM_SOURCE and its targets.
function(adt_add_xnnpack_runtime)
  adt_check_xnnpack("${ADT_XNNPACK_SOURCE}")
  adt_add_xnnpack()
  get_target_property(sources pthreadpool SOURCES)
  list(REMOVE_ITEM sources src/pthreads.c)
  list(TRANSFORM sources PREPEND "${ADT_XNNPACK_SOURCE}/pthreadpool/")
  set(ours "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../src")
  set_property(TARGET pthreadpool PROPERTY SOURCES ${sources} "${ours}/xnnpack_threads.c")
  set(headers "${ADT_TVM_SOURCE}/include" "${ADT_TVM_SOURCE}/3rdparty/tvm-ffi/include"
              "${ADT_TVM_SOURCE}/3rdparty/tvm-ffi/3rdparty/dlpack/include"
  )
  target_include_directories(pthreadpool SYSTEM PRIVATE ${headers})
  target_sources(operator-run PRIVATE "${ours}/xnnpack_columns.c")
  set_property(
    SOURCE "${ADT_XNNPACK_SOURCE}/xnnpack/src/operator-run.c"
    TARGET_DIRECTORY operator-run
    PROPERTY COMPILE_DEFINITIONS pthreadpool_parallelize_2d_tile_2d=adt_parallelize_2d_tile_2d
             pthreadpool_parallelize_2d_tile_2d_with_uarch=adt_parallelize_2d_tile_2d_with_uarch
  )
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
    target_sources(operator-run PRIVATE "${ours}/xnnpack_ahead.c")
    set_property(
      SOURCE "${ours}/xnnpack_ahead.c"
      TARGET_DIRECTORY operator-run
      PROPERTY COMPILE_OPTIONS -mavx512f -mbmi2
    )
  endif()
  target_link_libraries(pthreadpool INTERFACE $<LINK_ONLY:tvm_runtime>) # behind it, for linkers that keep what is needed

  set(kind SHARED)
  if(ADT_ONE_LIBRARY)
    set(kind STATIC)
  endif()
  add_library(adt_xnnpack ${kind} "${ours}/xnnpack_runtime.cc")
  set_target_properties(
    adt_xnnpack
    PROPERTIES CXX_STANDARD ${ADT_CXX_STANDARD}
               CXX_STANDARD_REQUIRED ON
               CXX_EXTENSIONS OFF
               CXX_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON
               POSITION_INDEPENDENT_CODE ON
  )
  target_compile_options(adt_xnnpack PRIVATE -Wall -Wextra -Werror)
  target_include_directories(adt_xnnpack SYSTEM PRIVATE ${headers} "${ADT_TVM_SOURCE}/src" "${ADT_TVM_SOURCE}/3rdparty/compiler-rt")
  target_link_libraries(adt_xnnpack PRIVATE XNNPACK pthreadpool tvm_runtime)
  target_link_options(
    adt_xnnpack PRIVATE -Wl,--no-undefined -Wl,--gc-sections -Wl,--exclude-libs,ALL
  )
endfunction()
