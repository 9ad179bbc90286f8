// STAND-IN for Android's libandroid: assets are files, the window is memory.

#include <android/native_activity.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "standin.h"

struct AAssetManager {
  const char* root;
  int shift;
  int compressed;
};

struct AAsset {
  int fd;
  int shift;
  int compressed;
  off64_t length;
};

struct ANativeWindow {
  uint32_t pixels[3 * 8];
};

struct AInputEvent {
  int number;
};

struct AInputQueue {
  int waiting;
  int finished;
  struct AInputEvent event;
  ALooper_callbackFunc callback;
  void* data;
};

AAssetManager* standin_assets(const char* root, int shift, int compressed) {
  AAssetManager* made = calloc(1, sizeof(*made));
  made->root = root;
  made->shift = shift;
  made->compressed = compressed;
  return made;
}

AAsset* AAssetManager_open(AAssetManager* mgr, const char* filename, int mode) {
  (void)mode;
  char path[4096];
  snprintf(path, sizeof(path), "%s/%s", mgr->root, filename);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return NULL;
  struct stat status;
  fstat(fd, &status);
  lseek(fd, mgr->shift, SEEK_SET);
  AAsset* asset = calloc(1, sizeof(*asset));
  asset->fd = fd;
  asset->shift = mgr->shift;
  asset->compressed = mgr->compressed;
  asset->length = status.st_size - mgr->shift;
  return asset;
}

int AAsset_read(AAsset* asset, void* buf, size_t count) {
  return (int)read(asset->fd, buf, count);
}

int AAsset_openFileDescriptor64(AAsset* asset, off64_t* outStart, off64_t* outLength) {
  if (asset->compressed) return -1;
  *outStart = asset->shift;
  *outLength = asset->length;
  return dup(asset->fd);
}

void AAsset_close(AAsset* asset) {
  close(asset->fd);
  free(asset);
}

ANativeWindow* standin_window(void) { return calloc(1, sizeof(ANativeWindow)); }

int32_t ANativeWindow_setBuffersGeometry(ANativeWindow* window, int32_t width, int32_t height,
                                         int32_t format) {
  (void)window;
  return width == 0 && height == 0 && format == WINDOW_FORMAT_RGBX_8888 ? 0 : -1;
}

int32_t ANativeWindow_lock(ANativeWindow* window, ANativeWindow_Buffer* outBuffer,
                           ARect* inOutDirtyBounds) {
  (void)inOutDirtyBounds;
  outBuffer->width = 5;
  outBuffer->height = 3;
  outBuffer->stride = 8;
  outBuffer->format = WINDOW_FORMAT_RGBX_8888;
  outBuffer->bits = window->pixels;
  return 0;
}

int32_t ANativeWindow_unlockAndPost(ANativeWindow* window) {
  const uint32_t first = window->pixels[0];
  for (int y = 0; y < 3; ++y) {
    for (int x = 0; x < 8; ++x) {
      if (window->pixels[8 * y + x] != (x < 5 ? first : 0)) abort();  // outside, or left out
    }
  }
  printf("window #%02x%02x%02x\n", first & 0xFF, first >> 8 & 0xFF, first >> 16 & 0xFF);
  fflush(stdout);
  return 0;
}

AInputQueue* standin_queue(int events) {
  AInputQueue* made = calloc(1, sizeof(*made));
  made->waiting = events;
  return made;
}

int standin_input(AInputQueue* queue) {
  if (queue->callback != NULL) queue->callback(-1, 1, queue->data);
  return queue->finished;
}

ALooper* ALooper_forThread(void) {
  static int looper;
  return (ALooper*)&looper;
}

void AInputQueue_attachLooper(AInputQueue* queue, ALooper* looper, int ident,
                              ALooper_callbackFunc callback, void* data) {
  (void)looper;
  (void)ident;
  queue->callback = callback;
  queue->data = data;
}

void AInputQueue_detachLooper(AInputQueue* queue) { queue->callback = NULL; }

int32_t AInputQueue_getEvent(AInputQueue* queue, AInputEvent** outEvent) {
  if (queue->waiting == 0) return -1;
  queue->event.number = queue->waiting--;
  *outEvent = &queue->event;
  return 0;
}

int32_t AInputQueue_preDispatchEvent(AInputQueue* queue, AInputEvent* event) {
  (void)queue;
  return event->number == 1;  // an input method takes the last one
}

void AInputQueue_finishEvent(AInputQueue* queue, AInputEvent* event, int handled) {
  (void)event;
  queue->finished += handled == 0;
}

void ANativeActivity_finish(ANativeActivity* activity) {
  (void)activity;
  printf("finish\n");
  fflush(stdout);
}

void ANativeActivity_setWindowFlags(ANativeActivity* activity, uint32_t addFlags,
                                    uint32_t removeFlags) {
  (void)activity;
  printf("window flags +%x -%x\n", addFlags, removeFlags);
  fflush(stdout);
}
