// Stored (uncompressed) zip archives, as far as .npz files need them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace adt {

/// One file of an archive: a part of the archive's bytes.
struct ZipMember {
  std::string name;
  const std::byte* data = nullptr;
  std::size_t size = 0;
};

/// All members of the archive of *size* bytes, checked against their CRCs. zip64 is understood.
/// *path* is for messages. Throws Error(kInput): no archive, compressed or encrypted members, or
/// sizes that do not fit the file.
std::vector<ZipMember> ReadZip(const std::byte* bytes, std::size_t size, const std::string& path);

/// Writes a stored archive from its beginning to its end. Its sizes are zip64's, of 64 bits each,
/// as numpy's are.
class ZipWriter {
 public:
  /// *write* takes the next bytes.
  using Write = std::function<void(const void* data, std::size_t size)>;
  explicit ZipWriter(Write write) : write_(std::move(write)) {}

  /// A member that is *head* and then *size* bytes. Throws Error(kInput): its name is too long.
  void Add(const std::string& name, const std::string& head, const std::byte* data,
           std::size_t size);
  /// The archive's directory: nothing follows.
  void Finish();

 private:
  void Put(const std::string& bytes);

  Write write_;
  std::uint64_t written_ = 0;
  std::uint64_t count_ = 0;
  std::string directory_;
};

}  // namespace adt
