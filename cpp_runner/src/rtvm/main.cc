// rtvm: run a ModelPackage from a shell.

#include <chrono>
#include <cstdio>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "error.h"
#include "package.h"
#include "rtvm/options.h"
#include "rtvm/report.h"
#include "rtvm/run.h"
#include "rtvm/streams.h"
#include "runner_info.h"

namespace adt::rtvm {
namespace {

std::string Answer(const Options& options, std::chrono::steady_clock::time_point start) {
  if (options.help) return Usage();
  if (options.version) return options.json ? VersionJson(Info()) : VersionText(Info());
  if (options.dump_meta) {
    const Package package = ReadPackage(options.model);
    return options.json ? PackageJson(package) : PackageText(package);
  }
  const RunReport report = RunPackage(options, start);
  if (!report.programs.warning.empty()) {
    std::fprintf(stderr, "rtvm: warning: %s\n", report.programs.warning.c_str());
  }
  return options.json ? RunJson(report) : RunText(report);
}

void ShowError(const std::string& what, const std::string& remedy, const std::string& log) {
  if (!log.empty()) std::fprintf(stderr, "%s\n", log.c_str());
  std::fprintf(stderr, "rtvm: error: %s\nremedy: %s\n", what.c_str(), remedy.c_str());
}

int Main(const std::vector<std::string>& arguments) {
  const auto start = std::chrono::steady_clock::now();
  const OwnStdout out;
  std::optional<QuietLog> log;
  try {
    const Options options = ParseOptions(arguments);
    if (!options.verbose) log.emplace();
    out.Write(Answer(options, start));
    return 0;
  } catch (const Error& error) {
    ShowError(error.what(), error.remedy(), log ? log->Tail() : "");
    return static_cast<int>(error.kind());
  } catch (const std::bad_alloc&) {
    ShowError("out of memory", "Free memory on this machine, or use a smaller model.", "");
    return static_cast<int>(ErrorKind::kOutOfMemory);
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
