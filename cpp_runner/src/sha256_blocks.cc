#include "sha256_blocks.h"

#include <array>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace adt {
namespace {

std::uint32_t RotateRight(std::uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

#if defined(__x86_64__)

bool HasInstructions() {
  constexpr unsigned kShuffles = 1U << 9U | 1U << 19U;  // SSSE3, SSE4.1
  constexpr unsigned kSha = 1U << 29U;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kShuffles) != kShuffles) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & kSha) != 0;
}

#elif defined(__aarch64__)

bool HasInstructions() {
  constexpr unsigned long kSha2 = 1UL << 6UL;  // HWCAP_SHA2
  return (getauxval(AT_HWCAP) & kSha2) != 0;
}

#endif

}  // namespace

const std::uint32_t kSha256Rounds[64]{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void CompressPortably(std::uint32_t* state, const unsigned char* data, std::size_t blocks) {
  std::array<std::uint32_t, 64> w{};
  for (; blocks != 0; --blocks, data += 64) {
    for (std::size_t i = 0; i < 16; ++i) {
      const unsigned char* p = data + 4 * i;
      w[i] = static_cast<std::uint32_t>(p[0]) << 24 | static_cast<std::uint32_t>(p[1]) << 16 |
             static_cast<std::uint32_t>(p[2]) << 8 | static_cast<std::uint32_t>(p[3]);
    }
    for (std::size_t i = 16; i < 64; ++i) {
      const std::uint32_t a = w[i - 15];
      const std::uint32_t b = w[i - 2];
      w[i] = w[i - 16] + (RotateRight(a, 7) ^ RotateRight(a, 18) ^ (a >> 3)) + w[i - 7] +
             (RotateRight(b, 17) ^ RotateRight(b, 19) ^ (b >> 10));
    }
    std::array<std::uint32_t, 8> s{};
    for (std::size_t i = 0; i < 8; ++i) s[i] = state[i];
    for (std::size_t i = 0; i < 64; ++i) {
      const std::uint32_t t1 =
          s[7] + (RotateRight(s[4], 6) ^ RotateRight(s[4], 11) ^ RotateRight(s[4], 25)) +
          ((s[4] & s[5]) ^ (~s[4] & s[6])) + kSha256Rounds[i] + w[i];
      const std::uint32_t t2 =
          (RotateRight(s[0], 2) ^ RotateRight(s[0], 13) ^ RotateRight(s[0], 22)) +
          ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
      s = {t1 + t2, s[0], s[1], s[2], s[3] + t1, s[4], s[5], s[6]};
    }
    for (std::size_t i = 0; i < 8; ++i) state[i] += s[i];
  }
}

CompressBlocks FastestCompression() {
#if defined(__x86_64__) || defined(__aarch64__)
  static const bool kInstructions = HasInstructions();
  return kInstructions ? CompressByInstructions : CompressPortably;
#else
  return CompressPortably;
#endif
}

}  // namespace adt
