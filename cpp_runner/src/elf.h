// The machine that an ELF file, or this program, is for.
#pragma once

#include <string>

namespace adt {

/// Machine of the ELF file *path*, as readelf names it without its prefix ("AARCH64", "X86_64").
/// Throws Error(kPackage): not a readable ELF file.
std::string ElfMachine(const std::string& path);

/// Machine that this library was compiled for.
std::string OwnMachine();

}  // namespace adt
