#include "sha256.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "sha256_blocks.h"

namespace adt {
namespace {

// The state after all whole blocks, and the message's last bytes, which wait for more.
class Hasher {
 public:
  void Update(const unsigned char* data, std::size_t size) {
    total_ += size;
    if (filled_ != 0) {
      const std::size_t part = std::min(size, block_.size() - filled_);
      std::copy_n(data, part, block_.data() + filled_);
      filled_ += part;
      data += part;
      size -= part;
      if (filled_ < block_.size()) return;
      compress_(state_.data(), block_.data(), 1);
    }
    const std::size_t blocks = size / block_.size();
    compress_(state_.data(), data, blocks);
    filled_ = size - blocks * block_.size();
    std::copy_n(data + blocks * block_.size(), filled_, block_.data());
  }

  std::string Finish() {
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

 private:
  const CompressBlocks compress_ = FastestCompression();
  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> block_{};
  std::size_t filled_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace

std::string Sha256(const void* data, std::size_t size) {
  Hasher hasher;
  hasher.Update(static_cast<const unsigned char*>(data), size);
  return hasher.Finish();
}

}  // namespace adt
