// Where Android lets an application write.
#pragma once

#include <android/native_activity.h>

#include <string>

namespace adt::activity {

/// A directory that adb may read, too: of the first of getExternalMediaDirs(), since Android 11
/// keeps adb from an application's other external files. Those, or the internal ones, where there
/// is none. On the activity's thread.
std::string ResultsDirectory(const ANativeActivity& activity);

/// getCodeCacheDir(). On the activity's thread.
std::string CodeCache(const ANativeActivity& activity);

}  // namespace adt::activity
