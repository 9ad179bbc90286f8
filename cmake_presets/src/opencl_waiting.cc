// What TVM's OpenCL runtime calls in place of clFinish().
//
// It waits for the end of each copy between the host and the device. A thread that makes many
// copies, and keeps what they read, waits for all of them at once:
//
//   adt.defer_opencl_waiting(on) -> nothing: from now on this thread's copies are enqueued alone,
//     until it is switched off
#include <CL/cl.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

namespace {

bool& Deferred() {
  static thread_local bool deferred = false;
  return deferred;
}

}  // namespace

extern "C" cl_int CL_API_CALL adt_opencl_finish(cl_command_queue queue) {
  return Deferred() ? CL_SUCCESS : clFinish(queue);
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("adt.defer_opencl_waiting",
                                        [](bool on) { Deferred() = on; });
}
