// Java as the activity's thread calls it.
#pragma once

#include <jni.h>

#include <string>

namespace adt::activity {

/// The method *name* of *object*, which has one with this *signature*.
jmethodID MethodOf(JNIEnv* env, jobject object, const char* name, const char* signature);

/// What the characters of *text*, which is not null, are in Java's UTF-8.
std::string TextOf(JNIEnv* env, jobject text);

}  // namespace adt::activity
