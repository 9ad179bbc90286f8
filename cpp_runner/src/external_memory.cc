#include "external_memory.h"

#include <tvm/ffi/function.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "dtype.h"
#include "error.h"
#include "tvm_errors.h"

namespace adt {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::Tensor;

// As the allocator of a tensor.
struct External {
  void* data;
  std::function<void()> release;
  void AllocData(DLTensor* tensor) const { tensor->data = data; }
  void FreeData(DLTensor*) const {
    if (release) release();
  }
};

bool IsKnown(DLDataType type) {
  constexpr std::pair<int, char> kKinds[] = {
      {kDLFloat, 'f'}, {kDLInt, 'i'}, {kDLUInt, 'u'}, {kDLBool, 'b'}};
  return type.lanes == 1 && type.bits % 8 == 0 &&
         std::any_of(std::begin(kKinds), std::end(kKinds), [&](auto kind) {
           return kind.first == type.code && FindDType(kind.second, type.bits / 8) != nullptr;
         });
}

[[noreturn]] void Refuse(const std::string& what) {
  throw Error(ErrorKind::kInput, what,
              "Give a dense array, in C order, of a CPU's memory; copy it first.");
}

}  // namespace

Tensor WrapMemory(void* data, const ffi::Shape& shape, DLDataType dtype, DLDevice device,
                  std::function<void()> release) {
  return ffi::Tensor::FromNDAlloc(External{data, std::move(release)}, shape, dtype, device);
}

Tensor WrapOpenCl(void* buffer, const ffi::Shape& shape, DLDataType dtype, DLDevice device,
                  std::function<void()> release) {
  DLTensor array{};
  array.ndim = static_cast<std::int32_t>(shape.size());
  array.shape = const_cast<std::int64_t*>(shape.data());
  array.dtype = dtype;
  const auto size = static_cast<std::int64_t>(ffi::GetDataSize(array));
  void* wrapped = WithTvmErrors(
      ErrorKind::kInput, "the array cannot lie in that OpenCL memory",
      "Give a buffer (cl_mem) of the array's size, of the context of the runner's own memory: "
      "clGetMemObjectInfo(adt_tensor_data(tensor), CL_MEM_CONTEXT, ...).",
      [&] {
        return ffi::Function::GetGlobalRequired("adt.wrap_opencl")(device.device_id, buffer, size)
            .cast<void*>();
      });
  const auto unwrap = ffi::Function::GetGlobalRequired("adt.unwrap_opencl");
  const auto release_both = [unwrap, wrapped, given = std::move(release)] {
    unwrap(wrapped);
    if (given) given();
  };
  try {
    return WrapMemory(wrapped, shape, dtype, device, release_both);
  } catch (...) {
    unwrap(wrapped);
    throw;
  }
}

Tensor WrapDlpack(DLManagedTensorVersioned* managed) {
  if (managed->version.major != DLPACK_MAJOR_VERSION) {
    Refuse("a DLPack tensor of version " + std::to_string(managed->version.major));
  }
  const DLTensor& array = managed->dl_tensor;
  if (array.device.device_type != kDLCPU) Refuse("a DLPack tensor that lies in a device's memory");
  if (!ffi::IsContiguous(array)) Refuse("a DLPack tensor with strides");
  if (!IsKnown(array.dtype)) Refuse("a DLPack tensor of elements that no array has");
  const auto release = [managed] {
    if (managed->deleter != nullptr) managed->deleter(managed);
  };
  return WrapMemory(static_cast<std::byte*>(array.data) + array.byte_offset,
                    ffi::Shape(array.shape, array.shape + array.ndim), array.dtype,
                    DLDevice{kDLCPU, 0}, release);
}

void* DataOf(const Tensor& tensor) {
  if (tensor->device.device_type != kDLOpenCL) {
    return static_cast<std::byte*>(tensor->data) + tensor->byte_offset;
  }
  void* buffer = ffi::Function::GetGlobalRequired("adt.opencl_buffer")(
                     const_cast<DLTensor*>(tensor.operator->()))
                     .cast<void*>();
  if (buffer == nullptr || tensor->byte_offset != 0) {
    throw Error(ErrorKind::kUsage, "the tensor lies in an image, or inside another one's memory",
                "Copy it.");
  }
  return buffer;
}

}  // namespace adt
