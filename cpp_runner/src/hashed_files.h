// Digests of files that do not change: a file is hashed once for each time that the machine is
// started, not at every load.
//
// They are kept in the file "hashes" of a directory, one per line, with the machine's boot id in
// the first line, for this user alone to write. What they guard against is what the digest itself
// does: a copy that was cut short, or a file of another package. What may write a file of this
// user's, or this record, may as well write mod.json.
#pragma once

#include <string>

#include "source.h"

namespace adt {

/// The record's name in its directory.
constexpr const char* kHashesName = "hashes";

/// SHA-256 of the bytes, as Sha256() gives it: from the record in *directory*, where one is given
/// and the file did not change since, else computed, and recorded.
std::string Sha256Once(const Blob& bytes, const std::string& directory);

}  // namespace adt
