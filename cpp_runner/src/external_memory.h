// Tensors in memory that TVM did not allocate.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/runtime/tensor.h>

#include <cstddef>
#include <functional>

namespace adt {

/// A tensor at *data*; *release* is called when nobody uses it any more. Not when this throws
/// std::bad_alloc.
tvm::runtime::Tensor WrapMemory(void* data, const tvm::ffi::Shape& shape, DLDataType dtype,
                                DLDevice device, std::function<void()> release);

/// A tensor in the OpenCL buffer *buffer*, a cl_mem of the context that TVM uses. Error(kInput): it
/// is none, or has less than the array's bytes.
tvm::runtime::Tensor WrapOpenCl(void* buffer, const tvm::ffi::Shape& shape, DLDataType dtype,
                                DLDevice device, std::function<void()> release);

/// The tensor of *managed*, whose deleter is called in the end; not when this throws.
/// Error(kInput): it does not lie in a CPU's memory, is not dense, or has elements that no array
/// has.
tvm::runtime::Tensor WrapDlpack(DLManagedTensorVersioned* managed);

/// Where a tensor lies: its address, or on OpenCL its cl_mem. Error(kUsage): it lies in an image.
void* DataOf(const tvm::runtime::Tensor& tensor);

}  // namespace adt
