// The native methods of ImageFiller. Each gives how many floats of scratch memory are missing, or 0
// when the input is filled; an exception waits for Java when that cannot be.

#include <jni.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "image_input.h"

#define NATIVE(type, method) JNIEXPORT type JNICALL Java_org_adt_runtime_ImageFiller_##method

using adt::java::ImageInput;
using adt::java::Ints;
using adt::java::Refuse;
using adt::java::Size;

extern "C" {

NATIVE(jint, fillPixels)(JNIEnv* env, jclass, jintArray format, jfloatArray normalisation,
                         jintArray placement, jobject scratch, jobject array, jintArray pixels,
                         jintArray size) {
  const ImageInput input(env, format, normalisation, placement, scratch, array);
  const auto extents = Ints<2>(env, size);
  adt::Picture picture;
  picture.width = Size(extents[0]);
  picture.height = Size(extents[1]);
  picture.channels = 4;  // a little-endian int: blue, green, red, alpha
  picture.reversed = true;
  std::string problem;
  void* memory = env->GetPrimitiveArrayCritical(pixels, nullptr);
  if (memory == nullptr) return 0;  // an exception waits for Java
  picture.pixels = static_cast<const std::uint8_t*>(memory);
  const jint missing = input.Fill(picture, &problem);
  env->ReleasePrimitiveArrayCritical(pixels, memory, JNI_ABORT);
  if (!problem.empty()) Refuse(env, problem);
  return missing;
}

NATIVE(jint, fillYuv)(JNIEnv* env, jclass, jintArray format, jfloatArray normalisation,
                      jintArray placement, jobject scratch, jobject array, jintArray frame,
                      jobject y, jobject u, jobject v) {
  ImageInput input(env, format, normalisation, placement, scratch, array);
  constexpr std::size_t kPlanes = 7;
  constexpr std::size_t kPlaneNumbers = 4;
  const auto numbers = Ints<kPlanes + 3 * kPlaneNumbers>(env, frame);
  adt::YuvImage image;
  image.width = Size(numbers[0]);
  image.height = Size(numbers[1]);
  input.set_crop({Size(numbers[2]), Size(numbers[3]), Size(numbers[4]), Size(numbers[5])});
  image.color = static_cast<adt::YuvColor>(numbers[6]);
  const std::array<jobject, 3> buffers{y, u, v};
  for (std::size_t c = 0; c < buffers.size(); ++c) {
    const jint* plane = numbers.data() + kPlanes + c * kPlaneNumbers;
    const auto* data = static_cast<const std::uint8_t*>(env->GetDirectBufferAddress(buffers[c]));
    image.planes[c] = {data == nullptr ? nullptr : data + Size(plane[0]), Size(plane[1]),
                       Size(plane[2]), Size(plane[3])};
  }
  std::string problem;
  const jint missing = input.Fill(image, &problem);
  if (!problem.empty()) Refuse(env, problem);
  return missing;
}

}  // extern "C"
