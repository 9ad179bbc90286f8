// Copies of arrays to a device beside the runs that it was given: on a queue of their own, from
// memory that the device reads by itself. TVM has one queue, in which a copy waits for all runs.
//
//   adt.make_opencl_upload(device, size) -> upload(to, from, fresh), for arrays of *size* bytes at
//     most; none where the driver cannot do so. It copies *from* to the tensor *to* and returns
//     when *from* may change; what is given to the device later comes after it. Its caller has two
//     tensors, and gives them in turn: the one that is not given is what runs read. *fresh*: the
//     memory of *to* may have been another's since it was given last.
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <memory>

#include "opencl_common.h"
#include "opencl_context.h"

extern "C" void* adt_opencl_function(const char* name);

namespace {

namespace cl = tvm::runtime::cl;  // for TVM's macros
namespace ffi = tvm::ffi;
using cl::BufferDescriptor;
using cl::OpenCLWorkspace;

// What TVM's table of OpenCL's functions does not have.
struct Functions {
  decltype(&clReleaseEvent) release_event;
  decltype(&clEnqueueMarkerWithWaitList) mark;
  decltype(&clEnqueueBarrierWithWaitList) bar;

  template <typename Function>
  static void Find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(adt_opencl_function(name));
  }
  Functions() {
    Find("clReleaseEvent", &release_event);
    Find("clEnqueueMarkerWithWaitList", &mark);
    Find("clEnqueueBarrierWithWaitList", &bar);
  }
  bool Complete() const { return release_event && mark && bar; }
};

class Upload {
 public:
  Upload(int device, std::size_t size) : device_(device) {
    cl_device_id id = OpenCLWorkspace::Global()->GetCLDeviceID(device);
    cl_context context = adt::ContextOf(id);
    cl_int code = CL_SUCCESS;
    if (!call_.Complete()) return;
    copies_ = clCreateCommandQueue(context, id, 0, &code);
    if (code != CL_SUCCESS) return;
    for (Turn& turn : turns_) {
      turn.memory = clCreateBuffer(context, CL_MEM_ALLOC_HOST_PTR, size, nullptr, &code);
      if (code != CL_SUCCESS) return;
      turn.host = clEnqueueMapBuffer(copies_, turn.memory, CL_TRUE, CL_MAP_WRITE, 0, size, 0,
                                     nullptr, nullptr, &code);
      if (code != CL_SUCCESS) return;
    }
    usable_ = true;
  }
  // A failure is the lost device's.
  ~Upload() {
    if (copies_ != nullptr) clFinish(copies_);
    for (Turn& turn : turns_) {
      if (turn.host != nullptr)
        clEnqueueUnmapMemObject(copies_, turn.memory, turn.host, 0, nullptr, nullptr);
      if (turn.memory != nullptr) clReleaseMemObject(turn.memory);
      Forget(&turn.read);
      Forget(&turn.written);
    }
    if (copies_ != nullptr) clReleaseCommandQueue(copies_);
  }
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  bool usable() const { return usable_; }

  void Copy(const DLTensor& to, const void* from, bool fresh) {
    Turn& last = turns_[turn_];
    Turn& next = turns_[1 - turn_];
    cl_command_queue runs = OpenCLWorkspace::Global()->GetQueue(DLDevice{kDLOpenCL, device_});
    const std::size_t size = ffi::GetDataSize(to);
    if (next.written != nullptr) OPENCL_CALL(clWaitForEvents(1, &next.written));
    Forget(&next.written);
    std::memcpy(next.host, from, size);
    Forget(&last.read);
    OPENCL_CALL(call_.mark(runs, 0, nullptr, &last.read));
    OPENCL_CALL(clFlush(runs));
    const cl_event& read = fresh || next.read == nullptr ? last.read : next.read;
    OPENCL_CALL(clEnqueueWriteBuffer(copies_, static_cast<BufferDescriptor*>(to.data)->buffer,
                                     CL_FALSE, to.byte_offset, size, next.host, 1, &read,
                                     &next.written));
    cl_int code = clFlush(copies_);
    if (code == CL_SUCCESS) code = call_.bar(runs, 1, &next.written, nullptr);
    if (code != CL_SUCCESS) clFinish(copies_);  // else it would be written at any time
    OPENCL_CHECK_ERROR(code);
    turn_ = 1 - turn_;
  }

 private:
  struct Turn {
    cl_mem memory = nullptr;
    void* host = nullptr;
    cl_event read = nullptr;     // when the runs that read the tensor are done
    cl_event written = nullptr;  // when the tensor has what *host* has
  };

  void Forget(cl_event* event) const {
    if (*event != nullptr) call_.release_event(*event);
    *event = nullptr;
  }

  Functions call_;
  int device_;
  bool usable_ = false;
  cl_command_queue copies_ = nullptr;
  std::array<Turn, 2> turns_;
  std::size_t turn_ = 0;  // the last one's
};

ffi::Optional<ffi::Function> MakeUpload(int device, std::int64_t size) {
  const auto upload = std::make_shared<Upload>(device, static_cast<std::size_t>(size));
  if (!upload->usable()) return ffi::Optional<ffi::Function>();
  return ffi::Function::FromTyped(
      [upload](DLTensor* to, void* from, bool fresh) { upload->Copy(*to, from, fresh); });
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("adt.make_opencl_upload", MakeUpload);
}
