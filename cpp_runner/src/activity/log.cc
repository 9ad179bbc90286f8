#include "activity/log.h"

#include <android/log.h>

#include <cstddef>
#include <string>

namespace adt::activity {
namespace {

constexpr const char* kTag = "adt";
constexpr std::size_t kMost = 3000;  // an entry longer than 4 KB is cut off

void Log(int priority, std::string_view text) {
  while (!text.empty()) {
    std::size_t end = text.size();
    if (end > kMost) {
      const std::size_t line = text.rfind('\n', kMost);
      end = line == std::string_view::npos || line == 0 ? kMost : line + 1;
    }
    __android_log_write(priority, kTag, std::string(text.substr(0, end)).c_str());
    text.remove_prefix(end);
  }
}

}  // namespace

void LogInfo(std::string_view text) { Log(ANDROID_LOG_INFO, text); }

void LogError(std::string_view text) { Log(ANDROID_LOG_ERROR, text); }

}  // namespace adt::activity
