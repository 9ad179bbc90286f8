// What rtvm prints: text for people, JSON for programs. Each JSON document names its schema and
// version.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "array.h"
#include "instrument.h"
#include "opencl_device.h"
#include "package.h"
#include "program_build.h"
#include "program_cache.h"
#include "random_inputs.h"
#include "runner_info.h"
#include "sensors.h"

namespace adt::rtvm {

/// The result of one call of rtvm --model.
struct RunReport {
  RunnerInfo runner;
  Package package;
  std::string entry;
  std::string device;
  std::string device_name;
  /// None for the CPU.
  std::optional<OpenClDevice> opencl;

  /// As it was asked for: 0 and empty for the runtime's choice.
  std::int64_t threads = 0;
  std::string affinity;
  bool zero_copy = false;
  bool end_to_end = false;

  /// Milliseconds from opening the package to a loaded model.
  double load_ms = 0;
  /// Milliseconds of the first run after that, warm-up or not.
  double first_run_ms = 0;
  std::int64_t warmup_runs = 0;
  /// Milliseconds of each timed run, and from the program's start to its start.
  std::vector<double> run_ms;
  std::vector<double> start_ms;
  /// File that those were written to; then they are not in the report.
  std::string times_file;

  /// KiB of this process: before the package was opened, and at most up to the last timed run.
  std::optional<std::int64_t> before_load_kb;
  std::optional<std::int64_t> peak_kb;
  /// Bytes of the GPU's memory that libraries compute in; none where no library has any.
  std::optional<std::int64_t> workspace_bytes;

  ProgramReport programs;
  ProgramBuildReport build;
  std::vector<Sample> samples;
  std::optional<CallProfile> profile;
  /// File that the calls' tensors were written to, how many, and those that could not be.
  std::string calls_file;
  std::int64_t call_tensors = 0;
  std::vector<std::string> calls_left_out;

  /// What made-up inputs hold; none when a file gave them.
  std::optional<FillMode> fill;
  /// Seed of random ones.
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
