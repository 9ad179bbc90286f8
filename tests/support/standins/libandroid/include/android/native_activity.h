// STAND-IN for the NDK's header: what libadt_activity uses of it, in the same order.
#pragma once

#include <jni.h>
#include <stddef.h>
#include <stdint.h>

#include <android/asset_manager.h>
#include <android/input.h>
#include <android/native_window.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ANativeActivityCallbacks;

typedef struct ANativeActivity {
  struct ANativeActivityCallbacks* callbacks;
  void* vm;
  JNIEnv* env;
  jobject clazz;
  const char* internalDataPath;
  const char* externalDataPath;
  int32_t sdkVersion;
  void* instance;
  AAssetManager* assetManager;
  const char* obbPath;
} ANativeActivity;

typedef struct ANativeActivityCallbacks {
  void (*onStart)(ANativeActivity* activity);
  void (*onResume)(ANativeActivity* activity);
  void* (*onSaveInstanceState)(ANativeActivity* activity, size_t* outSize);
  void (*onPause)(ANativeActivity* activity);
  void (*onStop)(ANativeActivity* activity);
  void (*onDestroy)(ANativeActivity* activity);
  void (*onWindowFocusChanged)(ANativeActivity* activity, int hasFocus);
  void (*onNativeWindowCreated)(ANativeActivity* activity, ANativeWindow* window);
  void (*onNativeWindowResized)(ANativeActivity* activity, ANativeWindow* window);
  void (*onNativeWindowRedrawNeeded)(ANativeActivity* activity, ANativeWindow* window);
  void (*onNativeWindowDestroyed)(ANativeActivity* activity, ANativeWindow* window);
  void (*onInputQueueCreated)(ANativeActivity* activity, AInputQueue* queue);
  void (*onInputQueueDestroyed)(ANativeActivity* activity, AInputQueue* queue);
  void (*onContentRectChanged)(ANativeActivity* activity, const ARect* rect);
  void (*onConfigurationChanged)(ANativeActivity* activity);
  void (*onLowMemory)(ANativeActivity* activity);
} ANativeActivityCallbacks;

typedef void ANativeActivity_createFunc(ANativeActivity* activity, void* savedState,
                                        size_t savedStateSize);
extern ANativeActivity_createFunc ANativeActivity_onCreate;

void ANativeActivity_finish(ANativeActivity* activity);
void ANativeActivity_setWindowFlags(ANativeActivity* activity, uint32_t addFlags,
                                    uint32_t removeFlags);

#ifdef __cplusplus
}
#endif
