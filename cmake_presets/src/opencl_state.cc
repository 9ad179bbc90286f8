// What adt's runner asks of TVM's OpenCL runtime, which keeps its objects to itself:
//
//   adt.describe_opencl(device) -> name, vendor, driver, platform's version, type; what the driver
//     does not say is ""
//   adt.opencl_scope(tensor) -> the memory scope that the tensor's data lies in, as TVM names it
//   adt.opencl_buffer(tensor) -> the cl_mem that the tensor lies in, or null for an image
//   adt.wrap_opencl(device, buffer, size) -> the data of a tensor of that many bytes in a cl_mem of
//     the program's; an error where it does not fit
//   adt.unwrap_opencl(data) -> nothing: that data is released, and the cl_mem is not
//   adt.opencl_answers() -> whether the queues of all devices can still be waited for
//   adt.release_opencl_images() -> nothing: images that were kept for the next run are released
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "opencl_common.h"
#include "opencl_context.h"

extern "C" void adt_opencl_release_images();

namespace {

namespace cl = tvm::runtime::cl;  // for TVM's macros
namespace ffi = tvm::ffi;
using tvm::runtime::cl::BufferDescriptor;
using tvm::runtime::cl::OpenCLWorkspace;

template <typename Function, typename Id>
ffi::String Text(Function function, Id id, cl_uint what) {
  std::size_t size = 0;
  if (function(id, what, 0, nullptr, &size) != CL_SUCCESS || size == 0) return "";
  std::string text(size, '\0');
  if (function(id, what, text.size(), text.data(), nullptr) != CL_SUCCESS) return "";
  return text.c_str();
}

const char* TypeName(cl_device_id device) {
  cl_device_type type = 0;
  if (clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof(type), &type, nullptr) != CL_SUCCESS)
    return "";
  if (type & CL_DEVICE_TYPE_GPU) return "gpu";
  if (type & CL_DEVICE_TYPE_CPU) return "cpu";
  if (type & CL_DEVICE_TYPE_ACCELERATOR) return "accelerator";
  return "";
}

ffi::Array<ffi::String> Describe(int device) {
  OpenCLWorkspace* workspace = OpenCLWorkspace::Global();
  cl_device_id id = workspace->GetCLDeviceID(device);
  const cl_platform_id platform = workspace->device_info.at(id).platform_id;
  return {Text(clGetDeviceInfo, id, CL_DEVICE_NAME), Text(clGetDeviceInfo, id, CL_DEVICE_VENDOR),
          Text(clGetDeviceInfo, id, CL_DRIVER_VERSION),
          Text(clGetPlatformInfo, platform, CL_PLATFORM_VERSION), TypeName(id)};
}

// A queue that could not be made is among them, too, as none.
bool Answers() {
  const std::vector<cl_command_queue>& queues = OpenCLWorkspace::Global()->queues;
  return std::all_of(queues.begin(), queues.end(),
                     [](cl_command_queue queue) { return queue && clFinish(queue) == CL_SUCCESS; });
}

ffi::String Scope(DLTensor* tensor) {
  const auto* data = static_cast<const BufferDescriptor*>(tensor->data);
  return data == nullptr ? "global" : BufferDescriptor::ScopeFromMemoryLayout(data->layout);
}

void* Buffer(DLTensor* tensor) {
  const auto* data = static_cast<const BufferDescriptor*>(tensor->data);
  return data->layout == BufferDescriptor::MemoryLayout::kBuffer1D ? data->buffer : nullptr;
}

// The driver tells whether the last byte can be copied: TVM's wrapper has no clGetMemObjectInfo.
void* Wrap(int device, void* buffer, int64_t size) {
  OpenCLWorkspace* workspace = OpenCLWorkspace::Global();
  cl_command_queue queue = workspace->GetQueue({kDLOpenCL, device});
  const auto memory = static_cast<cl_mem>(buffer);
  if (size > 0) {
    cl_context context = adt::ContextOf(workspace->GetCLDeviceID(device));
    cl_int code = CL_SUCCESS;
    cl_mem byte = clCreateBuffer(context, CL_MEM_READ_WRITE, 1, nullptr, &code);
    OPENCL_CHECK_ERROR(code);
    code = clEnqueueCopyBuffer(queue, memory, byte, static_cast<std::size_t>(size - 1), 0, 1, 0,
                               nullptr, nullptr);
    clReleaseMemObject(byte);
    OPENCL_CHECK_ERROR(code);
  }
  auto* wrapped = new BufferDescriptor;
  wrapped->buffer = memory;
  return wrapped;
}

void Unwrap(void* data) { delete static_cast<BufferDescriptor*>(data); }

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("adt.describe_opencl", Describe)
      .def("adt.opencl_scope", Scope)
      .def("adt.opencl_buffer", Buffer)
      .def("adt.wrap_opencl", Wrap)
      .def("adt.unwrap_opencl", Unwrap)
      .def("adt.opencl_answers", Answers)
      .def("adt.release_opencl_images", adt_opencl_release_images);
}
