#include "runner_info.h"

#include <tvm/runtime/device_api.h>

#include "build_config.h"
#include "context_symbols.h"
#include "devices.h"
#include "elf.h"
#include "tvm_errors.h"

namespace adt {

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
