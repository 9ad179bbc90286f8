// The element types of Array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace adt {

struct DType {
  std::string_view name;
  char kind;         ///< numpy's: f, i, u or b
  std::size_t size;  ///< bytes
};

/// nullptr when there is none.
const DType* FindDType(std::string_view name);
const DType* FindDType(char kind, std::size_t size);

/// Bytes of a dense array; throws Error(kInput) when *shape* is negative or too large for this
/// machine.
std::size_t ByteSize(const DType& dtype, const std::vector<std::int64_t>& shape);

/// "float32[1, 3]", for messages.
std::string Describe(std::string_view dtype, const std::vector<std::int64_t>& shape);

}  // namespace adt
