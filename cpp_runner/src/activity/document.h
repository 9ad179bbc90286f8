// The documents that the application leaves behind.
#pragma once

#include <string>

#include "activity/machine.h"
#include "activity/plan.h"
#include "error.h"
#include "rtvm/report.h"

namespace adt::activity {

/// An adt.app-bench. *package_digest*: sha256 of mod.json.
std::string BenchJson(const Plan& plan, const Machine& machine, const rtvm::RunReport& report,
                      const std::string& package_digest);

/// An adt.app-bench-error. *model*: its stem; empty when it is about all of them.
std::string ErrorJson(const std::string& app, const std::string& model, const std::string& what,
                      const std::string& remedy);

/// Write a file whole or not at all. Throws Error(kInput).
void WriteWhole(const std::string& path, const std::string& text);

}  // namespace adt::activity
