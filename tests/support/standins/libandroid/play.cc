// Plays Android for libadt_activity: creates its activity and sends what stdin says, a word a line.
// It is a stand-in: one thread for all callbacks, as on Android, and nothing else of Android.
//
//   play LIBRARY ASSETS INTERNAL EXTERNAL MEDIA SHIFT COMPRESSED
//
// MEDIA may be empty: there is no shared storage that it could lie in.
//
// Each word is answered with "ok" on stdout, after what it made the stand-in tell. A word
// NAME=VALUE is an extra of the intent that the next activity is created by.

#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <android/native_activity.h>

#include "standin.h"

namespace {

constexpr int kEvents = 3;

// The methods that there are: what else is asked for ends the process, as JNI's checks do.
constexpr const char* kMethods[][2] = {
    {"getIntent", "()Landroid/content/Intent;"},
    {"getStringExtra", "(Ljava/lang/String;)Ljava/lang/String;"},
    {"getIntExtra", "(Ljava/lang/String;I)I"},
    {"getExternalMediaDirs", "()[Ljava/io/File;"},
    {"getCodeCacheDir", "()Ljava/io/File;"},
    {"getPath", "()Ljava/lang/String;"},
};

// Java, as far as an activity asks its intent for extras, and where it may write. Strings and files
// are std::string, arrays std::vector.
class Java : public JNIEnv {
 public:
  std::map<std::string, std::string> extras;
  std::vector<jobject> media;
  std::string code_cache;

  jclass GetObjectClass(jobject object) override { return object; }
  jmethodID GetMethodID(jclass, const char* name, const char* signature) override {
    for (const auto& method : kMethods) {
      if (std::string(method[0]) == name && std::string(method[1]) == signature) return method[0];
    }
    std::abort();
  }
  jobject CallObjectMethod(jobject object, jmethodID method, ...) override {
    const std::string name = method;
    if (name == "getIntent") return object;
    if (name == "getExternalMediaDirs") return &media;
    if (name == "getCodeCacheDir") return &code_cache;
    if (name == "getPath") return NewStringUTF(static_cast<std::string*>(object)->c_str());
    std::va_list arguments;
    va_start(arguments, method);
    const auto extra = extras.find(*va_arg(arguments, std::string*));
    va_end(arguments);
    return extra == extras.end() ? nullptr : NewStringUTF(extra->second.c_str());
  }
  jint CallIntMethod(jobject, jmethodID method, ...) override {
    std::va_list arguments;
    va_start(arguments, method);
    const auto extra = extras.find(*va_arg(arguments, std::string*));
    const jint fallback = va_arg(arguments, jint);
    va_end(arguments);
    return extra == extras.end() ? fallback : std::atoi(extra->second.c_str());
  }
  jsize GetArrayLength(jobjectArray array) override {
    return static_cast<jsize>(static_cast<std::vector<jobject>*>(array)->size());
  }
  jobject GetObjectArrayElement(jobjectArray array, jsize index) override {
    return static_cast<std::vector<jobject>*>(array)->at(static_cast<std::size_t>(index));
  }
  jstring NewStringUTF(const char* text) override { return new std::string(text); }
  const char* GetStringUTFChars(jstring text, void*) override {
    return static_cast<std::string*>(text)->c_str();
  }
  void ReleaseStringUTFChars(jstring text, const char*) override {
    delete static_cast<std::string*>(text);
  }
};

class Player {
 public:
  Player(ANativeActivity_createFunc* create, AAssetManager* assets, const char* internal,
         const char* external, const char* media)
      : create_(create), assets_(assets), internal_(internal), external_(external) {
    java_.code_cache = std::string(internal) + "/code_cache";
    java_.media = {*media == '\0' ? nullptr : java_.NewStringUTF(media)};
  }

  // False for a word that means nothing here.
  bool Do(const std::string& word) {
    if (word == "create") {
      callbacks_ = {};
      activity_ = {};
      activity_.callbacks = &callbacks_;
      activity_.env = &java_;
      activity_.clazz = this;
      activity_.internalDataPath = internal_;
      activity_.externalDataPath = external_;
      activity_.assetManager = assets_;
      create_(&activity_, nullptr, 0);
    } else if (word == "resume") {
      Call(callbacks_.onResume);
    } else if (word == "pause") {
      Call(callbacks_.onPause);
    } else if (word == "destroy") {
      Call(callbacks_.onDestroy);
    } else if (word == "window") {
      Call(callbacks_.onNativeWindowCreated, window_);
    } else if (word == "redraw") {
      Call(callbacks_.onNativeWindowRedrawNeeded, window_);
    } else if (word == "window-gone") {
      Call(callbacks_.onNativeWindowDestroyed, window_);
    } else if (word == "input") {
      AInputQueue* queue = standin_queue(kEvents);
      Call(callbacks_.onInputQueueCreated, queue);
      std::cout << "finished " << standin_input(queue) << " of " << kEvents << std::endl;
      Call(callbacks_.onInputQueueDestroyed, queue);
    } else if (word == "threads") {
      const std::filesystem::directory_iterator tasks("/proc/self/task");
      std::cout << "threads " << std::distance(begin(tasks), end(tasks)) << std::endl;
    } else if (const auto end = word.find('='); end != std::string::npos) {
      java_.extras[word.substr(0, end)] = word.substr(end + 1);
    } else {
      return false;
    }
    return true;
  }

 private:
  template <typename Callback, typename... Arguments>
  void Call(Callback callback, Arguments... arguments) {
    if (callback != nullptr) callback(&activity_, arguments...);
  }

  ANativeActivity_createFunc* create_;
  AAssetManager* assets_;
  const char* internal_;
  const char* external_;
  ANativeWindow* window_ = standin_window();
  Java java_;
  ANativeActivityCallbacks callbacks_{};
  ANativeActivity activity_{};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  void* library = dlopen(argv[1], RTLD_NOW);
  if (library == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  auto* create =
      reinterpret_cast<ANativeActivity_createFunc*>(dlsym(library, "ANativeActivity_onCreate"));
  if (create == nullptr) return 1;
  Player player(create, standin_assets(argv[2], std::atoi(argv[6]), std::atoi(argv[7])), argv[3],
                argv[4], argv[5]);
  std::string word;
  while (std::getline(std::cin, word)) {
    if (!player.Do(word)) return 2;
    std::cout << "ok" << std::endl;
  }
  std::_Exit(0);  // as Android ends a process: a worker may still run
}
