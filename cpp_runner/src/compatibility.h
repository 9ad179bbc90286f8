// Does a package fit this runner and this machine?
#pragma once

#include <string>

#include "package.h"
#include "runner_info.h"
#include "source.h"

namespace adt {

/// Throw Error(kPackage), with what was found and what is wanted, unless the package in *source*
/// fits: machine, alignment, context symbols, device, and the hashes of its files, where their
/// bytes are there.
void RequireFits(const Package& package, const Source& source, const RunnerInfo& runner,
                 const std::string& device);

}  // namespace adt
