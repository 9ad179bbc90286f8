#include "process_memory.h"

#include <fstream>
#include <string>

namespace adt {
namespace {

std::optional<std::int64_t> StatusField(const std::string& name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != name) continue;
    std::int64_t value = 0;
    if (!(status >> value)) return {};
    return value;
  }
  return {};
}

}  // namespace

std::optional<std::int64_t> ResidentKb() { return StatusField("VmRSS:"); }
std::optional<std::int64_t> PeakResidentKb() { return StatusField("VmHWM:"); }

}  // namespace adt
