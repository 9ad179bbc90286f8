#include "activity/job.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

#include "activity/document.h"
#include "activity/log.h"
#include "error.h"
#include "rtvm/run.h"
#include "rtvm/streams.h"
#include "sha256.h"

namespace adt::activity {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostLogged = 64 * 1024;  // the log keeps a few hundred KB of all programs

rtvm::Options OptionsFor(const Job& job, const Model& model) {
  const Plan& plan = job.plan;
  rtvm::Options options;
  options.device = plan.device;
  options.entry = model.planned.entry;
  options.seed = plan.seed;
  options.extents = model.planned.extents;
  options.dry_run = plan.warmup_runs;
  options.warmup_ms = static_cast<double>(plan.warmup_ms);
  options.run_count = plan.runs;
  options.min_seconds = static_cast<double>(plan.min_ms) / 1000;
  options.end_to_end = plan.end_to_end;
  options.threads = plan.threads;
  options.affinity = plan.affinity;
  options.sample_ms = plan.sample_ms;
  options.programs = ProgramStore{ProgramStore::Kind::kDirectory, job.programs};
  return options;
}

rtvm::RunReport RunOnce(Job* job, const Model& model) {
  const rtvm::Options options = OptionsFor(*job, model);
  while (true) {
    const std::uint64_t entered = job->gate.Enter();
    try {
      return rtvm::RunPackage(
          options, [&] { return model.package; }, [&] { job->gate.Check(entered); }, job->start);
    } catch (const Interrupted&) {
      LogInfo("was in the background: " + model.planned.stem + " is measured again");
    }
  }
}

std::string Measured(Job* job, const Model& model) {
  const rtvm::RunReport report = RunOnce(job, model);
  const std::string_view manifest = model.package.manifest.text();
  return BenchJson(job->plan, job->machine, report, Sha256(manifest.data(), manifest.size()));
}

// What the model's measurement gave, good or not, and whether it did.
std::pair<std::string, bool> Outcome(Job* job, const Model& model) {
  const rtvm::QuietLog log;
  const auto failed = [&](const std::string& what, const std::string& remedy) {
    if (const std::string tail = log.Tail(); !tail.empty()) LogError(tail);
    LogError(model.planned.stem + ": " + what + "\nremedy: " + remedy);
    return std::pair(ErrorJson(job->plan.app, model.planned.stem, what, remedy), false);
  };
  try {
    return {Measured(job, model), true};
  } catch (const Error& error) {
    return failed(error.what(), error.remedy());
  } catch (const std::exception& error) {
    return failed(error.what(), "Free memory on the device; if it stays, report the message.");
  }
}

void Prepare(const std::string& results) {
  std::error_code failed;
  fs::create_directories(results, failed);
  for (fs::directory_iterator it(results, failed), end; !failed && it != end;
       it.increment(failed)) {
    std::error_code ignored;
    if (it->path().extension() == ".json") fs::remove(it->path(), ignored);
  }
}

void MeasureAll(Job* job) {
  job->gate.Enter();
  Prepare(job->results);
  bool good = true;
  for (const Model& model : job->models) {
    const auto [document, measured] = Outcome(job, model);
    const std::string file = job->results + "/" + model.planned.stem + ".json";
    WriteWhole(file, document);
    LogInfo(model.planned.stem + ": " + file);
    if (document.size() <= kMostLogged) LogInfo(document);
    good = good && measured;
  }
  job->screen.Show(good ? Progress::kDone : Progress::kFailed);
}

}  // namespace

void Measure(const std::shared_ptr<Job>& job) {
  static std::mutex one_at_a_time;  // an activity that is going may still be in its last run
  const std::lock_guard<std::mutex> lock(one_at_a_time);
  try {
    MeasureAll(job.get());
  } catch (const Stopped&) {
    LogInfo("the activity is gone: nothing more is measured");
  } catch (const std::exception& error) {
    LogError(error.what());
    job->screen.Show(Progress::kFailed);
  }
}

}  // namespace adt::activity
