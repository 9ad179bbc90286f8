// The native method of AndroidPictures, as those of images.cc.

#include <android/bitmap.h>
#include <jni.h>

#include <cstdint>
#include <string>

#include "image_input.h"

using adt::java::ImageInput;
using adt::java::Refuse;

extern "C" {

JNIEXPORT jint JNICALL Java_org_adt_runtime_AndroidPictures_fillBitmap(
    JNIEnv* env, jclass, jintArray format, jfloatArray normalisation, jintArray placement,
    jobject scratch, jobject array, jobject bitmap) {
  const ImageInput input(env, format, normalisation, placement, scratch, array);
  AndroidBitmapInfo info{};
  void* memory = nullptr;
  if (AndroidBitmap_getInfo(env, bitmap, &info) != ANDROID_BITMAP_RESULT_SUCCESS ||
      info.format != ANDROID_BITMAP_FORMAT_RGBA_8888 ||
      AndroidBitmap_lockPixels(env, bitmap, &memory) != ANDROID_BITMAP_RESULT_SUCCESS) {
    Refuse(env, "the bitmap's pixels cannot be read: is it recycled?");
    return 0;
  }
  adt::Picture picture;
  picture.pixels = static_cast<const std::uint8_t*>(memory);
  picture.width = info.width;
  picture.height = info.height;
  picture.channels = 4;
  picture.row_bytes = info.stride;
  std::string problem;
  const jint missing = input.Fill(picture, &problem);
  AndroidBitmap_unlockPixels(env, bitmap);
  if (!problem.empty()) Refuse(env, problem);
  return missing;
}

}  // extern "C"
