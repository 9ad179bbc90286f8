// "adt.opencl_devices": platform and name of each device that TVM's OpenCL runtime uses, in its
// order.
//
// With several platforms TVM orders devices by the addresses of the platforms' handles, so that
// nobody outside the process can say which one opencl(0) is.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <string>

#include "opencl_common.h"

namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::cl::OpenCLWorkspace;

template <typename Ask>
std::string Text(Ask ask) {
  size_t size = 0;
  if (ask(0, nullptr, &size) != CL_SUCCESS || size == 0) return "";
  std::string text(size, '\0');
  if (ask(size, text.data(), nullptr) != CL_SUCCESS) return "";
  return text.c_str();  // up to the terminating zero
}

ffi::Array<ffi::String> Devices() {
  OpenCLWorkspace* workspace = OpenCLWorkspace::Global();
  workspace->Init();
  ffi::Array<ffi::String> found;
  for (const cl_device_id device : workspace->devices) {
    const cl_platform_id platform = workspace->device_info[device].platform_id;
    found.push_back(Text([&](size_t room, void* to, size_t* size) {
      return clGetPlatformInfo(platform, CL_PLATFORM_NAME, room, to, size);
    }));
    found.push_back(Text([&](size_t room, void* to, size_t* size) {
      return clGetDeviceInfo(device, CL_DEVICE_NAME, room, to, size);
    }));
  }
  return found;
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("adt.opencl_devices", Devices);
}
