// rtvm's command line.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "program_cache.h"
#include "random_inputs.h"

namespace adt::rtvm {

struct Options {
  std::string model;
  std::string device;
  std::string input;
  std::string output;
  std::string entry = "main";
  FillMode fill = FillMode::kRandom;
  std::uint64_t seed = 0;
  /// Of symbols in the inputs' shapes, for made-up inputs.
  std::map<std::string, std::int64_t> extents;

  /// Warm-up and timed runs: until both the number and the time are reached.
  std::int64_t dry_run = 0;
  double warmup_ms = 0;
  std::int64_t run_count = 1;
  double min_seconds = 0;
  std::optional<double> max_seconds;
  bool end_to_end = false;
  bool zero_copy = false;
  /// File for the runs' times; empty for none.
  std::string times;

  /// 0 for the runtime's choice.
  std::int64_t threads = 0;
  /// Empty for the runtime's choice.
  std::string affinity;
  /// Nothing given: DefaultProgramStore().
  std::optional<ProgramStore> programs;
  /// As ProgramBuildOptions has it.
  std::int64_t build_threads = 0;

  /// 0 for none.
  std::int64_t profile = 0;
  /// File for the calls' tensors; empty for none.
  std::string dump_calls;
  /// Indices of the calls, the end not among them.
  std::int64_t first_call = 0;
  std::int64_t end_call = std::numeric_limits<std::int64_t>::max();
  /// Least milliseconds between two samples; 0 for none.
  std::int64_t sample_ms = 0;
  std::string sysfs = "/sys";

  bool dump_meta = false;
  bool json = false;
  bool verbose = false;
  bool help = false;
  bool version = false;
};

/// What --help prints.
std::string Usage();

/// Parse the arguments after the program's name. Throws Error(kUsage).
Options ParseOptions(const std::vector<std::string>& arguments);

}  // namespace adt::rtvm
