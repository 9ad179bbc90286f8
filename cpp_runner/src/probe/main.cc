// adt_probe: which OpenCL library of this machine loads, and what it offers.

#include <chrono>
#include <cstdio>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "probe/candidates.h"
#include "probe/report.h"

namespace adt::probe {
namespace {

constexpr int kUsageError = 2;
constexpr int kFailure = 5;

constexpr const char* kUsage =
    R"(adt_probe: which OpenCL library of this machine loads, and what it offers.

  adt_probe [--only] [--timeout SECONDS] [LIBRARY...]

Asks the libraries that TVM's runtime would open, in its order, then each LIBRARY, and prints one JSON
document. Each is loaded in a process of its own: one that crashes or hangs is reported as such.

Options:
  --only             ask the LIBRARYs alone, as if they were those of TVM's runtime
  --timeout SECONDS  for each library (default 20)
  --help             print this

Exit codes: 0 the report was printed, 2 wrong command line, 5 no report can be made.
)";

struct Options {
  bool help = false;
  bool only = false;
  std::chrono::seconds timeout{20};
  std::vector<std::string> libraries;
};

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

std::chrono::seconds ParseSeconds(const std::string& text) {
  const bool digits = text.find_first_not_of("0123456789") == std::string::npos;
  if (text.empty() || text.size() > 4 || !digits || std::stoi(text) == 0) {
    throw UsageError("--timeout takes whole seconds from 1 to 9999, not '" + text + "'");
  }
  return std::chrono::seconds(std::stoi(text));
}

Options ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--help" || word == "-h") {
      options.help = true;
    } else if (word == "--only") {
      options.only = true;
    } else if (word == "--timeout") {
      if (++i == arguments.size()) throw UsageError("--timeout needs a value");
      options.timeout = ParseSeconds(arguments[i]);
    } else if (word.empty() || word[0] == '-') {
      throw UsageError("unknown option '" + word + "'");
    } else {
      options.libraries.push_back(word);
    }
  }
  if (options.only && options.libraries.empty()) throw UsageError("--only needs a LIBRARY");
  return options;
}

std::vector<Candidate> Candidates(const Options& options) {
  std::vector<Candidate> candidates;
  if (!options.only) {
    for (const char* library : kTvmLibraries) candidates.push_back({library, true});
  }
  for (const std::string& library : options.libraries) {
    candidates.push_back({library, options.only});
  }
  return candidates;
}

int Main(const std::vector<std::string>& arguments) {
  try {
    const Options options = ParseOptions(arguments);
    const std::string answer = options.help ? kUsage : Report(Candidates(options), options.timeout);
    const bool written = std::fwrite(answer.data(), 1, answer.size(), stdout) == answer.size();
    return written && std::fflush(stdout) == 0 ? 0 : kFailure;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "adt_probe: error: %s\nremedy: adt_probe --help\n", error.what());
    return kUsageError;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "adt_probe: error: %s\n", error.what());
    return kFailure;
  }
}

}  // namespace
}  // namespace adt::probe

int main(int argc, char** argv) {
  return adt::probe::Main(std::vector<std::string>(argv + 1, argv + argc));
}
