// The element types of Array.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace adt {

struct DType {
  std::string_view name;
  char kind;         ///< numpy's: f, i, u or b
  std::size_t size;  ///< bytes
};

/// All that there are, in the order of adt_dtype_t.
inline constexpr std::array<DType, 12> kDTypes{{
    {"float16", 'f', 2},
    {"float32", 'f', 4},
    {"float64", 'f', 8},
    {"int8", 'i', 1},
    {"int16", 'i', 2},
    {"int32", 'i', 4},
    {"int64", 'i', 8},
    {"uint8", 'u', 1},
    {"uint16", 'u', 2},
    {"uint32", 'u', 4},
    {"uint64", 'u', 8},
    {"bool", 'b', 1},
}};

/// nullptr when there is none.
const DType* FindDType(std::string_view name);
const DType* FindDType(char kind, std::size_t size);

/// Bytes of a dense array of *rank* extents; none when one is negative, or when they are too many
/// for this machine's memory, which may have 32-bit addresses.
std::optional<std::size_t> ByteSize(std::size_t element_size, const std::int64_t* extents,
                                    std::size_t rank);
/// The same; throws Error(kInput) when there is none.
std::size_t ByteSize(const DType& dtype, const std::vector<std::int64_t>& shape);

/// "float32[1, 3]", for messages.
std::string Describe(std::string_view dtype, const std::vector<std::int64_t>& shape);

}  // namespace adt
