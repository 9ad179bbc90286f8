// An input that a picture goes into, as ImageFiller.java describes it, on adt/image.h.
#pragma once

#include <adt/image.h>
#include <jni.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace adt::java {

template <std::size_t kCount>
std::array<jint, kCount> Ints(JNIEnv* env, jintArray array) {
  std::array<jint, kCount> numbers{};
  env->GetIntArrayRegion(array, 0, static_cast<jsize>(kCount), numbers.data());
  return numbers;
}

// A size or stride; none is negative, and one that is becomes too large.
inline std::size_t Size(jint number) { return static_cast<std::size_t>(number); }

inline void Refuse(JNIEnv* env, const std::string& problem) {
  const jclass cls = env->FindClass("java/lang/IllegalArgumentException");
  if (cls != nullptr) env->ThrowNew(cls, problem.c_str());
}

// What all pictures need: read before a picture's memory is held, when Java may not be called.
class ImageInput {
 public:
  ImageInput(JNIEnv* env, jintArray format, jfloatArray normalisation, jintArray placement,
             jobject scratch, jobject array)
      : scratch_(static_cast<float*>(env->GetDirectBufferAddress(scratch))),
        scratch_bytes_(env->GetDirectBufferCapacity(scratch)),
        array_(env->GetDirectBufferAddress(array)),
        array_bytes_(env->GetDirectBufferCapacity(array)) {
    const auto numbers = Ints<5>(env, format);
    format_.layout = static_cast<adt::ImageLayout>(numbers[0]);
    format_.color = static_cast<adt::ImageColor>(numbers[1]);
    format_.height = Size(numbers[2]);
    format_.width = Size(numbers[3]);
    type_ = numbers[4];
    std::array<jfloat, 7> levels{};
    env->GetFloatArrayRegion(normalisation, 0, static_cast<jsize>(levels.size()), levels.data());
    format_.scale = levels[0];
    format_.mean = {levels[1], levels[2], levels[3]};
    format_.std = {levels[4], levels[5], levels[6]};
    const auto place = Ints<2>(env, placement);
    placement_.fit = static_cast<adt::Fit>(place[0]);
    placement_.rotation = place[1];
  }

  void set_crop(const adt::ImagePart& crop) { placement_.crop = crop; }

  // Fills the input, or says in *problem* why it cannot.
  template <typename Image>
  jint Fill(const Image& image, std::string* problem) const {
    try {
      const adt::ImageFill fill(format_, image, placement_);
      if (scratch_bytes_ < static_cast<jlong>(fill.scratch() * sizeof(float))) {
        return static_cast<jint>(fill.scratch());
      }
      switch (type_) {
        case 0:
          Write<float>(fill);
          break;
        case 1:
          Write<adt::Float16>(fill);
          break;
        default:
          Write<std::uint8_t>(fill);
          break;
      }
    } catch (const adt::Error& error) {
      *problem = error.what() + std::string(": ") + error.remedy();
    }
    return 0;
  }

 private:
  template <typename T>
  void Write(const adt::ImageFill& fill) const {
    if (array_bytes_ != static_cast<jlong>(fill.elements() * sizeof(T))) {
      throw adt::Error(adt::ErrorKind::kInput, "an array of another size than the picture's input",
                       "Give the input memory of its size.");
    }
    fill.Write(scratch_, static_cast<T*>(array_));
  }

  adt::ImageFormat format_;
  adt::ImagePlacement placement_;
  jint type_ = 0;
  float* scratch_;
  jlong scratch_bytes_;
  void* array_;
  jlong array_bytes_;
};

}  // namespace adt::java
