#include "vm.h"

#include <tvm/runtime/memory/memory_manager.h>

#include "adt/error.h"
#include "tvm_errors.h"

namespace adt {
namespace {

namespace ffi = tvm::ffi;
using tvm::runtime::Tensor;

constexpr const char* kRunRemedy =
    "Compile the model again; if it still fails, report the message with the model.";

ffi::Module LoadVm(const std::string& library) {
  return WithTvmErrors(
      ErrorKind::kPackage, "cannot load " + library,
      "The library needs something that this device or this bundle does not have. Compile the "
      "model for this platform and against this bundle (adt compile), then deploy both again.",
      [&] {
        const ffi::Module module = ffi::Module::LoadFromFile(library);
        const auto load = module->GetFunction("vm_load_executable");
        if (!load) {
          TVM_FFI_THROW(ValueError) << "it holds no Relax VM executable";
        }
        return (*load)().cast<ffi::Module>();
      });
}

}  // namespace

Vm::Vm(const std::string& library, const std::vector<DLDevice>& devices)
    : module_(LoadVm(library)),
      set_input_(Method("set_input")),
      invoke_(Method("invoke_stateful")),
      output_arity_(Method("get_output_arity")),
      output_(Method("get_output")) {
  std::vector<ffi::AnyView> arguments;
  for (const DLDevice& device : devices) {
    arguments.emplace_back(static_cast<int>(device.device_type));
    arguments.emplace_back(device.device_id);
    arguments.emplace_back(static_cast<int>(tvm::runtime::memory::AllocatorType::kPooled));
  }
  WithTvmErrors(ErrorKind::kPackage, "cannot set up the model",
                "Compile the model for this device (adt compile) and deploy it again.", [&] {
                  ffi::Any result;
                  Method("vm_initialization")
                      .CallPacked(arguments.data(), static_cast<int>(arguments.size()), &result);
                });
}

ffi::Function Vm::Method(const std::string& name) {
  const auto method = module_->GetFunction(name);
  if (!method) {
    throw Error(ErrorKind::kPackage, "this TVM's virtual machine has no " + name,
                "Build the target from a TVM source tree that adt supports (adt build-target).");
  }
  return *method;
}

void Vm::SetInput(const std::string& function, const std::vector<Tensor>& arguments) {
  const ffi::String name(function);
  std::vector<ffi::AnyView> packed{name};
  for (const Tensor& argument : arguments) packed.emplace_back(argument);
  WithTvmErrors(ErrorKind::kRun, "cannot set the inputs", kRunRemedy, [&] {
    ffi::Any result;
    set_input_.CallPacked(packed.data(), static_cast<int>(packed.size()), &result);
  });
}

void Vm::Invoke(const std::string& function) {
  WithTvmErrors(ErrorKind::kRun, "the model failed", kRunRemedy,
                [&] { invoke_(ffi::String(function)); });
}

std::vector<Tensor> Vm::Outputs(const std::string& function) {
  return WithTvmErrors(ErrorKind::kRun, "cannot get the outputs", kRunRemedy, [&] {
    const ffi::String name(function);
    const int arity = output_arity_(name).cast<int>();
    std::vector<Tensor> outputs;
    if (arity < 0) {  // no tuple
      outputs.push_back(output_(name).cast<Tensor>());
    }
    for (int i = 0; i < arity; ++i) outputs.push_back(output_(name, i).cast<Tensor>());
    return outputs;
  });
}

}  // namespace adt
