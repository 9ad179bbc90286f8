// SHA-256 (FIPS 180-4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "sha256_blocks.h"

namespace adt {

/// The digest of bytes that come in parts.
class Sha256Hasher {
 public:
  void Update(const void* data, std::size_t size);
  /// 64 hexadecimal digits in lower case; nothing comes after it.
  std::string Finish();

 private:
  const CompressBlocks compress_ = FastestCompression();
  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> block_{};  // the last bytes, which wait for more
  std::size_t filled_ = 0;
  std::uint64_t total_ = 0;
};

/// Digest of *size* bytes, 64 hexadecimal digits in lower case.
std::string Sha256(const void* data, std::size_t size);

}  // namespace adt
