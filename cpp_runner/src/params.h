// The tensors of a mod.params file, as TVM's save_param_dict writes them.
//
// TVM's own reader trusts the file: a count or an extent in it decides how much is allocated, and
// some element types make it write past the end of a tensor. This one allocates nothing by the
// file's word.
#pragma once

#include <dlpack/dlpack.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace adt {

/// One tensor of the file; *data* points into the file's bytes.
struct Param {
  std::string name;
  DLDataType dtype{};  ///< one lane, of 8, 16, 32 or 64 bits
  std::vector<std::int64_t> shape;
  const std::byte* data = nullptr;  ///< of any alignment, little-endian
  std::size_t size = 0;             ///< bytes: the product of the extents times the element's size
};

/// All tensors of the file, in its order, each name once. The result is valid as long as *bytes*
/// are. *path* is for messages. Throws Error(kPackage): truncated, damaged, or no such file at all.
std::vector<Param> ParseParams(const std::byte* bytes, std::size_t size, const std::string& path);

}  // namespace adt
