#include "device_tensor.h"

#include <tvm/ffi/string.h>

#include <algorithm>

#include "error.h"
#include "tvm_errors.h"

namespace adt {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::Tensor;

constexpr const char* kImageScope = "global.texture";
constexpr std::int64_t kTexel = 4;

// TVM takes the last axis for a texel and the ones before it for width, height and layers, whatever
// there is.
void RequireTexels(const DLTensor& tensor, const std::function<std::string()>& name) {
  const std::int64_t* begin = tensor.shape;
  const std::int64_t* end = begin + tensor.ndim;
  const DLDataType type = tensor.dtype;
  const bool channels =
      type.code == kDLFloat && type.lanes == 1 && (type.bits == 16 || type.bits == 32);
  if (!channels || tensor.ndim < 3 || end[-1] != kTexel ||
      std::any_of(begin, end, [](std::int64_t extent) { return extent < 1; })) {
    throw Error(ErrorKind::kPackage, name() + " cannot lie in an image: it is no array of texels",
                "Compile the model again (adt compile) and deploy the package.");
  }
}

}  // namespace

Tensor CopyToDevice(const DLTensor& from, DLDevice device, bool image,
                    const std::function<std::string()>& name) {
  if (image) RequireTexels(from, name);
  return WithTvmErrors(
      image ? ErrorKind::kMismatch : ErrorKind::kRun,
      [&] { return "cannot copy " + name() + " to the device" + (image ? " as an image" : ""); },
      image ? "The package may want larger images than this device has, or more memory: compile it "
              "for the device (adt compile --like), or without textures (--target adreno-buffer)."
            : "Check the memory that the device has left.",
      [&] {
        ffi::Optional<ffi::String> scope;
        if (image) scope = ffi::String(kImageScope);
        Tensor made = Tensor::Empty(ffi::Shape(from.shape, from.shape + from.ndim), from.dtype,
                                    device, scope);
        // TVM takes no null pointer, even for no bytes.
        if (ffi::GetDataSize(from) != 0) {
          Tensor::CopyFromTo(&from, const_cast<DLTensor*>(made.operator->()));
        }
        return made;
      });
}

DLTensor HostArray(const void* data, const DLTensor& like) {
  DLTensor array = like;
  array.data = const_cast<void*>(data);
  array.device = DLDevice{kDLCPU, 0};
  array.strides = nullptr;
  array.byte_offset = 0;
  return array;
}

void CopyFromDevice(const Tensor& tensor, void* data, std::size_t size,
                    const std::function<std::string()>& name) {
  const std::size_t bytes = ffi::GetDataSize(*tensor.operator->());
  if (size != bytes) {
    throw Error(ErrorKind::kInput,
                name() + " has " + std::to_string(bytes) + " bytes, there is room for " +
                    std::to_string(size),
                "Give room for exactly its size.");
  }
  if (size == 0) return;
  WithTvmErrors(
      ErrorKind::kRun, [&] { return "cannot copy " + name() + " from the device"; },
      "Run it again; if it still fails, report the message with the model.",
      [&] {
        DLTensor to = HostArray(data, *tensor.operator->());
        Tensor::CopyFromTo(tensor.operator->(), &to);
      });
}

}  // namespace adt
