#include "threads.h"

#include <sched.h>
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string_view>
#include <thread>

#include "error.h"
#include "tvm_errors.h"

namespace adt {
namespace {

namespace ffi = tvm::ffi;

constexpr int kShareAllCores = -3;  // of TVM's ThreadGroup::AffinityMode
constexpr const char* kAffinityRemedy = "Affinity is big, little, all, or cores such as 0,4-7.";

std::optional<int> Number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value < CPU_SETSIZE ? std::optional(value) : std::nullopt;
}

// A list as the kernel writes it, "0,4-7"; none when it is something else.
std::optional<std::vector<int>> ParseList(std::string_view text) {
  std::vector<int> cores;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const std::size_t dash = part.find('-');
    const auto first = Number(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : Number(part.substr(dash + 1));
    if (!first || !last || *first > *last) return std::nullopt;
    for (int core = *first; core <= *last; ++core) cores.push_back(core);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  std::sort(cores.begin(), cores.end());
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  return cores;
}

std::vector<int> OnlineCores() {
  std::ifstream file("/sys/devices/system/cpu/online");
  std::string text;
  if (std::getline(file, text)) {
    if (auto cores = ParseList(text)) return *cores;
  }
  std::vector<int> cores;
  const int count = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (int core = 0; core < count; ++core) cores.push_back(core);
  return cores;
}

// In kHz; 0 when the kernel does not tell.
long HighestFrequency(int core) {
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(core) +
                     "/cpufreq/cpuinfo_max_freq");
  long frequency = 0;
  file >> frequency;
  return file ? frequency : 0;
}

std::string Text(const std::vector<int>& cores) {
  std::string text;
  for (int core : cores) text += (text.empty() ? "" : ",") + std::to_string(core);
  return text;
}

// What the system lets this thread run on.
std::vector<int> OwnCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

}  // namespace

std::vector<int> CoresOf(const std::string& affinity) {
  const std::vector<int> online = OnlineCores();
  if (affinity == "all") return online;
  if (affinity == "big" || affinity == "little") {
    std::vector<long> frequencies;
    for (int core : online) frequencies.push_back(HighestFrequency(core));
    const auto [slowest, fastest] = std::minmax_element(frequencies.begin(), frequencies.end());
    if (*slowest == *fastest) return online;
    std::vector<int> cores;
    for (std::size_t i = 0; i < online.size(); ++i) {
      if ((frequencies[i] == *slowest) == (affinity == "little")) cores.push_back(online[i]);
    }
    return cores;
  }
  const auto cores = ParseList(affinity);
  if (!cores)
    throw Error(ErrorKind::kUsage, "no cores are called '" + affinity + "'", kAffinityRemedy);
  if (!std::includes(online.begin(), online.end(), cores->begin(), cores->end())) {
    throw Error(ErrorKind::kUsage, "there are no cores " + affinity,
                "This machine has the cores " + Text(online) + ".");
  }
  return *cores;
}

int SetThreads(int count, const std::string& affinity) {
  const std::vector<int> cores = CoresOf(affinity);
  const auto most = static_cast<int>(cores.size());
  if (count < 0 || count > most) {
    throw Error(ErrorKind::kUsage,
                std::to_string(count) + " threads do not fit on " + std::to_string(most) +
                    " cores (" + Text(cores) + ")",
                "Ask for 0 (one for each core) to " + std::to_string(most) + " threads.");
  }
  const int wanted = count == 0 ? most : count;
  const int found = WithTvmErrors(
      ErrorKind::kRun, "the threads cannot be set",
      "Build the target from a TVM source tree that adt supports (adt build-target).", [&] {
        ffi::Array<ffi::String> names;
        for (int core : cores) names.push_back(std::to_string(core));
        ffi::Function::GetGlobalRequired("runtime.config_threadpool")(kShareAllCores, wanted,
                                                                      names);
        return ffi::Function::GetGlobalRequired("runtime.NumThreads")().cast<int>();
      });
  if (found != wanted) {
    throw Error(ErrorKind::kUsage,
                "this thread's pool has " + std::to_string(found) + " threads, not " +
                    std::to_string(wanted),
                "Set the threads before the first run on this thread; a pool never grows.");
  }
  const std::vector<int> own = OwnCores();
  if (!std::includes(cores.begin(), cores.end(), own.begin(), own.end())) {
    throw Error(ErrorKind::kUsage, "the threads may not be bound to the cores " + Text(cores),
                "Choose among the cores that this process may use, and unset TVM_BIND_THREADS.");
  }
  return found;
}

}  // namespace adt
