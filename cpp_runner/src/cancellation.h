// Ends a run before its end, between two calls of the VM.
#pragma once

#include <tvm/ffi/extra/module.h>

#include <atomic>

namespace adt {

/// While it lives, a run of *vm* throws Error(kCancelled) before its next call once *cancelled* is
/// true. What is in a device's queue by then is computed.
class Cancellation {
 public:
  Cancellation(const tvm::ffi::Module& vm, const std::atomic<bool>& cancelled);
  ~Cancellation();
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;

 private:
  tvm::ffi::Function set_instrument_;
};

/// Throw Error(kCancelled) if it is true.
void RequireNotCancelled(const std::atomic<bool>& cancelled);

}  // namespace adt
