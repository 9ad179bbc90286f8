// Copies of inputs to an OpenCL device beside its runs (cmake_presets/src/opencl_uploads.cc).
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/tensor.h>

#include <cstddef>
#include <cstdint>

namespace adt {

/// For one input, which two tensors hold in turn. Throws TVM's errors.
class OpenClUpload {
 public:
  /// Have room for *size* bytes. Whether the driver can do so.
  bool Make(DLDevice device, std::size_t size) {
    if (size > size_) {
      upload_ = tvm::ffi::Function::GetGlobalRequired("adt.make_opencl_upload")(
                    device.device_id, static_cast<std::int64_t>(size))
                    .cast<tvm::ffi::Optional<tvm::ffi::Function>>();
      size_ = size;
    }
    return upload_.has_value();
  }
  /// Copy *data* to the tensor that runs do not read. *fresh*: it was made for this.
  void Copy(const void* data, const tvm::runtime::Tensor& to, bool fresh) const {
    (*upload_)(const_cast<DLTensor*>(to.operator->()), const_cast<void*>(data), fresh);
  }

 private:
  std::size_t size_ = 0;
  tvm::ffi::Optional<tvm::ffi::Function> upload_;
};

}  // namespace adt
