// SHA-256 (FIPS 180-4).
#pragma once

#include <cstddef>
#include <string>

#include "adt/export.h"

namespace adt {

/// Digest of *size* bytes, 64 hexadecimal digits in lower case.
ADT_API std::string Sha256(const void* data, std::size_t size);

/// Digest of a file's bytes. Throws Error(kPackage) when it cannot be read.
ADT_API std::string Sha256OfFile(const std::string& path);

}  // namespace adt
