#include "sha256.h"

#include <algorithm>

namespace adt {

void Sha256Hasher::Update(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  total_ += size;
  if (filled_ != 0) {
    const std::size_t part = std::min(size, block_.size() - filled_);
    std::copy_n(bytes, part, block_.data() + filled_);
    filled_ += part;
    bytes += part;
    size -= part;
    if (filled_ < block_.size()) return;
    compress_(state_.data(), block_.data(), 1);
  }
  const std::size_t blocks = size / block_.size();
  compress_(state_.data(), bytes, blocks);
  filled_ = size - blocks * block_.size();
  std::copy_n(bytes + blocks * block_.size(), filled_, block_.data());
}

std::string Sha256Hasher::Finish() {
  const std::uint64_t bits = total_ * 8;
  const unsigned char one = 0x80;
  const unsigned char zero = 0;
  Update(&one, 1);
  while (filled_ != 56) Update(&zero, 1);
  std::array<unsigned char, 8> length{};
  for (std::size_t i = 0; i < 8; ++i) {
    length[i] = static_cast<unsigned char>(bits >> (56 - 8 * i));
  }
  Update(length.data(), length.size());

  std::string hex;
  for (std::uint32_t word : state_) {
    for (int shift = 28; shift >= 0; shift -= 4) {
      hex += "0123456789abcdef"[(word >> shift) & 0xF];
    }
  }
  return hex;
}

std::string Sha256(const void* data, std::size_t size) {
  Sha256Hasher hasher;
  hasher.Update(data, size);
  return hasher.Finish();
}

}  // namespace adt
