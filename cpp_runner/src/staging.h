// Copies of a program's arrays that a device reads later, when the program may have changed them.
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

namespace adt {

class Staging {
 public:
  /// A copy, which stays until Release().
  const std::byte* Keep(const void* data, std::size_t size) {
    if (spare_.empty()) spare_.emplace_back();
    std::vector<std::byte>& copy = pending_.emplace_back(std::move(spare_.back()));
    spare_.pop_back();
    copy.resize(size);
    std::memcpy(copy.data(), data, size);
    pending_bytes_ += size;
    return copy.data();
  }
  /// Bytes that the device may still read.
  std::size_t pending_bytes() const { return pending_bytes_; }
  /// The device has read them all: their memory is used again.
  void Release() {
    for (auto& copy : pending_) spare_.push_back(std::move(copy));
    pending_.clear();
    pending_bytes_ = 0;
  }

 private:
  std::vector<std::vector<std::byte>> pending_;
  std::vector<std::vector<std::byte>> spare_;
  std::size_t pending_bytes_ = 0;
};

}  // namespace adt
