#include "runner_info.h"

#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/device_api.h>

#include <algorithm>

#include "build_config.h"
#include "devices.h"
#include "elf.h"
#include "parallel.h"
#include "tvm_errors.h"

namespace adt {
namespace {

// Context symbols are pointers in a compiled module that the runtime fills when it loads the
// module.
//
// A module whose symbol nobody fills crashes at its first use. Which symbols a module has depends
// on the TVM that compiled it: modules of 0.26 and later use __TVMFFIEnvModLookupFromImports and
// __TVMFFIHandleInitOnce, which the 0.25 runtime has as functions and does not offer. The runner
// offers them, and its own way to share a parallel loop (parallel.h).
bool Register() {
#define ADT_REGISTER(Function) \
  TVM_FFI_CHECK_SAFE_CALL(     \
      TVMFFIEnvModRegisterContextSymbol("__" #Function, reinterpret_cast<void*>(Function)));
  ADT_EXTRA_CONTEXT_SYMBOLS(ADT_REGISTER)
#undef ADT_REGISTER
  // of two of one name the later one counts
  TVM_FFI_CHECK_SAFE_CALL(TVMFFIEnvModRegisterContextSymbol("__TVMBackendParallelLaunch",
                                                            reinterpret_cast<void*>(ShareLoop)));
  return true;
}

/// Offer what the runtime lacks (the first time), and return all names that are offered, sorted.
std::vector<std::string> OfferedContextSymbols() {
  static const bool registered = Register();
  static_cast<void>(registered);
  std::vector<std::string> names;
  tvm::ffi::Module::VisitContextSymbols(
      [&names](const tvm::ffi::String& name, void*) { names.emplace_back(name); });
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

RunnerInfo Info() {
  return WithTvmErrors(ErrorKind::kRun, "the runtime cannot be set up",
                       "Deploy the bundle again; its files do not belong together.", [] {
                         RunnerInfo info;
                         info.version = ADT_RUNNER_VERSION;
                         info.tvm_version = ADT_TVM_VERSION;
                         info.ffi_version = ADT_TVM_FFI_VERSION;
                         info.machine = OwnMachine();
                         info.alignment = tvm::runtime::kAllocAlignment;
                         info.context_symbols = OfferedContextSymbols();
                         info.devices = BuiltInDevices();
                         return info;
                       });
}

const char* VersionLine() {
  return ADT_RUNNER_VERSION " (TVM " ADT_TVM_VERSION ", tvm-ffi " ADT_TVM_FFI_VERSION ")";
}

}  // namespace adt
