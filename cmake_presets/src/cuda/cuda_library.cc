// CUDA for TVM's runtime by the driver's libcuda.so.1 alone, opened when a CUDA device is first
// used: a bundle with CUDA starts on machines without it, and on a device it meets any version of
// the driver.
//
// TVM calls some functions of the driver and some of libcudart. The former are passed on here, the
// latter written with the driver's; no library of NVIDIA's is linked or passed on.
#pragma GCC visibility push(hidden)  // the process has the driver's own functions besides
#include <cuda.h>
#pragma GCC visibility pop
#include <dlfcn.h>

#include <array>
#include <mutex>
#include <type_traits>

#include "cuda_runtime.h"

namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr int kMostDevices = 32;  // as TVM

// What is called of the driver; cuda.h makes versions of some names by macros.
#define ADT_CUDA_FUNCTIONS(X)  \
  X(cuCtxSetCurrent)           \
  X(cuDeviceGetAttribute)      \
  X(cuDeviceGetCount)          \
  X(cuDeviceGetName)           \
  X(cuDevicePrimaryCtxRetain)  \
  X(cuDeviceTotalMem)          \
  X(cuEventCreate)             \
  X(cuEventDestroy)            \
  X(cuEventElapsedTime)        \
  X(cuEventRecord)             \
  X(cuEventSynchronize)        \
  X(cuFuncSetAttribute)        \
  X(cuGetErrorName)            \
  X(cuGetErrorString)          \
  X(cuInit)                    \
  X(cuLaunchCooperativeKernel) \
  X(cuLaunchKernel)            \
  X(cuMemAlloc)                \
  X(cuMemAllocHost)            \
  X(cuMemFree)                 \
  X(cuMemFreeHost)             \
  X(cuMemGetInfo)              \
  X(cuMemcpyDtoDAsync)         \
  X(cuMemcpyDtoHAsync)         \
  X(cuMemcpyHtoDAsync)         \
  X(cuMemcpyPeerAsync)         \
  X(cuModuleGetFunction)       \
  X(cuModuleGetGlobal)         \
  X(cuModuleLoadData)          \
  X(cuModuleUnload)            \
  X(cuStreamCreate)            \
  X(cuStreamDestroy)           \
  X(cuStreamSynchronize)       \
  X(cuStreamWaitEvent)
// Of newer drivers; TVM calls them for what adt compiles nothing for.
#define ADT_CUDA_NEWER(X) X(cuLaunchKernelEx) X(cuTensorMapEncodeTiled)

#define ADT_TEXT(name) #name
#define ADT_NAME(name) ADT_TEXT(name)  // the version's

struct Driver {
#define ADT_MEMBER(name) decltype(&::name) name = nullptr;
  ADT_CUDA_FUNCTIONS(ADT_MEMBER)
  ADT_CUDA_NEWER(ADT_MEMBER)
#undef ADT_MEMBER
  CUresult state = CUDA_ERROR_NOT_INITIALIZED;

  Driver() {
    void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);  // never closed: modules live in it
    if (library == nullptr) return;
    bool whole = true;
    const auto find = [&](const char* name, auto* function) {
      *function =
          reinterpret_cast<std::remove_reference_t<decltype(*function)>>(dlsym(library, name));
      return *function != nullptr;
    };
#define ADT_FIND(name) whole = find(ADT_NAME(name), &this->name) && whole;
    ADT_CUDA_FUNCTIONS(ADT_FIND)
#undef ADT_FIND
#define ADT_FIND(name) find(ADT_NAME(name), &this->name);
    ADT_CUDA_NEWER(ADT_FIND)
#undef ADT_FIND
    if (whole) state = cuInit(0);
  }
};

const Driver& TheDriver() {
  static const Driver driver;
  return driver;
}

// Call a function of the driver, if there is one that works.
template <typename Member, typename... Arguments>
CUresult Call(Member Driver::* function, Arguments... arguments) {
  const Driver& driver = TheDriver();
  if (driver.state != CUDA_SUCCESS) return driver.state;
  if (driver.*function == nullptr) return CUDA_ERROR_NOT_SUPPORTED;
  return (driver.*function)(arguments...);
}

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t Result(CUresult result) {
  if (result != CUDA_SUCCESS) last_error = result;
  return result;
}

// The context that all users of *device* in this process share.
CUresult PrimaryContext(int device, CUcontext* context) {
  static std::mutex mutex;
  static std::array<CUcontext, kMostDevices> contexts{};
  if (device < 0 || device >= kMostDevices) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard<std::mutex> lock(mutex);
  CUcontext& ours = contexts[static_cast<std::size_t>(device)];
  CUresult result = CUDA_SUCCESS;
  if (ours == nullptr) result = Call(&Driver::cuDevicePrimaryCtxRetain, &ours, device);
  *context = ours;
  return result;
}

CUresult Bind(int device) {
  CUcontext context = nullptr;
  const CUresult result = PrimaryContext(device, &context);
  return result == CUDA_SUCCESS ? Call(&Driver::cuCtxSetCurrent, context) : result;
}

// Call a function of the driver in the context of the thread's device.
template <typename Member, typename... Arguments>
cudaError_t CallBound(Member Driver::* function, Arguments... arguments) {
  const CUresult bound = Bind(current_device);
  return Result(bound == CUDA_SUCCESS ? Call(function, arguments...) : bound);
}

CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace

extern "C" {

// The driver's.

CUresult CUDAAPI cuDeviceGetName(char* name, int size, CUdevice device) {
  return Call(&Driver::cuDeviceGetName, name, size, device);
}
CUresult CUDAAPI cuGetErrorName(CUresult error, const char** text) {
  *text = "no CUDA driver";
  return Call(&Driver::cuGetErrorName, error, text);
}
CUresult CUDAAPI cuGetErrorString(CUresult error, const char** text) {
  *text = "no CUDA driver";
  return Call(&Driver::cuGetErrorString, error, text);
}
CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  return Call(&Driver::cuModuleLoadData, module, image);
}
CUresult CUDAAPI cuModuleUnload(CUmodule module) { return Call(&Driver::cuModuleUnload, module); }
CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return Call(&Driver::cuModuleGetFunction, function, module, name);
}
CUresult CUDAAPI cuModuleGetGlobal(CUdeviceptr* address, std::size_t* size, CUmodule module,
                                   const char* name) {
  return Call(&Driver::cuModuleGetGlobal, address, size, module, name);
}
CUresult CUDAAPI cuFuncSetAttribute(CUfunction function, CUfunction_attribute what, int value) {
  return Call(&Driver::cuFuncSetAttribute, function, what, value);
}
CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                unsigned int block_z, unsigned int shared, CUstream stream,
                                void** arguments, void** extra) {
  return Call(&Driver::cuLaunchKernel, function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
              shared, stream, arguments, extra);
}
CUresult CUDAAPI cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x,
                                           unsigned int grid_y, unsigned int grid_z,
                                           unsigned int block_x, unsigned int block_y,
                                           unsigned int block_z, unsigned int shared,
                                           CUstream stream, void** arguments) {
  return Call(&Driver::cuLaunchCooperativeKernel, function, grid_x, grid_y, grid_z, block_x,
              block_y, block_z, shared, stream, arguments);
}
CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function,
                                  void** arguments, void** extra) {
  return Call(&Driver::cuLaunchKernelEx, config, function, arguments, extra);
}
CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                        void* address, const cuuint64_t* extents,
                                        const cuuint64_t* strides, const cuuint32_t* box,
                                        const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                        CUtensorMapSwizzle swizzle,
                                        CUtensorMapL2promotion promotion,
                                        CUtensorMapFloatOOBfill fill) {
  return Call(&Driver::cuTensorMapEncodeTiled, map, type, rank, address, extents, strides, box,
              steps, interleave, swizzle, promotion, fill);
}

}  // extern "C"

// libcudart's.

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return Result(Call(&Driver::cuDeviceGetCount, count));
}
cudaError_t cudaSetDevice(int device) {
  const cudaError_t error = Result(Bind(device));
  if (error == cudaSuccess) current_device = device;
  return error;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, CUdevice_attribute what, int device) {
  return Result(Call(&Driver::cuDeviceGetAttribute, value, what, device));
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return Result(Call(&Driver::cuDeviceTotalMem, &properties->totalGlobalMem, device));
}
cudaError_t cudaMemGetInfo(std::size_t* left, std::size_t* total) {
  return CallBound(&Driver::cuMemGetInfo, left, total);
}
cudaError_t cudaMalloc(void** pointer, std::size_t size) {
  *pointer = nullptr;
  if (size == 0) return cudaSuccess;
  CUdeviceptr address = 0;
  const cudaError_t error = CallBound(&Driver::cuMemAlloc, &address, size);
  *pointer = reinterpret_cast<void*>(address);
  return error;
}
cudaError_t cudaFree(void* pointer) {
  return pointer == nullptr ? cudaSuccess : CallBound(&Driver::cuMemFree, Address(pointer));
}
cudaError_t cudaMallocHost(void** pointer, std::size_t size) {
  return CallBound(&Driver::cuMemAllocHost, pointer, size);
}
cudaError_t cudaFreeHost(void* pointer) { return CallBound(&Driver::cuMemFreeHost, pointer); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (size == 0) return cudaSuccess;
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return CallBound(&Driver::cuMemcpyHtoDAsync, Address(to), from, size, stream);
    case cudaMemcpyDeviceToHost:
      return CallBound(&Driver::cuMemcpyDtoHAsync, to, Address(from), size, stream);
    case cudaMemcpyDeviceToDevice:
      return CallBound(&Driver::cuMemcpyDtoDAsync, Address(to), Address(from), size, stream);
    default:
      return Result(CUDA_ERROR_INVALID_VALUE);
  }
}
cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device,
                                std::size_t size, cudaStream_t stream) {
  CUcontext to_context = nullptr;
  CUcontext from_context = nullptr;
  CUresult result = PrimaryContext(to_device, &to_context);
  if (result == CUDA_SUCCESS) result = PrimaryContext(from_device, &from_context);
  if (result != CUDA_SUCCESS) return Result(result);
  return CallBound(&Driver::cuMemcpyPeerAsync, Address(to), to_context, Address(from), from_context,
                   size, stream);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  return CallBound(&Driver::cuStreamCreate, stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return CallBound(&Driver::cuStreamDestroy, stream);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return CallBound(&Driver::cuStreamSynchronize, stream);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return CallBound(&Driver::cuStreamWaitEvent, stream, event, flags);
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return CallBound(&Driver::cuEventCreate, event, 0U);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return CallBound(&Driver::cuEventDestroy, event);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return CallBound(&Driver::cuEventRecord, event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return CallBound(&Driver::cuEventSynchronize, event);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return CallBound(&Driver::cuEventElapsedTime, milliseconds, start, end);
}
cudaError_t cudaPeekAtLastError() { return last_error; }
cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
const char* cudaGetErrorString(cudaError_t error) {
  const char* text = nullptr;
  cuGetErrorString(error, &text);
  return text != nullptr ? text : "unknown error";
}
