// What a bundle's RPC servers offer beyond TVM's own functions: tvm_rpc is linked with
// libadt_runner, which has this, and libadt_activity has it itself.
//
//   adt.runner_version() -> text
//   adt.profile(vm, entry, runs) -> JSON text: times of every call of the entry, whose inputs were
//     set before (WriteProfile in instrument.h)
//   adt.set_input(vm, entry, image, tensor, image, tensor, …) -> nothing: as TVM's set_input of the
//     same tensors, of which those after a true *image* become images. TVM's own copies whatever
//     comes over RPC into buffers.

#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>
#include <tvm/runtime/tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "device_tensor.h"
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

void SetInput(ffi::PackedArgs arguments, ffi::Any* result) {
  if (arguments.size() < 2 || arguments.size() % 2 != 0) {
    TVM_FFI_THROW(ValueError) << "adt.set_input takes a VM, an entry, and pairs (image, tensor)";
  }
  const auto vm = arguments[0].cast<ffi::Module>();
  const auto entry = arguments[1].cast<ffi::String>();
  try {
    std::vector<tvm::runtime::Tensor> tensors;
    for (int i = 2; i < arguments.size(); i += 2) {
      const auto* from = arguments[i + 1].cast<DLTensor*>();
      const auto name = [&] {
        return "argument " + std::to_string(tensors.size()) + " of " + std::string(entry);
      };
      tensors.push_back(CopyToDevice(*from, from->device, arguments[i].cast<bool>(), name));
    }
    std::vector<ffi::AnyView> taken{entry};
    taken.insert(taken.end(), tensors.begin(), tensors.end());
    vm->GetFunction("set_input")
        .value()
        .CallPacked(taken.data(), static_cast<int>(taken.size()), result);
  } catch (const Error& error) {  // a remote caller gets TVM's errors only
    TVM_FFI_THROW(RuntimeError) << error.what() << "\nremedy: " << error.remedy();
  }
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
  ffi::Function::SetGlobal("adt.set_input", ffi::Function::FromPacked(SetInput), kOverride);
}

}  // namespace
}  // namespace adt
