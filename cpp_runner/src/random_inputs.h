// Inputs that are made up, reproducibly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "array.h"
#include "package.h"

namespace adt {

/// What made-up inputs hold: random values; zeros; ones; or 0, 1, 2, … in C order.
enum class FillMode { kRandom, kZeros, kOnes, kArange };
/// By the names of --fill-mode; none for another one.
std::optional<FillMode> FindFillMode(const std::string& name);
const char* FillModeName(FillMode fill);

/// Arrays for *specs*. Random ones are by the generator "adt-splitmix64-v1". Python's
/// adt.compiler.random_inputs gives the same bits.
///
/// All arithmetic is on unsigned 64-bit integers, modulo 2^64:
///
///   mix(z):  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
///            z = (z ^ (z >> 27)) * 0x94D049BB133111EB
///            return z ^ (z >> 31)
///   s   = mix(seed + fnv1a64(the input's name in UTF-8)): one stream for each input, by name
///   z_k = mix(s + (k + 1) * 0x9E3779B97F4A7C15): element k in C order, from 0
///
///   float64        (z_k >> 11) * 2^-53
///   float32        (z_k >> 40) * 2^-24
///   float16        (z_k >> 53) * 2^-11
///   any integer    z_k mod 100, or of a known range low + z_k mod (most - low + 1), where low is
///                  its least number, but at least 0
///   bool           z_k >> 63
///
/// Every float is exact, in [0, 1). fnv1a64 starts at 0xCBF29CE484222325 and, for each byte b, does
/// h = (h ^ b) * 0x100000001B3.
/// Other modes: a float is the number itself, of arange modulo 2^24 (float16: 2^11), so that it is
/// exact; integers keep their low bytes, and stay in a known range, from its least number on
/// again behind its largest; a bool is the number's lowest bit.
///
/// Throws Error(kInput): a shape has a symbolic dimension, the element type is none of Array's, or
/// nothing is known of integers that become indices.
NamedArrays RandomInputs(const std::vector<TensorSpec>& specs, std::uint64_t seed,
                         FillMode fill = FillMode::kRandom);

}  // namespace adt
