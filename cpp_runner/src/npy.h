// One array in numpy's .npy format.
#pragma once

#include <cstddef>
#include <string>

#include "array.h"

namespace adt {

/// Read a .npy file's *bytes*; Fortran order and big-endian are converted. *name* is for messages.
/// Throws Error(kInput).
Array ParseNpy(const std::byte* bytes, std::size_t size, const std::string& name);

/// What comes before the array's data in its .npy file (format 1.0). Throws Error(kInput) for an
/// element type that numpy does not have.
std::string NpyHeader(const Array& array);

}  // namespace adt
