#include "npz.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <system_error>

#include "error.h"
#include "npy.h"
#include "zip.h"

namespace adt {
namespace {

constexpr std::string_view kSuffix = ".npy";

std::vector<std::byte> ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file ? std::streamoff{file.tellg()} : -1;
  if (size < 0) {
    throw Error(ErrorKind::kInput, "cannot read " + path,
                "Check the path; the file must be on the machine that the runner runs on.");
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!file) throw Error(ErrorKind::kInput, "cannot read " + path, "Check that it is a file.");
  return bytes;
}

// The file gets its name only when it is complete.
void WriteAll(const std::string& path, const std::vector<std::byte>& bytes) {
  const std::string temporary = path + ".tmp" + std::to_string(getpid());
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const std::string why = std::generic_category().message(errno);
    std::remove(temporary.c_str());
    throw Error(ErrorKind::kInput, "cannot write " + path + ": " + why,
                "Choose a directory that exists, may be written to and has room.");
  }
}

}  // namespace

NamedArrays ReadNpz(const std::string& path) { return ParseNpz(ReadAll(path), path); }

NamedArrays ParseNpz(const std::vector<std::byte>& bytes, const std::string& path) {
  NamedArrays arrays;
  for (const ZipMember& member : ReadZip(bytes, path)) {
    if (member.name.size() <= kSuffix.size() ||
        member.name.compare(member.name.size() - kSuffix.size(), kSuffix.size(), kSuffix) != 0) {
      throw Error(ErrorKind::kInput, path + " holds " + member.name + ", which is no array",
                  "Write the file with numpy.savez.");
    }
    const std::string name = member.name.substr(0, member.name.size() - kSuffix.size());
    arrays.push_back({name, ParseNpy(member.data.data(), member.data.size(), name)});
  }
  return arrays;
}

void WriteNpz(const std::string& path, const NamedArrays& arrays) {
  std::vector<ZipMember> members;
  for (const NamedArray& named : arrays) {
    if (named.name.size() > 0xFFF0) {
      throw Error(ErrorKind::kInput, "the name of an array is too long for an .npz file",
                  "Rename the model's outputs.");
    }
    members.push_back({named.name + std::string(kSuffix), FormatNpy(named.array)});
  }
  WriteAll(path, FormatZip(members));
}

}  // namespace adt
