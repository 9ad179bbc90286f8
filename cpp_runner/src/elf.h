// The machine that an ELF file, or this program, is for.
#pragma once

#include <cstddef>
#include <string>

namespace adt {

/// Machine that the ELF file of these bytes is for, as readelf names it without its prefix
/// ("AARCH64", "X86_64"). *name* is for messages. Throws Error(kPackage): no ELF file.
std::string ElfMachine(const std::byte* data, std::size_t size, const std::string& name);

/// Machine that this library was compiled for.
std::string OwnMachine();

}  // namespace adt
