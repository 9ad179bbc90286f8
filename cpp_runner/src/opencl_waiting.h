// Copies to an OpenCL device that nobody waits for (cmake_presets/src/opencl_waiting.cc).
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/function.h>

namespace adt {

/// While it lives, this thread's copies to an OpenCL device are enqueued and not waited for.
class DeferredOpenClWaiting {
 public:
  explicit DeferredOpenClWaiting(DLDevice device) : is_opencl_(device.device_type == kDLOpenCL) {
    Set(true);
  }
  ~DeferredOpenClWaiting() { Set(false); }
  DeferredOpenClWaiting(const DeferredOpenClWaiting&) = delete;
  DeferredOpenClWaiting& operator=(const DeferredOpenClWaiting&) = delete;

 private:
  void Set(bool on) const {
    if (is_opencl_) tvm::ffi::Function::GetGlobalRequired("adt.defer_opencl_waiting")(on);
  }

  bool is_opencl_;
};

}  // namespace adt
