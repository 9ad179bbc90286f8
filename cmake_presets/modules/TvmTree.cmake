# What a TVM source tree is: its versions, and the module ABI that its runtime offers.

# Stop with a remedy unless *root* is a complete TVM source tree.
function(adt_check_tvm_tree root)
  if(NOT root)
    message(FATAL_ERROR "No TVM source tree: pass -DADT_TVM_SOURCE=<directory> or set the environment's TVM_HOME.")
  endif()
  foreach(file IN ITEMS CMakeLists.txt include/tvm/runtime/base.h 3rdparty/tvm-ffi/CMakeLists.txt 3rdparty/OpenCL-Headers/CL/cl.h)
    if(NOT EXISTS "${root}/${file}")
      message(
        FATAL_ERROR
          "${root} is no complete TVM source tree: it lacks ${file}. "
          "A git clone needs its submodules (git submodule update --init --recursive)."
      )
    endif()
  endforeach()
endfunction()

# The value of `#define name value` in *file*, without quotes; empty when there is none.
function(adt_read_define file name out)
  set(value "")
  if(EXISTS "${file}")
    file(STRINGS "${file}" lines REGEX "^#define ${name}[ \t]")
    if(lines MATCHES "^#define ${name}[ \t]+\"?([^\"]+)\"?")
      set(value "${CMAKE_MATCH_1}")
    endif()
  endif()
  set(${out} "${value}" PARENT_SCOPE)
endfunction()

# Sets in the caller's scope:
#   ADT_TVM_VERSION, ADT_TVM_FFI_VERSION
#   ADT_EXTRA_CONTEXT_SYMBOLS  functions that the runner registers, in addition to the runtime, as context symbols
#   ADT_CONTEXT_SYMBOLS        all context symbols that a module finds filled (with the leading "__")
function(adt_read_tvm_tree root)
  adt_read_define("${root}/include/tvm/runtime/base.h" TVM_VERSION version)

  set(ffi_header "${root}/3rdparty/tvm-ffi/include/tvm/ffi/c_api.h")
  adt_read_define("${ffi_header}" TVM_FFI_VERSION_MAJOR major)
  adt_read_define("${ffi_header}" TVM_FFI_VERSION_MINOR minor)
  adt_read_define("${ffi_header}" TVM_FFI_VERSION_PATCH patch)

  # The runtime registers each of these functions under its name with "__" in front.
  set(symbols "")
  file(GLOB sources "${root}/src/runtime/*.cc" "${root}/3rdparty/tvm-ffi/src/ffi/extra/*.cc")
  foreach(source IN LISTS sources)
    file(STRINGS "${source}" lines REGEX "^ *TVM_INIT_CONTEXT_FUNC\\([A-Za-z]+\\);")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^.*\\(([A-Za-z]+)\\).*$" "__\\1" symbol "${line}")
      list(APPEND symbols "${symbol}")
    endforeach()
  endforeach()

  # Modules of TVM 0.26 and later look these two up; the 0.25 runtime has the functions but registers neither.
  set(extra "")
  foreach(function IN ITEMS TVMFFIEnvModLookupFromImports TVMFFIHandleInitOnce)
    set(declared "")
    foreach(header IN ITEMS c_api.h extra/c_env_api.h)
      file(STRINGS "${root}/3rdparty/tvm-ffi/include/tvm/ffi/${header}" found REGEX "^TVM_FFI_DLL int ${function}\\(")
      list(APPEND declared ${found})
    endforeach()
    if(declared AND NOT "__${function}" IN_LIST symbols)
      list(APPEND extra "${function}")
      list(APPEND symbols "__${function}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES symbols)
  list(SORT symbols)

  set(ADT_TVM_VERSION "${version}" PARENT_SCOPE)
  set(ADT_TVM_FFI_VERSION "${major}.${minor}.${patch}" PARENT_SCOPE)
  set(ADT_EXTRA_CONTEXT_SYMBOLS "${extra}" PARENT_SCOPE)
  set(ADT_CONTEXT_SYMBOLS "${symbols}" PARENT_SCOPE)
endfunction()

# Sets ADT_OPENCL_LIBRARIES in the caller's scope: what the runtime opens on this target's system when OpenCL is first
# used, in its order. One that was linked is open already, and is called libOpenCL.so.
function(adt_read_opencl_libraries root)
  set(libraries "")
  set(source "${root}/src/runtime/opencl/opencl_wrapper/opencl_wrapper.cc") # where trees up to 0.25 have it
  if(NOT EXISTS "${source}")
    set(source "${root}/src/backend/opencl/runtime/opencl_wrapper/opencl_wrapper.cc")
  endif()
  if(EXISTS "${source}" AND NOT OpenCL_LIBRARIES)
    file(READ "${source}" text)
    set(system __linux__)
    if(ANDROID)
      set(system __ANDROID__)
    endif()
    if(text MATCHES "defined\\(${system}\\)\n[^{]*default_so_paths = {([^}]*)}")
      string(REGEX MATCHALL "\"[^\"]+\"" libraries "${CMAKE_MATCH_1}")
      list(TRANSFORM libraries REPLACE "\"" "")
    endif()
    if(NOT ANDROID) # src/opencl_library.cc
      list(TRANSFORM libraries REPLACE "^libOpenCL.so$" "libOpenCL.so;libOpenCL.so.1")
    endif()
  endif()
  if(NOT libraries)
    set(libraries libOpenCL.so)
    if(NOT OpenCL_LIBRARIES)
      message(WARNING "${source} does not list the OpenCL libraries that it opens; adt_probe asks libOpenCL.so alone.")
    endif()
  endif()
  set(ADT_OPENCL_LIBRARIES "${libraries}" PARENT_SCOPE)
endfunction()

# Call our functions in place of some that TVM's OpenCL runtime calls, and add one of ours: see src/opencl_*.cc. Takes
# the tree's targets, after it was added.
function(adt_extend_opencl)
  set(runtime tvm_runtime_objs) # where trees up to 0.25 have it
  if(TARGET tvm_runtime_opencl)
    set(runtime tvm_runtime_opencl)
  endif()
  set(ours "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../src")
  # The first six are called in opencl_device_api.cc, the others in opencl_module.cc; in 0.25 neither calls the other's.
  set(replaced
      clGetDeviceInfo=adt_opencl_device_info
      clCreateContext=adt_opencl_create_context
      clCreateBuffer=adt_opencl_create_buffer
      clCreateImage=adt_opencl_create_image
      clReleaseMemObject=adt_opencl_release_memory
      clFinish=adt_opencl_finish
      clReleaseKernel=adt_opencl_release_kernel
      clReleaseProgram=adt_opencl_release_program
      clGetProgramInfo=adt_opencl_program_info
      clGetProgramBuildInfo=adt_opencl_build_info
  )
  target_sources(
    ${runtime} PRIVATE "${ours}/opencl_clock.cc" "${ours}/opencl_failures.cc" "${ours}/opencl_images.cc" "${ours}/opencl_image_reuse.cc"
                       "${ours}/opencl_library.cc" "${ours}/opencl_programs.cc" "${ours}/opencl_state.cc"
                       "${ours}/opencl_uploads.cc" "${ours}/opencl_waiting.cc"
  )
  file(GLOB_RECURSE header "${ADT_TVM_SOURCE}/src/opencl_common.h")
  get_filename_component(headers "${header}" DIRECTORY)
  # For the whole target: UNITY_BUILD leaves out sources with include directories of their own.
  target_include_directories(${runtime} PRIVATE "${headers}")
  set(callers "")
  foreach(name IN ITEMS opencl_device_api opencl_module)
    file(GLOB_RECURSE source "${ADT_TVM_SOURCE}/src/${name}.cc")
    list(APPEND callers ${source})
  endforeach()
  if(ADT_TVM_VERSION MATCHES "^0\\.25\\.") # joined here: UNITY_BUILD leaves out sources with definitions
    list(TRANSFORM callers REPLACE "^(.+)$" "#include \"\\1\"\n")
    list(JOIN callers "" text)
    set(callers "${CMAKE_BINARY_DIR}/tvm/Unity/opencl.cxx")
    file(WRITE "${callers}.new" "${text}")
    file(COPY_FILE "${callers}.new" "${callers}" ONLY_IF_DIFFERENT)
    get_target_property(sources ${runtime} SOURCES)
    list(FILTER sources EXCLUDE REGEX "/opencl_(device_api|module)\\.cc$")
    set_property(TARGET ${runtime} PROPERTY SOURCES ${sources} "${callers}")
  endif()
  set_property(
    SOURCE ${callers}
    TARGET_DIRECTORY ${runtime}
    PROPERTY COMPILE_DEFINITIONS ${replaced}
  )
  if(NOT OpenCL_LIBRARIES)
    file(GLOB_RECURSE source "${ADT_TVM_SOURCE}/src/opencl_wrapper.cc")
    set_property(
      SOURCE ${source}
      TARGET_DIRECTORY ${runtime}
      PROPERTY COMPILE_DEFINITIONS dlopen=adt_open_opencl
    )
  endif()
endfunction()

# TVM 0.25's CLML runtime logs, and takes a maximum, without the headers for it; it was not tried with its sources joined.
# Takes the tree's targets, after it was added.
function(adt_mend_clml)
  file(GLOB_RECURSE sources "${ADT_TVM_SOURCE}/src/runtime/clml_*.cc")
  set_property(SOURCE ${sources} TARGET_DIRECTORY tvm_runtime_objs PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
  list(FILTER sources INCLUDE REGEX "/clml_(memory_planner|utils)\\.cc$")
  set_property(
    SOURCE ${sources}
    TARGET_DIRECTORY tvm_runtime_objs
    APPEND
    PROPERTY COMPILE_OPTIONS -include climits -include cmath -include tvm/runtime/logging.h
  )
endfunction()

# Compile less of TVM's runtime, in less time, where that was tried. Takes the tree's targets, after it was added.
#
# Left out is what runs on several machines at once (disco) and what keeps state between the calls of a language model:
# nothing that adt compiles calls it. Several sources make one object: templates are compiled once for each. Calls take
# the runtime's time: -O3 shortens them by a seventh, and takes twice as long to compile.
function(adt_shorten_tvm)
  if(NOT ADT_TVM_VERSION MATCHES "^0\\.25\\.")
    return()
  endif()
  get_target_property(sources tvm_runtime_objs SOURCES)
  list(FILTER sources EXCLUDE REGEX "/disco/|/vm/(attn_backend|kv_state|paged_kv_cache|rnn_state|tensor_cache_support)\\.cc$")
  set_property(TARGET tvm_runtime_objs PROPERTY SOURCES ${sources})
  set_target_properties(tvm_runtime_objs tvm_ffi_objs PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 24)
  foreach(target IN ITEMS tvm_runtime_objs tvm_ffi_objs)
    target_compile_options(${target} PRIVATE ${ADT_QUICK}) # -Os doubles the time of a call
  endforeach()
  if(TARGET tvm_rpc)
    set_property(TARGET tvm_rpc PROPERTY UNITY_BUILD ON)
  endif()
  set_property(
    SOURCE "${ADT_TVM_SOURCE}/src/runtime/builtin_fp16.cc"
    TARGET_DIRECTORY tvm_runtime_objs
    PROPERTY COMPILE_OPTIONS $<$<CONFIG:Release>:-O3>
  )
endfunction()
