// Text of drivers and of the dynamic linker, made safe to print.
#pragma once

#include <string>
#include <string_view>

namespace adt::probe {

/// *text* up to its first zero byte, without blanks at its ends; what is not printable ASCII
/// becomes '?', because a driver's text is in no known encoding.
inline std::string Clean(std::string_view text) {
  std::string out(text.substr(0, text.find('\0')));
  for (char& c : out) {
    if (c == '\n' || c == '\t' || c == '\r') c = ' ';
    if (c < ' ' || c > '~') c = '?';
  }
  const std::size_t first = out.find_first_not_of(' ');
  if (first == std::string::npos) return "";
  return out.substr(first, out.find_last_not_of(' ') - first + 1);
}

}  // namespace adt::probe
