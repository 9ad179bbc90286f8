// Loads the library of a package.
#pragma once

#include <tvm/ffi/extra/module.h>

#include <string>

#include "source.h"

namespace adt {

/// Load mod.so of *source* as a module of its own.
///
/// A compiled library keeps pointers to the module that it was loaded as, one set for each time
/// that the dynamic linker maps it. So a library that the process has loaded already is loaded from
/// a private copy, and so is one that has no path: from memory, or else from a file in the
/// directory *scratch* (none when it is empty), which is gone when this returns. Throws
/// Error(kMismatch): it cannot be loaded here; Error(kUsage): only the linker could load it, and
/// has.
tvm::ffi::Module LoadLibrary(const Source& source, const std::string& scratch);

}  // namespace adt
