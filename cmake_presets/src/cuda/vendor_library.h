// What the runtimes of NVIDIA's libraries share. The libraries are opened by name when a package
// that calls them is loaded: a bundle links none, and starts on machines without them.
#pragma once

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <tvm/ffi/error.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

namespace adt::cuda {

constexpr int kMostDevices = 32;  // as TVM

/// A shared library, opened for good: what it keeps on a device outlives the modules that call it.
class VendorLibrary {
 public:
  /// Opens the first of *names* that is there; *package* is the Python package that has it.
  template <std::size_t count>
  VendorLibrary(const std::array<const char*, count>& names, const char* package) {
    for (const char* name : names) {
      if (handle_ == nullptr) handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (handle_ == nullptr) {
      TVM_FFI_THROW(RuntimeError)
          << "the package calls " << names[0] << ", which cannot be opened (" << dlerror()
          << "). Install the Python package " << package << " or the system's, and put the "
          << "library's directory into LD_LIBRARY_PATH; or compile the package without it "
          << "(--offload)";
    }
  }

  template <typename Function>
  void Find(const char* name, Function* function) const {
    *function = reinterpret_cast<Function>(dlsym(handle_, name));
    if (*function == nullptr) TVM_FFI_THROW(RuntimeError) << name << " is not in NVIDIA's library";
  }

 private:
  void* handle_ = nullptr;
};

inline void CheckCuda(cudaError_t error) {
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "CUDA: " << cudaGetErrorString(error);
}

/// Bytes of device memory that libraries compute in, in the whole process.
inline std::atomic<std::int64_t>& WorkspaceBytes() {
  static std::atomic<std::int64_t> bytes = 0;
  return bytes;
}

/// Memory of the current device, which calls on one stream use after each other.
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() { Free(); }

  /// At least so many bytes; work that uses the former ones is waited for.
  void* Grow(std::size_t bytes, cudaStream_t stream) {
    if (bytes > bytes_) {
      CheckCuda(cudaStreamSynchronize(stream));
      Free();
      CheckCuda(cudaMalloc(&data_, bytes));
      bytes_ = bytes;
      WorkspaceBytes() += static_cast<std::int64_t>(bytes);
    }
    return data_;
  }

 private:
  void Free() {
    cudaFree(data_);  // fails where the driver is gone before, at the process's end
    WorkspaceBytes() -= static_cast<std::int64_t>(bytes_);
    data_ = nullptr;
    bytes_ = 0;
  }

  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A library's *State* on *device*, the current one: made for the first module, gone with the last.
template <typename State>
std::shared_ptr<State> SharedState(int device) {
  static std::mutex mutex;
  static std::array<std::weak_ptr<State>, kMostDevices> states;
  const std::lock_guard<std::mutex> lock(mutex);
  std::weak_ptr<State>& known = states.at(static_cast<std::size_t>(device));
  std::shared_ptr<State> state = known.lock();
  if (state == nullptr) known = state = std::make_shared<State>(device);
  return state;
}

}  // namespace adt::cuda
