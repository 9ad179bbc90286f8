// What plays Android for libadt_activity: the stand-in libandroid's own functions.
#pragma once

#include <android/asset_manager.h>
#include <android/input.h>
#include <android/native_window.h>

#ifdef __cplusplus
extern "C" {
#endif

// Assets are the files below *root*, each behind *shift* bytes that are not its own, as in an APK;
// *compressed*: they can be read, but not mapped.
AAssetManager* standin_assets(const char* root, int shift, int compressed);

// A window of 5 by 3 pixels. Each picture that is posted is told on stdout: "window #2e7d32".
ANativeWindow* standin_window(void);

// A queue with *events* of them; the result of standin_input is how many were finished unhandled.
AInputQueue* standin_queue(int events);
int standin_input(AInputQueue* queue);

#ifdef __cplusplus
}
#endif
