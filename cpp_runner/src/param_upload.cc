#include "param_upload.h"

#include <tvm/ffi/function.h>
#include <tvm/runtime/device_api.h>

#include <exception>

#include "device_tensor.h"
#include "error.h"
#include "tvm_errors.h"

namespace adt {
namespace {

namespace ffi = tvm::ffi;

// In memory twice at any time.
constexpr std::size_t kMostPending = std::size_t{32} << 20;

// While it lives, this thread's copies to an OpenCL device are enqueued and not waited for.
class DeferredWaiting {
 public:
  explicit DeferredWaiting(DLDevice device) : is_opencl_(device.device_type == kDLOpenCL) {
    Set(true);
  }
  ~DeferredWaiting() { Set(false); }
  DeferredWaiting(const DeferredWaiting&) = delete;
  DeferredWaiting& operator=(const DeferredWaiting&) = delete;

 private:
  void Set(bool on) const {
    if (is_opencl_) ffi::Function::GetGlobalRequired("adt.defer_opencl_waiting")(on);
  }

  bool is_opencl_;
};

}  // namespace

ParamUpload::~ParamUpload() {
  try {
    Wait();
  } catch (const std::exception&) {  // the device failed: it reads nothing any more
  }
}

tvm::runtime::Tensor ParamUpload::Copy(const DLTensor& from, bool image,
                                       const std::function<std::string()>& name) {
  const std::size_t size = ffi::GetDataSize(from);
  pending_.emplace_back(static_cast<const std::byte*>(from.data), size);
  pending_bytes_ += size;
  tvm::runtime::Tensor copy = [&] {
    const DeferredWaiting deferred(device_);
    return CopyToDevice(from, device_, image, name);
  }();
  if (pending_bytes_ >= kMostPending) Finish();
  return copy;
}

void ParamUpload::Finish() {
  WithTvmErrors(ErrorKind::kRun, "cannot copy the parameters to the device",
                "Check the memory that the device has left.", [&] { Wait(); });
}

void ParamUpload::Wait() {
  if (pending_.empty()) return;
  const auto copied = std::exchange(pending_, {});
  pending_bytes_ = 0;
  tvm::runtime::DeviceAPI::Get(device_)->StreamSync(device_, nullptr);
  for (const auto& [part, size] : copied) file_.Forget(part, size);
}

}  // namespace adt
