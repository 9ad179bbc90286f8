// Arrays in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace adt {

/// A dense array in C order, little-endian.
struct Array {
  /// float16, float32, float64, int8 … int64, uint8 … uint64 or bool.
  std::string dtype;
  /// Extents; empty for a scalar.
  std::vector<std::int64_t> shape;
  /// Product of the extents times the element size, in bytes.
  std::vector<std::byte> data;
};

struct NamedArray {
  std::string name;
  Array array;
};

using NamedArrays = std::vector<NamedArray>;

}  // namespace adt
