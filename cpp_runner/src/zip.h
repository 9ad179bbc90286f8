// Stored (uncompressed) zip archives, as far as .npz files need them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace adt {

/// One file of an archive.
struct ZipMember {
  std::string name;
  std::vector<std::byte> data;
};

/// All members of the archive *bytes*, checked against their CRCs. zip64 is understood. *path* is
/// for messages. Throws Error(kInput): no archive, compressed or encrypted members, or sizes that
/// do not fit the file.
std::vector<ZipMember> ReadZip(const std::vector<std::byte>& bytes, const std::string& path);

/// A stored archive. Throws Error(kInput) when it would pass 4 GiB.
std::vector<std::byte> FormatZip(const std::vector<ZipMember>& members);

}  // namespace adt
