// Context symbols: pointers in a compiled module that the runtime fills when it loads the module.
//
// A module whose symbol nobody fills crashes at its first use. Which symbols a module has depends
// on the TVM that compiled it: modules of 0.26 and later use __TVMFFIEnvModLookupFromImports and
// __TVMFFIHandleInitOnce, which the 0.25 runtime has as functions and does not offer. The runner
// offers them, and its own way to share a parallel loop (parallel.h).
#pragma once

#include <string>
#include <vector>

namespace adt {

/// Offer what the runtime lacks (the first time), and return all names that are offered, sorted.
std::vector<std::string> OfferedContextSymbols();

}  // namespace adt
