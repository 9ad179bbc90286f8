// The compression function of SHA-256 (FIPS 180-4, 6.2.2): in C++, and by a processor's
// instructions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace adt {

/// Take *blocks* blocks of 64 bytes from *data* into the eight words of *state*.
using CompressBlocks = void (*)(std::uint32_t* state, const unsigned char* data,
                                std::size_t blocks);

/// The round constants.
extern const std::uint32_t kSha256Rounds[64];

void CompressPortably(std::uint32_t* state, const unsigned char* data, std::size_t blocks);

/// By SHA-NI of x86-64, or the SHA2 instructions of ARMv8: only where the processor has them.
void CompressByInstructions(std::uint32_t* state, const unsigned char* data, std::size_t blocks);

/// The fastest that this processor has.
CompressBlocks FastestCompression();

}  // namespace adt
