# SDKs that a user brings: an OpenCL library to link against, Qualcomm's CLML.
#
#   ADT_OPENCL_SDK  link libOpenCL from this SDK instead of opening the device's at run time
#   ADT_CLML        build the CLML graph runtime in (the -clml presets)
#   ADT_CLML_SDK    its SDK; else the environment's ADRENO_OPENCL, else CLML_SDK

# Name every file of *root* that is missing in one message. Sets for the caller:
#   ${prefix}_INCLUDE  directory that holds CL/<header>
#   ${prefix}_LIBRARY  the libOpenCL.so for this target
function(adt_check_sdk prefix root what header)
  set(missing "")
  set(include "")
  foreach(directory IN ITEMS "${root}" "${root}/include")
    if(NOT include AND EXISTS "${directory}/CL/${header}")
      set(include "${directory}")
    endif()
  endforeach()
  if(NOT include)
    string(APPEND missing "\n  CL/${header} (looked in ${root} and its include/)")
  endif()
  # An SDK may hold both widths; the wrong one would fail only when linking.
  set(directories lib lib64)
  if(CMAKE_SIZEOF_VOID_P EQUAL 8)
    set(directories lib64 lib)
  endif()
  set(library "")
  foreach(directory IN LISTS directories)
    if(NOT library AND EXISTS "${root}/${directory}/libOpenCL.so")
      set(library "${root}/${directory}/libOpenCL.so")
    endif()
  endforeach()
  if(NOT library)
    string(APPEND missing "\n  libOpenCL.so (looked in lib64/ and lib/)")
  endif()
  if(missing)
    message(FATAL_ERROR "${root} is no complete ${what}; it lacks:${missing}")
  endif()
  set(${prefix}_INCLUDE "${include}" PARENT_SCOPE)
  set(${prefix}_LIBRARY "${library}" PARENT_SCOPE)
endfunction()

# Let TVM link *library* with the headers in *root*; it looks for the library itself unless it is named before.
function(adt_link_opencl root library)
  set(USE_OPENCL "${root}" CACHE STRING "" FORCE)
  set(OpenCL_LIBRARIES "${library}" CACHE FILEPATH "" FORCE)
  # Linking a program, GNU ld looks for the libraries that the runtime needs, too.
  get_filename_component(directory "${library}" DIRECTORY)
  add_link_options("-Wl,-rpath-link,${directory}")
endfunction()

# Sets ADT_CLML_VERSION, empty without CLML.
function(adt_use_vendor_sdks)
  set(ADT_CLML_VERSION "" PARENT_SCOPE)
  if(ADT_OPENCL_SDK)
    adt_check_sdk(opencl "${ADT_OPENCL_SDK}" "OpenCL SDK" cl.h)
    adt_link_opencl("${ADT_OPENCL_SDK}" "${opencl_LIBRARY}")
  endif()
  if(NOT ADT_CLML)
    return()
  endif()
  set(root "${ADT_CLML_SDK}")
  foreach(variable IN ITEMS ADRENO_OPENCL CLML_SDK)
    if(NOT root AND NOT "$ENV{${variable}}" STREQUAL "")
      set(root "$ENV{${variable}}")
      message(STATUS "CLML SDK from the environment's ${variable}")
    endif()
  endforeach()
  if(NOT root)
    message(
      FATAL_ERROR "No CLML SDK: pass -DADT_CLML_SDK=<directory> or set the environment's ADRENO_OPENCL or CLML_SDK."
    )
  endif()
  adt_check_sdk(clml "${root}" "CLML SDK" cl_qcom_ml_ops.h)
  adt_read_define("${clml_INCLUDE}/CL/cl_qcom_ml_ops.h" CL_QCOM_ML_OPS_H_MAJOR_VERSION version)
  if(NOT version MATCHES "^[0-9]+$")
    message(FATAL_ERROR "${clml_INCLUDE}/CL/cl_qcom_ml_ops.h does not define CL_QCOM_ML_OPS_H_MAJOR_VERSION.")
  endif()
  set(ADT_CLML_VERSION "${version}" PARENT_SCOPE)
  message(STATUS "CLML SDK ${root}, version ${version}")
  # TVM reads the version below USE_CLML, and takes headers and library from USE_CLML_GRAPH_EXECUTOR.
  set(USE_CLML "${clml_INCLUDE}" CACHE STRING "" FORCE)
  set(USE_CLML_GRAPH_EXECUTOR "${root}" CACHE STRING "" FORCE)
  set(EXTERN_CLML_COMPUTE_LIB "${clml_LIBRARY}" CACHE FILEPATH "" FORCE)
  adt_link_opencl("${root}" "${clml_LIBRARY}")
endfunction()
