#include "cancellation.h"

#include <tvm/ffi/function.h>

#include <exception>

#include "error.h"

namespace adt {

namespace ffi = tvm::ffi;

void RequireNotCancelled(const std::atomic<bool>& cancelled) {
  if (!cancelled.load(std::memory_order_relaxed)) return;
  throw Error(ErrorKind::kCancelled, "the run was cancelled", "Run it again to have its outputs.");
}

Cancellation::Cancellation(const ffi::Module& vm, const std::atomic<bool>& cancelled)
    : set_instrument_(vm->GetFunction("set_instrument").value()) {
  set_instrument_(ffi::Function::FromPacked([&cancelled](ffi::PackedArgs, ffi::Any* result) {
    RequireNotCancelled(cancelled);
    *result = 0;  // go on
  }));
}

Cancellation::~Cancellation() {
  try {
    set_instrument_(ffi::Function(nullptr));
  } catch (const std::exception&) {  // TVM only stores it
  }
}

}  // namespace adt
