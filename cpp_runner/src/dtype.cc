#include "dtype.h"

#include <limits>

#include "error.h"

namespace adt {
const DType* FindDType(std::string_view name) {
  for (const DType& dtype : kDTypes) {
    if (dtype.name == name) return &dtype;
  }
  return nullptr;
}

const DType* FindDType(char kind, std::size_t size) {
  for (const DType& dtype : kDTypes) {
    if (dtype.kind == kind && dtype.size == size) return &dtype;
  }
  return nullptr;
}

std::optional<std::size_t> ByteSize(std::size_t element_size, const std::int64_t* extents,
                                    std::size_t rank) {
  constexpr auto kLimit = static_cast<std::uint64_t>(std::numeric_limits<std::ptrdiff_t>::max());
  std::uint64_t bytes = element_size;
  bool empty = false;
  for (std::size_t i = 0; i < rank; ++i) {
    if (extents[i] == 0) {
      empty = true;  // but the other extents are still checked
    } else if (extents[i] < 0 || static_cast<std::uint64_t>(extents[i]) > kLimit / bytes) {
      return {};
    } else {
      bytes *= static_cast<std::uint64_t>(extents[i]);
    }
  }
  return empty ? 0 : static_cast<std::size_t>(bytes);
}

std::size_t ByteSize(const DType& dtype, const std::vector<std::int64_t>& shape) {
  const auto bytes = ByteSize(dtype.size, shape.data(), shape.size());
  if (!bytes) {
    throw Error(ErrorKind::kInput,
                Describe(dtype.name, shape) + " is no array that fits into memory",
                "Check the file; it is damaged or was not written by numpy.");
  }
  return *bytes;
}

std::string Describe(std::string_view dtype, const std::vector<std::int64_t>& shape) {
  std::string text(dtype);
  text += '[';
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + ']';
}

}  // namespace adt
