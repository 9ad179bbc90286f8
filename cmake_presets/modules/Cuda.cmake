# TVM's CUDA runtime, which opens the driver's library when it is first used, and adt's runtimes of subgraphs for cuDNN
# and cuBLAS, which open those when a package calls them.
#
#   ADT_CUDA          build it in
#   ADT_CUDA_HEADERS  directory of NVIDIA's cuda.h; else that of the CUDA toolkit in /usr/local/cuda
#
# TVM's own option wants the toolkit with nvcc and links libcudart and libcuda; see src/cuda.
function(adt_add_cuda)
  find_path(ADT_CUDA_HEADERS cuda.h PATHS /usr/local/cuda/include NO_CMAKE_FIND_ROOT_PATH NO_DEFAULT_PATH)
  if(NOT EXISTS "${ADT_CUDA_HEADERS}/cuda.h")
    message(FATAL_ERROR "No cuda.h: pass -DADT_CUDA_HEADERS=<directory>; the Python package nvidia-cuda-runtime-cu12 has it.")
  endif()
  set(directory "${ADT_TVM_SOURCE}/src/runtime/cuda") # where trees up to 0.25 have it
  if(NOT EXISTS "${directory}")
    set(directory "${ADT_TVM_SOURCE}/src/backend/cuda/runtime")
  endif()
  set(ours "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../src/cuda")
  set(sources "${directory}/cuda_device_api.cc" "${directory}/cuda_module.cc" "${ours}/cuda_library.cc"
              "${ours}/cublas_runtime.cc" "${ours}/cudnn_runtime.cc"
  )
  target_sources(tvm_runtime_objs PRIVATE ${sources})
  # Ours first: it has a cuda_runtime.h.
  set_property(
    SOURCE ${sources}
    TARGET_DIRECTORY tvm_runtime_objs
    PROPERTY INCLUDE_DIRECTORIES "${ours}" "${ADT_CUDA_HEADERS}" "${ADT_TVM_SOURCE}/src"
  )
endfunction()
