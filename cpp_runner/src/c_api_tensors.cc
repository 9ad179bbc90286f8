// The C interface: tensors of the program's, of a device's, and of DLPack's.

#include <tvm/ffi/dtype.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "adt/adt_runner.h"
#include "c_api.h"
#include "device_tensor.h"
#include "dtype.h"
#include "error.h"
#include "external_memory.h"

namespace {

using adt::Error;
using adt::ErrorKind;
using adt::c_api::ArraySize;
using adt::c_api::Fill;
using adt::c_api::Guard;
using adt::c_api::GuardValue;
using adt::c_api::MakeTensor;
using adt::c_api::Misuse;
using adt::c_api::Require;
using adt::c_api::Shape;

// An array as its caller describes it.
struct ArrayType {
  ArrayType(adt_dtype_t type, const std::int64_t* extents, std::int32_t rank) {
    const auto index = static_cast<std::size_t>(type) - ADT_FLOAT16;  // 0 is huge, too
    if (index >= adt::kDTypes.size()) {
      Misuse("there is no element type " + std::to_string(type),
             "adt_dtype_t has those there are.");
    }
    const adt::Extents given = Shape(extents, rank);
    const adt::DType& element = adt::kDTypes[index];
    const auto bytes = adt::ByteSize(element.size, given.data, given.rank);
    shape = tvm::ffi::Shape(given.data, given.data + given.rank);
    if (!bytes) {
      throw Error(ErrorKind::kInput,
                  adt::Describe(element.name, {shape.begin(), shape.end()}) +
                      " is no array that fits into memory",
                  "Give the array's own extents.");
    }
    size = *bytes;
    dtype = tvm::ffi::StringToDLDataType(tvm::ffi::String(std::string(element.name)));
  }

  tvm::ffi::Shape shape;
  DLDataType dtype{};
  std::size_t size = 0;
};

std::function<void()> Release(adt_tensor_release_t release, void* data) {
  if (release == nullptr) return {};
  return [=] { release(data); };
}

}  // namespace

extern "C" {

adt_status_t adt_tensor_from_memory(void* data, std::int64_t size, adt_dtype_t dtype,
                                    const std::int64_t* shape, std::int32_t rank,
                                    adt_tensor_release_t release, void* release_data,
                                    adt_tensor_t** out) {
  return MakeTensor(out, [&] {
    const ArrayType array(dtype, shape, rank);
    if (ArraySize(data, size) != array.size) {
      throw Error(ErrorKind::kInput,
                  "the tensor has " + std::to_string(size) + " bytes of data, its shape takes " +
                      std::to_string(array.size),
                  "Give memory for the whole array, in C order.");
    }
    return adt::WrapMemory(data, array.shape, array.dtype, DLDevice{kDLCPU, 0},
                           Release(release, release_data));
  });
}

adt_status_t adt_tensor_from_opencl(adt_runner_t* runner, void* buffer, adt_dtype_t dtype,
                                    const std::int64_t* shape, std::int32_t rank,
                                    adt_tensor_release_t release, void* release_data,
                                    adt_tensor_t** out) {
  return MakeTensor(out, [&] {
    const DLDevice device = Require(runner, "runner").session.dl_device();
    if (device.device_type != kDLOpenCL) {
      Misuse("the runner is on " + runner->session.model()->device() + ", not on OpenCL",
             "Load the package with the device opencl, or give memory of the program's.");
    }
    Require(static_cast<const char*>(buffer), "buffer");
    const ArrayType array(dtype, shape, rank);
    return adt::WrapOpenCl(buffer, array.shape, array.dtype, device,
                           Release(release, release_data));
  });
}

adt_status_t adt_tensor_from_dlpack(DLManagedTensorVersioned* managed, adt_tensor_t** out) {
  return MakeTensor(out, [&] { return adt::WrapDlpack(&Require(managed, "managed")); });
}

adt_status_t adt_tensor_to_dlpack(adt_tensor_t* tensor, DLManagedTensorVersioned** out) {
  if (out != nullptr) *out = nullptr;
  return Guard([&] {
    Require(out, "out");
    const auto& array = Require(tensor, "tensor").tensor;
    if (array->device.device_type != kDLCPU) {
      Misuse("the tensor lies in the memory of " + tensor->device,
             "Copy it to the program's memory (adt_tensor_copy).");
    }
    auto managed = std::make_unique<DLManagedTensorVersioned>();
    managed->version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    managed->dl_tensor = *array.operator->();
    managed->manager_ctx = adt_tensor_retain(tensor);
    managed->deleter = [](DLManagedTensorVersioned* self) {
      adt_tensor_free(static_cast<adt_tensor_t*>(self->manager_ctx));
      delete self;
    };
    *out = managed.release();
  });
}

adt_tensor_t* adt_tensor_retain(adt_tensor_t* tensor) {
  if (tensor != nullptr) ++tensor->references;
  return tensor;
}

void adt_tensor_free(adt_tensor_t* tensor) {
  if (tensor != nullptr && --tensor->references == 0) delete tensor;
}

adt_status_t adt_tensor_describe(const adt_tensor_t* tensor, adt_tensor_info_t* info) {
  return Guard([&] { Fill(Require(tensor, "tensor").text, info); });
}

const char* adt_tensor_device(const adt_tensor_t* tensor) {
  return GuardValue<const char*>(nullptr, [&] { return Require(tensor, "tensor").device.c_str(); });
}

void* adt_tensor_data(adt_tensor_t* tensor) {
  return GuardValue<void*>(nullptr, [&] { return adt::DataOf(Require(tensor, "tensor").tensor); });
}

adt_status_t adt_tensor_copy(adt_tensor_t* tensor, void* data, std::int64_t size) {
  return Guard([&] {
    adt::CopyFromDevice(Require(tensor, "tensor").tensor, data, ArraySize(data, size),
                        [] { return std::string("the tensor"); });
  });
}

}  // extern "C"
