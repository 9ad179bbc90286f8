// A Relax VM: the executable part of a package, on a device.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/tensor.h>

#include <string>
#include <vector>

namespace adt {

class Vm {
 public:
  /// Load the library and make a VM with *devices*: one for each virtual device, in order. Throws
  /// Error(kPackage).
  Vm(const std::string& library, const std::vector<DLDevice>& devices);

  /// Set all arguments of *function*. Throws Error(kRun).
  void SetInput(const std::string& function, const std::vector<tvm::runtime::Tensor>& arguments);
  /// Call *function* with them. Throws Error(kRun).
  void Invoke(const std::string& function);
  /// The result of the last call: one tensor, or each of a tuple. Throws Error(kRun).
  std::vector<tvm::runtime::Tensor> Outputs(const std::string& function);

 private:
  tvm::ffi::Function Method(const std::string& name);

  tvm::ffi::Module module_;
  tvm::ffi::Function set_input_;
  tvm::ffi::Function invoke_;
  tvm::ffi::Function output_arity_;
  tvm::ffi::Function output_;
};

}  // namespace adt
