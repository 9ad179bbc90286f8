#include "npz.h"

#include <string_view>

#include "error.h"
#include "file.h"
#include "npy.h"
#include "source.h"
#include "zip.h"

namespace adt {
namespace {

constexpr std::string_view kNpySuffix = ".npy";

}  // namespace

NamedArrays ReadNpz(const std::string& path) {
  const Blob file = Blob::MapFile(
      path, "Check the path; the file must be on the machine that the runner runs on.",
      ErrorKind::kInput);
  return ParseNpz(file, path);
}

NamedArrays ParseNpz(const Blob& file, const std::string& path) {
  NamedArrays arrays;
  for (const ZipMember& member : ReadZip(file.data(), file.size(), path)) {
    if (member.name.size() <= kNpySuffix.size() ||
        member.name.compare(member.name.size() - kNpySuffix.size(), kNpySuffix.size(),
                            kNpySuffix) != 0) {
      throw Error(ErrorKind::kInput, path + " holds " + member.name + ", which is no array",
                  "Write the file with numpy.savez.");
    }
    const std::string name = member.name.substr(0, member.name.size() - kNpySuffix.size());
    arrays.push_back({name, ParseNpy(member.data, member.size, name)});
    file.Forget(member.data, member.size);  // else it would be there twice
  }
  return arrays;
}

void WriteNpz(const std::string& path, const NamedArrays& arrays) {
  NewFile file(path, 0666);
  ZipWriter zip([&](const void* data, std::size_t size) { file.Write(data, size); });
  for (const NamedArray& named : arrays) {
    zip.Add(named.name + std::string(kNpySuffix), NpyHeader(named.array), named.array.data.data(),
            named.array.data.size());
  }
  zip.Finish();
  if (const std::string reason = file.Complete(); !reason.empty()) {
    throw Error(ErrorKind::kInput, "cannot write " + path + ": " + reason,
                "Choose a directory that exists, may be written to and has room.");
  }
}

}  // namespace adt
