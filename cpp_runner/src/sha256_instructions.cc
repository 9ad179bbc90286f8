// Compiled for processors that have the instructions (CMakeLists.txt): nothing inline of the
// standard library may be used here, for the linker could take this file's copy of it for all
// others.
#include "sha256_blocks.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace adt {

// Intel's instructions keep the state as ABEF and CDGH, words from the highest to the lowest.
void CompressByInstructions(std::uint32_t* state, const unsigned char* data, std::size_t blocks) {
  auto* words = reinterpret_cast<__m128i*>(state);
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xB1);
  const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1B);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xF0);
  for (; blocks != 0; --blocks, data += 64) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i w[4];  // of the last sixteen words, which are the next four rounds' to the last's
    for (int i = 0; i < 16; ++i) {
      __m128i& now = w[i % 4];
      const __m128i last = w[(i + 3) % 4];
      if (i < 4) {
        const auto* part = reinterpret_cast<const __m128i*>(data) + i;
        now = _mm_shuffle_epi8(_mm_loadu_si128(part), big_endian);
      } else {
        const __m128i seven_before = _mm_alignr_epi8(last, w[(i + 2) % 4], 4);
        const __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) % 4]), seven_before);
        now = _mm_sha256msg2_epu32(sum, last);
      }
      const auto* rounds = reinterpret_cast<const __m128i*>(kSha256Rounds) + i;
      const __m128i added = _mm_add_epi32(now, _mm_loadu_si128(rounds));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, added);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(added, 0x0E));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1B);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xB1);
  _mm_storeu_si128(words, _mm_blend_epi16(feba, dchg, 0xF0));
  _mm_storeu_si128(words + 1, _mm_alignr_epi8(dchg, feba, 8));
}

}  // namespace adt

#elif defined(__aarch64__)

#include <arm_neon.h>

namespace adt {

void CompressByInstructions(std::uint32_t* state, const unsigned char* data, std::size_t blocks) {
  uint32x4_t abcd = vld1q_u32(state);
  uint32x4_t efgh = vld1q_u32(state + 4);
  for (; blocks != 0; --blocks, data += 64) {
    const uint32x4_t abcd_before = abcd;
    const uint32x4_t efgh_before = efgh;
    uint32x4_t w[4];  // of the last sixteen words
    for (int i = 0; i < 16; ++i) {
      uint32x4_t& now = w[i % 4];
      now = i < 4 ? vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(data + 16 * i)))
                  : vsha256su1q_u32(vsha256su0q_u32(now, w[(i + 1) % 4]), w[(i + 2) % 4],
                                    w[(i + 3) % 4]);
      const uint32x4_t added = vaddq_u32(now, vld1q_u32(kSha256Rounds + 4 * i));
      const uint32x4_t before = abcd;
      abcd = vsha256hq_u32(abcd, efgh, added);
      efgh = vsha256h2q_u32(efgh, before, added);
    }
    abcd = vaddq_u32(abcd, abcd_before);
    efgh = vaddq_u32(efgh, efgh_before);
  }
  vst1q_u32(state, abcd);
  vst1q_u32(state + 4, efgh);
}

}  // namespace adt

#endif
