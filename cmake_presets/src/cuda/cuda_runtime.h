// What TVM's CUDA runtime takes from libcudart, in the driver's types: cuda_library.cc has it.
#pragma once

#include <cuda.h>

#include <cstddef>

using cudaError_t = CUresult;
using cudaEvent_t = CUevent;
using cudaStream_t = CUstream;

constexpr cudaError_t cudaSuccess = CUDA_SUCCESS;
constexpr cudaError_t cudaErrorCudartUnloading = CUDA_ERROR_DEINITIALIZED;
constexpr cudaError_t cudaErrorIllegalAddress = CUDA_ERROR_ILLEGAL_ADDRESS;

constexpr auto cudaDevAttrClockRate = CU_DEVICE_ATTRIBUTE_CLOCK_RATE;
constexpr auto cudaDevAttrComputeCapabilityMajor = CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
constexpr auto cudaDevAttrComputeCapabilityMinor = CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
constexpr auto cudaDevAttrL2CacheSize = CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE;
constexpr auto cudaDevAttrMaxBlockDimX = CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X;
constexpr auto cudaDevAttrMaxBlockDimY = CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y;
constexpr auto cudaDevAttrMaxBlockDimZ = CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z;
constexpr auto cudaDevAttrMaxRegistersPerBlock = CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK;
constexpr auto cudaDevAttrMaxSharedMemoryPerBlock = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK;
constexpr auto cudaDevAttrMaxThreadsPerBlock = CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
constexpr auto cudaDevAttrMultiProcessorCount = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
constexpr auto cudaDevAttrWarpSize = CU_DEVICE_ATTRIBUTE_WARP_SIZE;

constexpr unsigned int cudaStreamNonBlocking = CU_STREAM_NON_BLOCKING;

enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };

struct cudaDeviceProp {
  std::size_t totalGlobalMem;
};

#pragma GCC visibility push(hidden)  // a process may have libcudart besides
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, CUdevice_attribute what, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMemGetInfo(std::size_t* left, std::size_t* total);
cudaError_t cudaMalloc(void** pointer, std::size_t size);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaMallocHost(void** pointer, std::size_t size);
cudaError_t cudaFreeHost(void* pointer);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                std::size_t size, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags);
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);
cudaError_t cudaPeekAtLastError();
cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t error);
#pragma GCC visibility pop
