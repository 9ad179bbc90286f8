#include "sha256.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace adt {
namespace {

constexpr std::array<std::uint32_t, 64> kRound{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

std::uint32_t RotateRight(std::uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

class Hasher {
 public:
  void Update(const unsigned char* data, std::size_t size) {
    total_ += size;
    while (size != 0) {
      const std::size_t part = std::min(size, block_.size() - filled_);
      std::memcpy(block_.data() + filled_, data, part);
      filled_ += part;
      data += part;
      size -= part;
      if (filled_ == block_.size()) {
        Compress();
        filled_ = 0;
      }
    }
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
  void Compress() {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t i = 0; i < 16; ++i) {
      const unsigned char* p = block_.data() + 4 * i;
      w[i] = static_cast<std::uint32_t>(p[0]) << 24 | static_cast<std::uint32_t>(p[1]) << 16 |
             static_cast<std::uint32_t>(p[2]) << 8 | static_cast<std::uint32_t>(p[3]);
    }
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t a = w[i - 15];
      const std::uint32_t b = w[i - 2];
      w[i] = w[i - 16] + (RotateRight(a, 7) ^ RotateRight(a, 18) ^ (a >> 3)) + w[i - 7] +
             (RotateRight(b, 17) ^ RotateRight(b, 19) ^ (b >> 10));
    }
    std::array<std::uint32_t, 8> s = state_;
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t t1 =
          s[7] + (RotateRight(s[4], 6) ^ RotateRight(s[4], 11) ^ RotateRight(s[4], 25)) +
          ((s[4] & s[5]) ^ (~s[4] & s[6])) + kRound[i] + w[i];
      const std::uint32_t t2 =
          (RotateRight(s[0], 2) ^ RotateRight(s[0], 13) ^ RotateRight(s[0], 22)) +
          ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
      s = {t1 + t2, s[0], s[1], s[2], s[3] + t1, s[4], s[5], s[6]};
    }
    for (std::size_t i = 0; i < 8; ++i) state_[i] += s[i];
  }

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
