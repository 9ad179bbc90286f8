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
  /// Make a VM of a loaded library, called *name* in messages, with *devices*: one for each virtual
  /// device, in order. Throws Error(kPackage): it holds no executable; Error(kMismatch).
  Vm(const tvm::ffi::Module& library, const std::string& name,
     const std::vector<DLDevice>& devices);

  /// A function of the model, to be called with its arguments on the first of the devices; its
  /// result is one tensor, or an array of them. Throws Error(kPackage): there is none of that name.
  tvm::ffi::Function Function(const std::string& name) const;

  /// TVM's own module, for what else it does: its instrument, and calls by name with inputs that it
  /// keeps (set_input, invoke_stateful, get_output).
  const tvm::ffi::Module& module() const { return module_; }

 private:
  tvm::ffi::Function Method(const std::string& name) const;

  tvm::ffi::Module module_;
};

}  // namespace adt
