// The modules of a package that have OpenCL kernels.
#pragma once

#include <tvm/ffi/extra/module.h>

#include <vector>

namespace adt {

/// Those among *module* and all its imports.
std::vector<tvm::ffi::Module> FindOpenClModules(const tvm::ffi::Module& module);

/// Whether *module* and all its imports are machine code and bytecode of the VM: no driver and no
/// library of others computes.
bool IsCompiledCode(const tvm::ffi::Module& module);

}  // namespace adt
