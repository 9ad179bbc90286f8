// The times that OpenCL kernels take, for the runner's profile, in place of TVM's own timer: that
// one throws in its destructor when the device is lost, which ends the process.
//
//   adt.set_opencl_clock(device, on) -> nothing: whether the device's queue keeps its kernels'
//     times; those that it kept are forgotten
//   adt.read_opencl_clock(device, first) -> how many kernels were launched since it was switched
//     on, and the nanoseconds that those from number *first* on took: they must have ended
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "opencl_common.h"
#include "opencl_context.h"

namespace {

namespace cl = tvm::runtime::cl;  // for TVM's macros
namespace ffi = tvm::ffi;
using cl::OpenCLWorkspace;

DLDevice OpenCl(int device) { return DLDevice{kDLOpenCL, device}; }

// The old queue stays where there is no new one.
void SetClock(int device, bool on) {
  OpenCLWorkspace* workspace = OpenCLWorkspace::Global();
  cl_command_queue& queue = workspace->queues.at(static_cast<std::size_t>(device));
  cl_device_id id = workspace->GetCLDeviceID(device);
  cl_int code = CL_SUCCESS;
  cl_command_queue made =
      clCreateCommandQueue(adt::ContextOf(id), id, on ? CL_QUEUE_PROFILING_ENABLE : 0, &code);
  if (code == CL_SUCCESS) {
    code = clFinish(queue);
    clReleaseCommandQueue(queue);
    queue = made;
  }
  // They are not released: TVM's table of OpenCL's functions has none that does so.
  workspace->GetEventQueue(OpenCl(device)).clear();
  OPENCL_CHECK_ERROR(code);
}

ffi::Array<std::int64_t> ReadClock(int device, std::int64_t first) {
  const std::vector<cl_event>& events = OpenCLWorkspace::Global()->GetEventQueue(OpenCl(device));
  std::int64_t nanoseconds = 0;
  for (auto i = static_cast<std::size_t>(first); i < events.size(); ++i) {
    cl_ulong start = 0;
    cl_ulong end = 0;
    OPENCL_CALL(clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_START, sizeof(start),
                                        &start, nullptr));
    OPENCL_CALL(
        clGetEventProfilingInfo(events[i], CL_PROFILING_COMMAND_END, sizeof(end), &end, nullptr));
    nanoseconds += static_cast<std::int64_t>(end - start);
  }
  return {static_cast<std::int64_t>(events.size()), nanoseconds};
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef()
      .def("adt.set_opencl_clock", SetClock)
      .def("adt.read_opencl_clock", ReadClock);
}
