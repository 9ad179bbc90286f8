#include "activity/java.h"

namespace adt::activity {

jmethodID MethodOf(JNIEnv* env, jobject object, const char* name, const char* signature) {
  return env->GetMethodID(env->GetObjectClass(object), name, signature);
}

std::string TextOf(JNIEnv* env, jobject text) {
  const auto characters_of = static_cast<jstring>(text);
  const char* characters = env->GetStringUTFChars(characters_of, nullptr);
  const std::string copy = characters;
  env->ReleaseStringUTFChars(characters_of, characters);
  return copy;
}

}  // namespace adt::activity
