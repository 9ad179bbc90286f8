// Pictures as inputs: the bytes of decoded pixels become the elements that a model was trained on.
//
//   adt::Tensor<float, 1, 3, 224, 224> input;
//   adt::FillImage(Detector::Inputs::kImageFormat, {pixels, 224, 224}, input);
//
// Decoding and resizing are the caller's.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "adt/runner.h"

namespace adt {
inline namespace abi1 {

/// The half-precision number next to *value*, to even in the middle; infinity from 65520 on.
inline Float16 ToFloat16(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  std::uint32_t rest = bits & 0x7fffffffU;
  if (rest > 0x7f800000U) {
    rest = 0x7e00U;  // not a number
  } else if (rest >= 0x477ff000U) {
    rest = 0x7c00U;
  } else if (rest >= 0x38800000U) {
    rest = (rest - 0x38000000U + 0xfffU + ((rest >> 13) & 1U)) >> 13;
  } else {
    const float shifted = std::fabs(value) + 0.5F;  // whose last bit is the smallest half number
    std::memcpy(&rest, &shifted, sizeof(rest));
    rest -= 0x3f000000U;
  }
  return {static_cast<std::uint16_t>(sign | rest)};
}

/// The same number as a float.
inline float ToFloat(Float16 value) {
  const std::uint32_t sign = (value.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1fU;
  const std::uint32_t fraction = value.bits & 0x3ffU;
  std::uint32_t bits = 0;
  if (exponent == 0) {
    const float small = std::ldexp(static_cast<float>(fraction), -24);
    std::memcpy(&bits, &small, sizeof(bits));
  } else {
    bits = (exponent == 31 ? 0x7f800000U : (exponent + 112U) << 23) | (fraction << 13);
  }
  bits |= sign;
  float result = 0;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

/// Where an input has its channels.
enum class ImageLayout { kNchw, kNhwc };
/// Which channels an input has, in order.
enum class ImageColor { kRgb, kBgr, kGray };

/// How a picture becomes an input: element = (byte * scale - mean) / std, by channel of the input.
struct ImageFormat {
  ImageLayout layout = ImageLayout::kNchw;
  ImageColor color = ImageColor::kRgb;
  std::size_t height = 0;
  std::size_t width = 0;
  float scale = 1;
  std::array<float, 3> mean{0, 0, 0};
  std::array<float, 3> std{1, 1, 1};

  constexpr std::size_t channels() const { return color == ImageColor::kGray ? 1 : 3; }
};

/// Decoded pixels that the caller keeps: 8 bits a channel; red, green, blue and perhaps a fourth
/// channel that is not read, or one grey channel.
struct Picture {
  const std::uint8_t* pixels = nullptr;
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t channels = 3;   ///< bytes from one pixel to the next: 1, 3 or 4
  std::size_t row_bytes = 0;  ///< from one row to the next; 0: width * channels
};

/// Write *picture* to *input*, an array of float, Float16 or std::uint8_t with the format's
/// elements. Throws Error when the picture has another size or kind than the format.
template <typename Array>
void FillImage(const ImageFormat& format, const Picture& picture, Array&& input) {
  using T = std::remove_reference_t<decltype(input.data()[0])>;
  static_assert(
      std::is_same_v<T, float> || std::is_same_v<T, Float16> || std::is_same_v<T, std::uint8_t>,
      "a picture becomes float, Float16 or std::uint8_t");
  const std::size_t channels = format.channels();
  if (picture.height != format.height || picture.width != format.width ||
      (picture.channels < 3) != (channels == 1) || picture.channels == 0 ||
      input.size() != format.height * format.width * channels) {
    throw Error(ErrorKind::kInput,
                "a picture of " + std::to_string(picture.width) + " x " +
                    std::to_string(picture.height) + " pixels with " +
                    std::to_string(picture.channels) + " channels does not become " +
                    std::to_string(input.size()) + " elements: the model takes " +
                    std::to_string(format.width) + " x " + std::to_string(format.height) +
                    " with " + std::to_string(channels),
                "Resize and convert the picture first.");
  }
  const std::size_t row_bytes =
      picture.row_bytes == 0 ? picture.width * picture.channels : picture.row_bytes;
  const bool planes = format.layout == ImageLayout::kNchw;
  const std::size_t pixel_step = planes ? 1 : channels;
  const std::size_t channel_step = planes ? format.height * format.width : 1;
  for (std::size_t y = 0; y < format.height; ++y) {
    for (std::size_t c = 0; c < channels; ++c) {
      const std::size_t from = format.color == ImageColor::kBgr ? 2 - c : c;
      const std::uint8_t* byte = picture.pixels + y * row_bytes + from;
      T* element = input.data() + c * channel_step + y * format.width * pixel_step;
      for (std::size_t x = 0; x < format.width; ++x) {
        if constexpr (std::is_same_v<T, std::uint8_t>) {
          *element = *byte;
        } else {
          const float value =
              (static_cast<float>(*byte) * format.scale - format.mean[c]) / format.std[c];
          if constexpr (std::is_same_v<T, Float16>) {
            *element = ToFloat16(value);
          } else {
            *element = value;
          }
        }
        byte += picture.channels;
        element += pixel_step;
      }
    }
  }
}

}  // namespace abi1
}  // namespace adt
