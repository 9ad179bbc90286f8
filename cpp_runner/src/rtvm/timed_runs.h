// How often a model runs, and how long each run takes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace adt::rtvm {

/// Until both the number and the time are reached.
struct RunPlan {
  std::int64_t warmup_runs = 0;
  double warmup_ms = 0;
  std::int64_t timed_runs = 1;
  double min_seconds = 0;
  /// No timed run begins after so long; there is always one.
  std::optional<double> max_seconds;
};

struct TimedRuns {
  double first_run_ms = 0;
  std::int64_t warmup_runs = 0;
  std::vector<double> run_ms;
  /// Since *origin*.
  std::vector<double> start_ms;
};

/// Run *warmup* and then *timed*, as *plan* says, with the clock around each; *between* after each
/// timed run, outside of the clock.
TimedRuns RunTimed(const RunPlan& plan, std::chrono::steady_clock::time_point origin,
                   const std::function<void()>& warmup, const std::function<void()>& timed,
                   const std::function<void()>& between);

}  // namespace adt::rtvm
