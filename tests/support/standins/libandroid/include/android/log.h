// STAND-IN for the NDK's header: what adt's code uses of it.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

typedef enum android_LogPriority {
  ANDROID_LOG_DEBUG = 3,
  ANDROID_LOG_INFO = 4,
  ANDROID_LOG_WARN = 5,
  ANDROID_LOG_ERROR = 6
} android_LogPriority;

int __android_log_write(int prio, const char* tag, const char* text);

#ifdef __cplusplus
}
#endif
