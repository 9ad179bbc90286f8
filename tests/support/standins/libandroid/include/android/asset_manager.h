// STAND-IN for the NDK's header: what libadt_activity uses of it.
#pragma once

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct AAssetManager AAssetManager;
typedef struct AAsset AAsset;

enum {
  AASSET_MODE_UNKNOWN = 0,
  AASSET_MODE_RANDOM = 1,
  AASSET_MODE_STREAMING = 2,
  AASSET_MODE_BUFFER = 3
};

AAsset* AAssetManager_open(AAssetManager* mgr, const char* filename, int mode);
int AAsset_read(AAsset* asset, void* buf, size_t count);
int AAsset_openFileDescriptor64(AAsset* asset, off64_t* outStart, off64_t* outLength);
void AAsset_close(AAsset* asset);

#ifdef __cplusplus
}
#endif
