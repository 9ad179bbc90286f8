#include "hashed_files.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <utility>
#include <vector>

#include "file.h"
#include "private_files.h"
#include "sha256.h"

namespace adt {
namespace {

constexpr std::uint64_t kLargestHashesFile = 1 << 16;
constexpr std::size_t kMostHashedFiles = 128;
constexpr std::size_t kDigestSize = 64;
constexpr std::size_t kSoonHashed = std::size_t{1} << 20;  // hashed sooner than looked up

// Empty where the system does not say.
std::string BootId() {
  const FileDescriptor file = FileDescriptor::Open("/proc/sys/kernel/random/boot_id");
  std::string id(36, '\0');
  if (!file.valid() || !file.Read(id.data(), id.size())) return {};
  return id;
}

// A few MiB at a time: while they are hashed the next ones are read, and none stay in this
// process's memory.
std::string Hash(const Blob& bytes) {
  constexpr std::size_t kPart = std::size_t{4} << 20;
  Sha256Hasher hasher;
  for (std::size_t at = 0; at < bytes.size(); at += kPart) {
    const std::byte* part = bytes.data() + at;
    const std::size_t size = std::min(kPart, bytes.size() - at);
    const std::size_t next = std::min(kPart, bytes.size() - at - size);
    bytes.Expect(part + size, next);
    hasher.Update(part, size);
    bytes.Forget(part, size);
  }
  return hasher.Finish();
}

struct Record {
  std::string boot;
  std::vector<std::pair<std::string, std::string>> digests;  // by the file's version; oldest first
};

Record Read(const std::string& path, const std::string& boot) {
  Record record{boot, {}};
  const PrivateFile file = ReadPrivateFile(path, kLargestHashesFile);
  std::istringstream lines(file.problem.empty() ? file.bytes : "");
  std::string version;
  std::string digest;
  if (!std::getline(lines, version) || version != boot) return record;
  while (lines >> version >> digest) {
    if (digest.size() == kDigestSize) record.digests.emplace_back(version, digest);
  }
  return record;
}

// Where it cannot be written the file is hashed the next time, too.
void Write(const std::string& path, const Record& record) {
  std::string text = record.boot + "\n";
  for (const auto& [version, digest] : record.digests) text += version + " " + digest + "\n";
  NewFile file(path, 0600);
  file.Write(text.data(), text.size());
  file.Complete(/*on_disk=*/false);
}

}  // namespace

std::string Sha256Once(const Blob& bytes, const std::string& directory) {
  const bool recorded = !directory.empty() && !bytes.version().empty() &&
                        bytes.size() > kSoonHashed && MakePrivateDirectory(directory).empty();
  const std::string boot = recorded ? BootId() : "";
  if (boot.empty()) return Hash(bytes);
  const std::string path = directory + "/" + kHashesName;
  for (const auto& [version, digest] : Read(path, boot).digests) {
    if (version == bytes.version()) return digest;
  }
  const std::string digest = Hash(bytes);
  Record record = Read(path, boot);  // others may have written while this one hashed
  record.digests.emplace_back(bytes.version(), digest);
  if (record.digests.size() > kMostHashedFiles) record.digests.erase(record.digests.begin());
  Write(path, record);
  return digest;
}

}  // namespace adt
