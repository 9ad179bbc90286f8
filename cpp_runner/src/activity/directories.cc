#include "activity/directories.h"

#include <jni.h>

#include "activity/java.h"

namespace adt::activity {
namespace {

std::string PathOf(JNIEnv* env, jobject file) {
  return TextOf(
      env, env->CallObjectMethod(file, MethodOf(env, file, "getPath", "()Ljava/lang/String;")));
}

// Empty while there is no shared storage.
std::string MediaDirectory(const ANativeActivity& activity) {
  JNIEnv* env = activity.env;
  const auto directories = static_cast<jobjectArray>(env->CallObjectMethod(
      activity.clazz, MethodOf(env, activity.clazz, "getExternalMediaDirs", "()[Ljava/io/File;")));
  if (directories == nullptr || env->GetArrayLength(directories) == 0) return {};
  const jobject file = env->GetObjectArrayElement(directories, 0);
  return file == nullptr ? "" : PathOf(env, file);
}

}  // namespace

std::string ResultsDirectory(const ANativeActivity& activity) {
  std::string parent = MediaDirectory(activity);
  if (parent.empty()) {
    const char* shared = activity.externalDataPath;  // nullptr while there is no shared storage
    parent = shared != nullptr ? shared : activity.internalDataPath;
  }
  return parent + "/adt-bench";
}

std::string CodeCache(const ANativeActivity& activity) {
  JNIEnv* env = activity.env;
  const jmethodID method = MethodOf(env, activity.clazz, "getCodeCacheDir", "()Ljava/io/File;");
  return PathOf(env, env->CallObjectMethod(activity.clazz, method));
}

}  // namespace adt::activity
