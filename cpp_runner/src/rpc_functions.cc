// What a bundle's RPC server offers beyond TVM's own functions: tvm_rpc is linked with this
// library.
//
//   adt.runner_version() -> text
//   adt.profile(vm, entry, runs) -> JSON text: times of every call of the entry, whose inputs were
//     set with set_input (WriteProfile in instrument.h)

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <string>

#include "error.h"
#include "instrument.h"
#include "json_writer.h"
#include "runner_info.h"

namespace adt {
namespace {

namespace ffi = tvm::ffi;

ffi::String Profile(const ffi::Module& vm, const ffi::String& entry, std::int64_t runs) {
  constexpr std::int64_t kMostRuns = 1'000'000;
  if (runs < 1 || runs > kMostRuns) {
    TVM_FFI_THROW(ValueError) << "adt.profile takes a number of runs from 1 to " << kMostRuns;
  }
  try {
    JsonWriter json;
    WriteProfile(&json, ProfileCalls(vm, entry, runs));
    return json.Finish();
  } catch (const Error& error) {  // a remote caller gets TVM's errors only
    TVM_FFI_THROW(RuntimeError) << error.what() << "\nremedy: " << error.remedy();
  }
  TVM_FFI_UNREACHABLE();
}

ffi::String RunnerVersion() {
  const RunnerInfo info = Info();
  return info.version + " (TVM " + info.tvm_version + ", tvm-ffi " + info.ffi_version + ")";
}

// When the library is loaded. One that is loaded as well has the same functions.
[[gnu::constructor]] void Register() {
  constexpr bool kOverride = true;
  ffi::Function::SetGlobal("adt.profile", ffi::Function::FromTyped(Profile), kOverride);
  ffi::Function::SetGlobal("adt.runner_version", ffi::Function::FromTyped(RunnerVersion),
                           kOverride);
}

}  // namespace
}  // namespace adt
