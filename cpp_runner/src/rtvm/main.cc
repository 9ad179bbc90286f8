// rtvm: run a ModelPackage from a shell.

#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "adt/error.h"
#include "adt/npz.h"
#include "adt/random_inputs.h"
#include "adt/runner.h"
#include "rtvm/options.h"
#include "rtvm/report.h"
#include "rtvm/streams.h"

namespace adt::rtvm {
namespace {

double MillisecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

RunReport RunPackage(const Options& options) {
  RunReport report;
  const auto start = std::chrono::steady_clock::now();
  Runner runner(options.model, options.device);
  report.load_ms = MillisecondsSince(start);
  report.runner = Info();
  report.package = runner.package();
  report.device = runner.device();
  report.device_name = runner.device_name();
  const Entry& entry = runner.package().entry(options.entry);
  report.entry = entry.name;

  if (options.input.empty()) {
    report.seed = options.seed;
    report.inputs = RandomInputs(entry.inputs, options.seed);
  } else {
    report.inputs = ReadNpz(options.input);
  }
  runner.SetInputs(report.inputs, entry.name);

  for (std::int64_t i = 0; i < options.dry_run; ++i) runner.Invoke(entry.name);
  report.warmup_runs = options.dry_run;
  for (std::int64_t i = 0; i < options.run_count; ++i) {
    const auto run_start = std::chrono::steady_clock::now();
    runner.Invoke(entry.name);
    report.run_ms.push_back(MillisecondsSince(run_start));
  }
  report.outputs = runner.Outputs(entry.name);
  if (!options.output.empty()) {
    WriteNpz(options.output, report.outputs);
    report.output_file = options.output;
  }
  return report;
}

std::string Answer(const Options& options) {
  if (options.help) return Usage();
  if (options.version) return options.json ? VersionJson(Info()) : VersionText(Info());
  if (options.dump_meta) {
    const Package package = ReadPackage(options.model);
    return options.json ? PackageJson(package) : PackageText(package);
  }
  const RunReport report = RunPackage(options);
  return options.json ? RunJson(report) : RunText(report);
}

void ShowError(const std::string& what, const std::string& remedy, const std::string& log) {
  if (!log.empty()) std::fprintf(stderr, "%s\n", log.c_str());
  std::fprintf(stderr, "rtvm: error: %s\nremedy: %s\n", what.c_str(), remedy.c_str());
}

int Main(const std::vector<std::string>& arguments) {
  const OwnStdout out;
  std::optional<QuietLog> log;
  try {
    const Options options = ParseOptions(arguments);
    if (!options.verbose) log.emplace();
    out.Write(Answer(options));
    return 0;
  } catch (const Error& error) {
    ShowError(error.what(), error.remedy(), log ? log->Tail() : "");
    return static_cast<int>(error.kind());
  } catch (const std::bad_alloc&) {
    ShowError("out of memory", "Free memory on this machine, or use a smaller model.", "");
  } catch (const std::exception& error) {
    ShowError(error.what(), "This is a bug in rtvm; report the message.", log ? log->Tail() : "");
  }
  return static_cast<int>(ErrorKind::kRun);
}

}  // namespace
}  // namespace adt::rtvm

int main(int argc, char** argv) {
  return adt::rtvm::Main(std::vector<std::string>(argv + 1, argv + argc));
}
