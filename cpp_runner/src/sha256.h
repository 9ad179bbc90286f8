// SHA-256 (FIPS 180-4).
#pragma once

#include <cstddef>
#include <string>

namespace adt {

/// Digest of *size* bytes, 64 hexadecimal digits in lower case.
std::string Sha256(const void* data, std::size_t size);

}  // namespace adt
