// Loads a package, runs it and looks at it, as the command line says.
#pragma once

#include <chrono>
#include <functional>

#include "rtvm/options.h"
#include "rtvm/report.h"
#include "source.h"

namespace adt::rtvm {

/// *start*: when the program started. Throws Error.
RunReport RunPackage(const Options& options, std::chrono::steady_clock::time_point start);

/// The same for a package that *open* gives; options.model is not used. *proceed* is called between
/// the runs, and what it throws ends them.
RunReport RunPackage(const Options& options, const std::function<Source()>& open,
                     const std::function<void()>& proceed,
                     std::chrono::steady_clock::time_point start);

}  // namespace adt::rtvm
