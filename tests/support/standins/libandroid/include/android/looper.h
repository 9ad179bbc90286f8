// STAND-IN for the NDK's header: what libadt_activity uses of it.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ALooper ALooper;
typedef int (*ALooper_callbackFunc)(int fd, int events, void* data);

ALooper* ALooper_forThread(void);

#ifdef __cplusplus
}
#endif
