#include "param_upload.h"

#include <tvm/runtime/device_api.h>

#include <exception>

#include "device_tensor.h"
#include "error.h"
#include "opencl_waiting.h"
#include "tvm_errors.h"

namespace adt {
namespace {

namespace ffi = tvm::ffi;

// In memory twice at any time.
constexpr std::size_t kMostPending = std::size_t{32} << 20;

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
    const DeferredOpenClWaiting deferred(device_);
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
