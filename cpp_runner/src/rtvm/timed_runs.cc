#include "rtvm/timed_runs.h"

namespace adt::rtvm {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

TimedRuns RunTimed(const RunPlan& plan, Clock::time_point origin,
                   const std::function<void()>& warmup, const std::function<void()>& timed,
                   const std::function<void()>& between) {
  TimedRuns done;
  const auto warmup_start = Clock::now();
  while (done.warmup_runs < plan.warmup_runs ||
         Milliseconds(Clock::now() - warmup_start) < plan.warmup_ms) {
    const auto start = Clock::now();
    warmup();
    if (done.warmup_runs == 0) done.first_run_ms = Milliseconds(Clock::now() - start);
    ++done.warmup_runs;
  }

  const auto timed_start = Clock::now();
  while (true) {
    const auto start = Clock::now();
    timed();
    const auto end = Clock::now();
    done.run_ms.push_back(Milliseconds(end - start));
    done.start_ms.push_back(Milliseconds(start - origin));
    between();
    const double seconds = Milliseconds(Clock::now() - timed_start) / 1000;
    if (plan.max_seconds && seconds >= *plan.max_seconds) break;
    const auto runs = static_cast<std::int64_t>(done.run_ms.size());
    if (runs >= plan.timed_runs && seconds >= plan.min_seconds) break;
  }
  if (done.warmup_runs == 0) done.first_run_ms = done.run_ms.front();
  return done;
}

}  // namespace adt::rtvm
