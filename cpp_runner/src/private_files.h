// Files that nobody but this user may have written: what a driver runs, or a check goes by.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

namespace adt {

/// Why a file or directory is not this user's alone, as the rest of a sentence about it; null when
/// it is. *writable*: permissions that nobody else may have, of S_IWGRP and S_IWOTH.
const char* OthersProblem(const struct stat& status, mode_t writable);

struct PrivateFile {
  bool exists = false;
  std::string bytes;
  std::string problem;  ///< the rest of a sentence; empty when *bytes* is all of the file
};

/// A file of at most *most* bytes. A link is not followed: it may lead to what is another's.
PrivateFile ReadPrivateFile(const std::string& path, std::uint64_t most);

/// Make a directory and those above it, unless it is there. Returns why it is not there for this
/// user alone to write; empty when it is.
std::string MakePrivateDirectory(const std::string& path);

}  // namespace adt
