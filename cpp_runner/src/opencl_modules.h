// The modules of a package that have OpenCL kernels.
#pragma once

#include <tvm/ffi/extra/module.h>

#include <vector>

namespace adt {

/// Those among *module* and all its imports.
std::vector<tvm::ffi::Module> FindOpenClModules(const tvm::ffi::Module& module);

}  // namespace adt
