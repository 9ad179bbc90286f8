// Does a package fit this runner and this machine?
#pragma once

#include <string>

#include "adt/package.h"
#include "adt/runner.h"

namespace adt {

/// Throw Error(kPackage), with what was found and what is wanted, unless the package in *directory*
/// fits: machine, alignment, context symbols, device, and the hashes of its files.
void RequireFits(const Package& package, const std::string& directory, const RunnerInfo& runner,
                 const std::string& device);

}  // namespace adt
