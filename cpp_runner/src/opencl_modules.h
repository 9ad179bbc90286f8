// The kinds of modules that a package has.
#pragma once

#include <tvm/ffi/extra/module.h>

#include <vector>

namespace adt {

/// Those among *module* and all its imports.
std::vector<tvm::ffi::Module> FindOpenClModules(const tvm::ffi::Module& module);

/// Whether *module* and all its imports are machine code and bytecode of the VM: no driver and no
/// library of others computes.
bool IsCompiledCode(const tvm::ffi::Module& module);

/// Whether several threads may run *module* at once: TVM's code for CPUs and GPUs may; a library's
/// runtime keeps the arguments of a call in its module.
bool IsReentrant(const tvm::ffi::Module& module);

}  // namespace adt
