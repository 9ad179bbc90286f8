// The files that an APK carries.
#pragma once

#include <android/asset_manager.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "source.h"

namespace adt::activity {

/// One asset: mapped where it lies in the APK, or a copy of it when the APK has it compressed. It
/// does not need the asset manager any longer.
class Asset {
 public:
  /// Throws Error(kPackage): the application does not carry it.
  Asset(AAssetManager* manager, const std::string& path);

  const std::string& name() const { return name_; }
  std::string_view text() const;
  /// The same bytes, mapped where they are; this must outlive it.
  Blob Borrow() const;

 private:
  std::string name_;
  Blob mapped_;
  std::vector<std::byte> copied_;
};

}  // namespace adt::activity
