// Tensors that lie in a device's memory, in a buffer or in an image.
#pragma once

#include <tvm/runtime/tensor.h>

#include <cstddef>
#include <functional>
#include <string>

namespace adt {

/// A copy of *from* on *device*.
///
/// *image*: in an OpenCL image array (layers…, height, width, 4), which the driver keeps as it
/// likes; kernels that were compiled for one take nothing else, and others no image. Throws
/// Error, which calls the tensor *name*(): kPackage: no such array; kMismatch: the device makes no
/// such image; kOutOfMemory; kRun.
tvm::runtime::Tensor CopyToDevice(const DLTensor& from, DLDevice device, bool image,
                                  const std::function<std::string()>& name);

/// A header of a CPU's array at *data*, of the shape and type of *like*, for TVM's copies.
DLTensor HostArray(const void* data, const DLTensor& like);

/// Copy the tensor to *size* bytes at *data*, after what is in the device's queue. Error(kInput):
/// *size* is not its size. Error(kRun). Both call it *name*().
void CopyFromDevice(const tvm::runtime::Tensor& tensor, void* data, std::size_t size,
                    const std::function<std::string()>& name);

}  // namespace adt
