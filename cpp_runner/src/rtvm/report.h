// What rtvm prints: text for people, JSON for programs. Each JSON document names its schema and
// version.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "adt/array.h"
#include "adt/package.h"
#include "adt/runner.h"

namespace adt::rtvm {

/// The result of one call of rtvm --model.
struct RunReport {
  RunnerInfo runner;
  Package package;
  std::string entry;
  std::string device;
  std::string device_name;
  /// Milliseconds from opening the package to a loaded model.
  double load_ms = 0;
  std::int64_t warmup_runs = 0;
  /// Milliseconds of each timed run.
  std::vector<double> run_ms;
  /// Seed of the random inputs; none when a file gave them.
  std::optional<std::uint64_t> seed;
  NamedArrays inputs;
  NamedArrays outputs;
  /// Empty when the outputs were not written.
  std::string output_file;
};

std::string VersionText(const RunnerInfo& info);
std::string VersionJson(const RunnerInfo& info);
std::string PackageText(const Package& package);
std::string PackageJson(const Package& package);
std::string RunText(const RunReport& report);
std::string RunJson(const RunReport& report);

}  // namespace adt::rtvm
