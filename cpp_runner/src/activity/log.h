// Android's log, tag "adt".
#pragma once

#include <string_view>

namespace adt::activity {

/// *text* in as many entries as it takes, cut at the ends of its lines.
void LogInfo(std::string_view text);
void LogError(std::string_view text);

}  // namespace adt::activity
