#include "vm.h"

#include <tvm/runtime/memory/memory_manager.h>

#include "error.h"
#include "tvm_errors.h"

namespace adt {
namespace {

namespace ffi = tvm::ffi;

ffi::Module LoadExecutable(const ffi::Module& library, const std::string& name) {
  return WithTvmErrors(
      ErrorKind::kPackage, [&] { return "cannot load " + name; },
      "Compile the model again (adt compile), then deploy it again.",
      [&] {
        const auto load = library->GetFunction("vm_load_executable");
        if (!load) {
          TVM_FFI_THROW(ValueError) << "it holds no Relax VM executable";
        }
        return (*load)().cast<ffi::Module>();
      });
}

}  // namespace

Vm::Vm(const ffi::Module& library, const std::string& name, const std::vector<DLDevice>& devices)
    : module_(LoadExecutable(library, name)) {
  std::vector<ffi::AnyView> arguments;
  for (const DLDevice& device : devices) {
    arguments.emplace_back(static_cast<int>(device.device_type));
    arguments.emplace_back(device.device_id);
    arguments.emplace_back(static_cast<int>(tvm::runtime::memory::AllocatorType::kPooled));
  }
  WithTvmErrors(ErrorKind::kMismatch, "cannot set up the model",
                "Compile the model for this device (adt compile) and deploy it again.", [&] {
                  ffi::Any result;
                  Method("vm_initialization")
                      .CallPacked(arguments.data(), static_cast<int>(arguments.size()), &result);
                });
}

ffi::Function Vm::Method(const std::string& name) const {
  const auto method = module_->GetFunction(name);
  if (!method) {
    throw Error(ErrorKind::kMismatch, "this TVM's virtual machine has no " + name,
                "Build the target from a TVM source tree that adt supports (adt build-target).");
  }
  return *method;
}

ffi::Function Vm::Function(const std::string& name) const {
  const auto function = WithTvmErrors(
      ErrorKind::kPackage, [&] { return "cannot find the function " + name; },
      "Compile the model again (adt compile), then deploy it again.",
      [&] { return module_->GetFunction(name); });
  if (!function) {
    throw Error(ErrorKind::kPackage,
                "the library has no function " + name + ", mod.json describes one",
                "Compile the model again (adt compile), then deploy it again.");
  }
  return *function;
}

}  // namespace adt
