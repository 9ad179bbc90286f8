// A file among an Android application's assets, for adt_runner_create_from.
//
//   const adt::Asset manifest(assets, "adt/detector/arm64-v8a/mod.json", code_cache);
//   const adt::Asset params(assets, "adt/detector/arm64-v8a/mod.params", code_cache);
//   adt_package_source_t source = ADT_PACKAGE_SOURCE_INIT;
//   source.manifest = manifest.blob();
//   source.params = params.blob();
//   source.library_name = "libdetector_model.so";
//   adt::Runner runner(source);
//
// Link libandroid.
#pragma once

#include <android/asset_manager.h>
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "adt/adt_runner.h"

namespace adt {
inline namespace abi1 {

/// An asset as a part of an open file: where it lies in the APK, or a copy in *code_cache* when the
/// APK has it compressed. Android empties that directory when the application is updated, so a copy
/// that is there is taken as it is. The asset manager is not needed any longer.
class Asset {
 public:
  /// *code_cache*: getCodeCacheDir(). Throws std::system_error: there is no such asset (ENOENT), or
  /// it cannot be copied.
  Asset(AAssetManager* manager, const std::string& path, const std::string& code_cache) {
    const std::unique_ptr<AAsset, CloseAsset> asset(
        AAssetManager_open(manager, path.c_str(), AASSET_MODE_STREAMING));
    if (!asset) Fail(ENOENT, "assets/" + path);
    off64_t start = 0;
    off64_t length = -1;
    blob_.fd = AAsset_openFileDescriptor64(asset.get(), &start, &length);
    if (blob_.fd < 0) {  // it is compressed
      const std::string copy = code_cache + "/adt-assets/" + path;
      if (access(copy.c_str(), R_OK) != 0) Copy(asset.get(), copy);
      blob_.fd = open(copy.c_str(), O_RDONLY | O_CLOEXEC);
      if (blob_.fd < 0) Fail(errno, copy);
    }
    blob_.offset = start;
    blob_.size = length;
  }
  ~Asset() { close(blob_.fd); }
  Asset(const Asset&) = delete;
  Asset& operator=(const Asset&) = delete;

  /// Valid while this is there.
  const adt_blob_t& blob() const noexcept { return blob_; }

 private:
  struct CloseAsset {
    void operator()(AAsset* asset) const { AAsset_close(asset); }
  };
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  [[noreturn]] static void Fail(int error, const std::string& name) {
    throw std::system_error(error, std::generic_category(), name);
  }

  // The copy has its name only once all of it is on the disk: nothing looks at its contents later.
  static void Copy(AAsset* asset, const std::string& path) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::string part = path + ".XXXXXX";
    const std::unique_ptr<std::FILE, CloseFile> file(fdopen(mkstemp(part.data()), "wb"));
    if (!file) Fail(errno, path);
    if (!Write(asset, file.get()) || std::rename(part.c_str(), path.c_str()) != 0) {
      const int error = errno;
      std::remove(part.c_str());
      Fail(error, path);
    }
  }

  // False, with errno.
  static bool Write(AAsset* asset, std::FILE* file) {
    auto buffer = std::make_unique<std::array<char, 1 << 16>>();
    while (true) {
      errno = EIO;  // AAsset_read sets none
      const int size = AAsset_read(asset, buffer->data(), buffer->size());
      if (size == 0) return std::fflush(file) == 0 && fsync(fileno(file)) == 0;
      const auto count = static_cast<std::size_t>(size);
      if (size < 0 || std::fwrite(buffer->data(), 1, count, file) != count) return false;
    }
  }

  adt_blob_t blob_ = ADT_BLOB_NONE;
};

}  // namespace abi1
}  // namespace adt
