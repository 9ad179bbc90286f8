// STAND-IN for the NDK's header: what libadt_activity uses of it.
#pragma once

#include <stdint.h>

#include <android/looper.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct AInputQueue AInputQueue;
typedef struct AInputEvent AInputEvent;

void AInputQueue_attachLooper(AInputQueue* queue, ALooper* looper, int ident,
                              ALooper_callbackFunc callback, void* data);
void AInputQueue_detachLooper(AInputQueue* queue);
int32_t AInputQueue_getEvent(AInputQueue* queue, AInputEvent** outEvent);
int32_t AInputQueue_preDispatchEvent(AInputQueue* queue, AInputEvent* event);
void AInputQueue_finishEvent(AInputQueue* queue, AInputEvent* event, int handled);

#ifdef __cplusplus
}
#endif
