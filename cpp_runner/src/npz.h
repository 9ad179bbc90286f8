// Arrays in .npz files, as numpy.savez writes and numpy.load reads them.
#pragma once

#include <string>

#include "array.h"
#include "source.h"

namespace adt {

/// Read all arrays of a stored (uncompressed) .npz. Arrays in Fortran order or big-endian are
/// converted. Throws Error(kInput): not a zip, compressed, damaged, or an element type that Array
/// does not have.
NamedArrays ReadNpz(const std::string& path);

/// The same of a file's contents; *path* is for messages.
NamedArrays ParseNpz(const Blob& file, const std::string& path);

/// Write a stored .npz; the file appears complete or not at all. Throws Error(kInput).
void WriteNpz(const std::string& path, const NamedArrays& arrays);

}  // namespace adt
