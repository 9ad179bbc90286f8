// STAND-IN for the NDK's header: what libadt_activity calls of Java.
#pragma once

#include <stdint.h>

typedef int32_t jint;
typedef void* jobject;
typedef jobject jclass;
typedef jobject jstring;
typedef jobject jobjectArray;
typedef jint jsize;
typedef const char* jmethodID;

#ifdef __cplusplus
struct JNIEnv {
  virtual jclass GetObjectClass(jobject object) = 0;
  virtual jmethodID GetMethodID(jclass type, const char* name, const char* signature) = 0;
  virtual jobject CallObjectMethod(jobject object, jmethodID method, ...) = 0;
  virtual jint CallIntMethod(jobject object, jmethodID method, ...) = 0;
  virtual jsize GetArrayLength(jobjectArray array) = 0;
  virtual jobject GetObjectArrayElement(jobjectArray array, jsize index) = 0;
  virtual jstring NewStringUTF(const char* text) = 0;
  virtual const char* GetStringUTFChars(jstring text, void* is_copy) = 0;
  virtual void ReleaseStringUTFChars(jstring text, const char* characters) = 0;
};
#else
typedef void* JNIEnv;
#endif
