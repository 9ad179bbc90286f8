// Does a package fit this runner and this machine?
#pragma once

#include <string>

#include "package.h"
#include "runner_info.h"
#include "source.h"

namespace adt {

/// Throw Error(kMismatch), with what was found and what is wanted, unless the package in *source*
/// fits: machine, alignment, context symbols, device. Error(kPackage): a file, whose bytes are
/// there, has another size than mod.json says. None of these takes long.
void RequireFits(const Package& package, const Source& source, const RunnerInfo& runner,
                 const std::string& device);

/// Throw Error(kPackage) unless the files, where their bytes are there, are those that mod.json
/// describes. What was hashed before is looked up in *directory* (hashed_files.h), if any.
void RequireHashes(const Package& package, const Source& source, const std::string& directory);

}  // namespace adt
