// Loads a package, runs it and looks at it, as the command line says.
#pragma once

#include <chrono>

#include "rtvm/options.h"
#include "rtvm/report.h"

namespace adt::rtvm {

/// *start*: when the program started. Throws Error.
RunReport RunPackage(const Options& options, std::chrono::steady_clock::time_point start);

}  // namespace adt::rtvm
