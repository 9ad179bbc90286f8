#include "program_list.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>

namespace adt {
namespace {

constexpr std::size_t kNumberSize = 8;

std::optional<std::uint64_t> TakeNumber(std::string_view* bytes) {
  if (bytes->size() < kNumberSize) return {};
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < kNumberSize; ++i) {
    value |= std::uint64_t{static_cast<unsigned char>((*bytes)[i])} << (8 * i);
  }
  bytes->remove_prefix(kNumberSize);
  return value;
}

// A length and that many bytes.
std::optional<std::string_view> TakeText(std::string_view* bytes) {
  const auto size = TakeNumber(bytes);
  if (!size || *size > bytes->size()) return {};
  const std::string_view text = bytes->substr(0, static_cast<std::size_t>(*size));
  bytes->remove_prefix(text.size());
  return text;
}

}  // namespace

bool IsProgramList(std::string_view bytes) {
  const auto count = TakeNumber(&bytes);
  if (!count) return false;
  std::set<std::string_view> names;
  for (std::uint64_t i = 0; i < *count; ++i) {  // ends at the bytes' end at the latest
    const auto name = TakeText(&bytes);
    if (!name || name->empty() || !names.insert(*name).second) return false;
    const auto binary = TakeText(&bytes);
    if (!binary || binary->empty()) return false;
  }
  return bytes.empty();
}

}  // namespace adt
