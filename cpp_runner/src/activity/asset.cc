#include "activity/asset.h"

#include <cstdint>
#include <memory>

#include "error.h"
#include "file.h"

namespace adt::activity {
namespace {

constexpr const char* kRemedy = "Make the APK again: adt apk.";

struct Close {
  void operator()(AAsset* asset) const { AAsset_close(asset); }
};

}  // namespace

Asset::Asset(AAssetManager* manager, const std::string& path) : name_("assets/" + path) {
  const std::unique_ptr<AAsset, Close> asset(
      AAssetManager_open(manager, path.c_str(), AASSET_MODE_UNKNOWN));
  if (!asset) throw Error(ErrorKind::kPackage, "the application has no " + name_, kRemedy);
  off64_t start = 0;
  off64_t length = 0;
  const FileDescriptor file(AAsset_openFileDescriptor64(asset.get(), &start, &length));
  if (file.valid()) {
    mapped_ = Blob::MapPart(file.get(), start, length, name_);
    return;
  }
  // It is compressed in the APK.
  const auto* bytes = static_cast<const std::byte*>(AAsset_getBuffer(asset.get()));
  if (bytes == nullptr) throw Error(ErrorKind::kPackage, name_ + " cannot be read", kRemedy);
  copied_.assign(bytes, bytes + AAsset_getLength64(asset.get()));
}

Blob Asset::Borrow() const {
  return copied_.empty() ? mapped_ : Blob::Borrow(copied_.data(), copied_.size());
}

std::string_view Asset::text() const { return Borrow().text(); }

}  // namespace adt::activity
