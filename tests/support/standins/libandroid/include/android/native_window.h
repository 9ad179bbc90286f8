// STAND-IN for the NDK's header: what libadt_activity uses of it.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ANativeWindow ANativeWindow;

typedef struct ARect {
  int32_t left;
  int32_t top;
  int32_t right;
  int32_t bottom;
} ARect;

enum ANativeWindow_LegacyFormat { WINDOW_FORMAT_RGBX_8888 = 2 };

typedef struct ANativeWindow_Buffer {
  int32_t width;
  int32_t height;
  int32_t stride;  // in pixels
  int32_t format;
  void* bits;
  uint32_t reserved[6];
} ANativeWindow_Buffer;

int32_t ANativeWindow_setBuffersGeometry(ANativeWindow* window, int32_t width, int32_t height,
                                         int32_t format);
int32_t ANativeWindow_lock(ANativeWindow* window, ANativeWindow_Buffer* outBuffer,
                           ARect* inOutDirtyBounds);
int32_t ANativeWindow_unlockAndPost(ANativeWindow* window);

#ifdef __cplusplus
}
#endif
