// Pictures as inputs: the bytes of a camera's frame or of decoded pixels become the elements that a
// model was trained on: turned upright, cut or padded, resized, converted, normalised, laid out.
//
//   adt::Tensor<float, 1, 3, 224, 224> input;
//   adt::ImageFiller filler(Detector::Inputs::ImageFormat());    // keeps memory for the next
//   frames filler.Fill(adt::YuvImage{640, 480, {y, u, v}}, input, {adt::Fit::kCrop, 90});
//
// Compile it with optimisation: the loops are made for a compiler's vectors (-O3; clang's -O2).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "adt/image_filter.h"
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

/// Converts the number to a float.
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

/// Position of an input's channels.
enum class ImageLayout { kNchw, kNhwc };
/// Channels of an input, in order.
enum class ImageColor { kRgb, kBgr, kGray };

/// Normalization of a level, 0 to 255, to an element of an input: (level * scale - mean) / std, by
/// channel of the input; std::uint8_t takes the level itself, rounded.
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
  bool reversed = false;      ///< the first three channels are blue, green, red
};

/// Conversion of luma and chroma to colours: ITU-R's matrix; luma from 0 to 255, or from 16 to 235
/// (video).
enum class YuvColor { kBt601, kBt709, kBt601Video, kBt709Video };

/// A camera's frame, as Android's YUV_420_888 describes it: luma, then blue and red chroma, each of
/// which has one sample for two by two pixels (of an odd size, one more for what is left). I420,
/// NV12, NV21 and padded rows differ in strides alone.
struct YuvImage {
  std::size_t width = 0;
  std::size_t height = 0;
  std::array<Plane, 3> planes{};
  YuvColor color = YuvColor::kBt601;  ///< as Android's cameras give it
};

/// Treatment of a picture whose proportions are not the input's.
enum class Fit {
  kStretch,    ///< they change
  kCrop,       ///< its middle is taken
  kLetterbox,  ///< it is shown whole, in the middle, with a border
};

/// A part of a picture in pixels; with no width and height the whole.
struct ImagePart {
  std::size_t left = 0;
  std::size_t top = 0;
  std::size_t width = 0;
  std::size_t height = 0;
};

/// Placement of a picture in an input's area.
struct ImagePlacement {
  Fit fit = Fit::kStretch;
  int rotation = 0;           ///< clockwise by so many degrees: 0, 90, 180 or 270
  ImagePart crop{};           ///< of the picture before it is turned
  std::uint8_t border = 114;  ///< level of the border's channels; 114 is what YOLO is trained with
};

/// One picture on its way into an input: what ImageFiller does, with the memory given by the
/// caller.
class ImageFill {
 public:
  /// Throws Error when there is no such picture, or *placement* is none of it.
  ImageFill(const ImageFormat& format, const Picture& picture, const ImagePlacement& placement)
      : format_(format), placement_(placement) {
    if (picture.channels != 1 && picture.channels != 3 && picture.channels != 4) {
      Refuse("a picture of " + std::to_string(picture.channels) + " channels",
             "Give pixels of 1, 3 or 4 bytes.");
    }
    Place(picture.width, picture.height);
    const std::size_t row_bytes =
        picture.row_bytes == 0 ? picture.width * picture.channels : picture.row_bytes;
    const bool gray = picture.channels == 1;
    planes_ = gray ? 1 : 3;
    for (std::size_t c = 0; c < planes_; ++c) {
      const std::size_t from = picture.reversed ? planes_ - 1 - c : c;
      sources_[c] = {picture.pixels == nullptr ? nullptr : picture.pixels + from,
                     (picture.height - 1) * row_bytes + (picture.width - 1) * picture.channels + 1,
                     row_bytes, picture.channels};
      Require(sources_[c], picture.width, picture.height);
      Cut(c, 1);
    }
    for (std::size_t c = 0; c < 3; ++c) matrix_[c][gray ? 0 : c] = 1;
    if (!gray && format.color == ImageColor::kGray) matrix_[0] = {0.299F, 0.587F, 0.114F, 0};
    OrderColors();
  }

  ImageFill(const ImageFormat& format, const YuvImage& image, const ImagePlacement& placement)
      : format_(format), placement_(placement) {
    Place(image.width, image.height);
    planes_ = format.color == ImageColor::kGray ? 1 : 3;
    for (std::size_t c = 0; c < planes_; ++c) {
      sources_[c] = image.planes[c];
      const std::size_t pixels = c == 0 ? 1 : 2;
      Require(sources_[c], Share(image.width, pixels), Share(image.height, pixels));
      Cut(c, pixels);
    }
    SetMatrix(image.color);
    OrderColors();
  }

  /// Elements of the memory that Write() works in.
  std::size_t scratch() const {
    std::size_t floats = (planes_ + 1) * horizontal_[0].elements;
    for (std::size_t c = 0; c < planes_; ++c) {
      floats += filter::Rows::Floats(horizontal_[c], vertical_[c]);
    }
    return floats;
  }

  /// Elements that Write() writes.
  std::size_t elements() const { return format_.height * format_.width * format_.channels(); }

  /// Write the input's elements: float, Float16 or std::uint8_t.
  template <typename T>
  void Write(float* scratch, T* elements) const {
    static_assert(
        std::is_same_v<T, float> || std::is_same_v<T, Float16> || std::is_same_v<T, std::uint8_t>,
        "a picture becomes float, Float16 or std::uint8_t");
    const std::size_t columns = horizontal_[0].elements;
    const std::size_t rows = vertical_[0].elements;
    const std::size_t channels = format_.channels();
    if (columns * rows != format_.width * format_.height) WriteBorder(elements);
    float* channel_rows = scratch;
    float* levels = channel_rows + planes_ * columns;
    float* memory = levels + columns;
    const auto read = [&](std::size_t c) {
      float* own = memory;
      memory += filter::Rows::Floats(horizontal_[c], vertical_[c]);
      return filter::Rows(sources_[c], horizontal_[c], vertical_[c], own);
    };
    const filter::Rows first = read(0);
    const filter::Rows second = planes_ == 3 ? read(1) : first;
    const filter::Rows third = planes_ == 3 ? read(2) : first;
    const std::array<const filter::Rows*, 3> sources{&first, &second, &third};
    const Steps steps = Turned();
    for (std::size_t y = 0; y < rows; ++y) {
      for (std::size_t c = 0; c < planes_; ++c) {
        sources[c]->Read(y, channel_rows + c * columns);
      }
      T* row = elements + (steps.origin + static_cast<std::ptrdiff_t>(y) * steps.row);
      for (std::size_t c = 0; c < channels; ++c) {
        Mix(matrix_[c], channel_rows, columns, levels);
        WriteLevels(c, levels, columns, row + ChannelStep(c), steps.column);
      }
    }
  }

 private:
  static constexpr std::size_t kLargest = 1U << 15;

  /// From one element to another, in elements.
  struct Steps {
    std::ptrdiff_t origin;  ///< of the first pixel's first channel
    std::ptrdiff_t column;
    std::ptrdiff_t row;
  };

  [[noreturn]] static void Refuse(const std::string& what, const std::string& remedy) {
    throw Error(ErrorKind::kInput, what, remedy);
  }

  static std::string Size(std::size_t width, std::size_t height) {
    return std::to_string(width) + " x " + std::to_string(height);
  }

  static std::size_t Share(std::size_t extent, std::size_t pixels) {
    return (extent + pixels - 1) / pixels;
  }

  static void RequireSize(const char* what, std::size_t width, std::size_t height) {
    if (std::min(width, height) == 0 || std::max(width, height) > kLargest) {
      Refuse(std::string(what) + " of " + Size(width, height) + " pixels",
             "Sides are from 1 to " + std::to_string(kLargest) + " pixels long.");
    }
  }

  /// Checks that rows and pixels lie where they may be read; sizes are those of RequireSize.
  static void Require(const Plane& plane, std::size_t width, std::size_t height) {
    constexpr std::uint64_t kFar = std::uint64_t{1} << 40;
    const std::uint64_t pixel = plane.pixel_stride;
    const std::uint64_t row = plane.row_stride;
    if (plane.data == nullptr || pixel == 0 || pixel > kFar || row > kFar ||
        (height > 1 && row < (width - 1) * pixel + 1)) {
      Refuse("a plane of " + Size(width, height) + " pixels with a row stride of " +
                 std::to_string(row) + " and a pixel stride of " + std::to_string(pixel),
             "Give each plane's data and strides in bytes, as the camera gives them.");
    }
    const std::uint64_t needed = (height - 1) * row + (width - 1) * pixel + 1;
    if (plane.bytes < needed) {
      Refuse("a plane of " + std::to_string(plane.bytes) + " bytes, where " + Size(width, height) +
                 " pixels with a row stride of " + std::to_string(row) + " and a pixel stride of " +
                 std::to_string(pixel) + " have " + std::to_string(needed),
             "Check width, height and strides, or give less of an odd width or height.");
    }
  }

  /// Find which part of a picture goes where.
  void Place(std::size_t width, std::size_t height) {
    RequireSize("a picture", width, height);
    RequireSize("an input", format_.width, format_.height);
    ImagePart& crop = placement_.crop;
    if (crop.width == 0 && crop.height == 0) crop = {0, 0, width, height};
    if (crop.width == 0 || crop.height == 0 || crop.left >= width || crop.top >= height ||
        crop.width > width - crop.left || crop.height > height - crop.top) {
      Refuse("the part of " + Size(crop.width, crop.height) + " pixels from " +
                 std::to_string(crop.left) + ", " + std::to_string(crop.top) +
                 " on is not in a picture of " + Size(width, height),
             "Give a part of the picture before it is turned.");
    }
    const int rotation = placement_.rotation;
    if (rotation != 0 && rotation != 90 && rotation != 180 && rotation != 270) {
      Refuse("a rotation by " + std::to_string(rotation) + " degrees", "Give 0, 90, 180 or 270.");
    }
    // From here on as the picture lies in memory: the input turned back.
    sideways_ = rotation % 180 != 0;
    const std::size_t input_width = sideways_ ? format_.height : format_.width;
    const std::size_t input_height = sideways_ ? format_.width : format_.height;
    const bool wider =
        crop.width * std::uint64_t{input_height} > crop.height * std::uint64_t{input_width};
    across_ = {crop.left, crop.width, static_cast<double>(crop.left),
               static_cast<double>(crop.width), input_width};
    down_ = {crop.top, crop.height, static_cast<double>(crop.top), static_cast<double>(crop.height),
             input_height};
    if (placement_.fit == Fit::kCrop) {
      wider ? across_.TakeMiddle(down_) : down_.TakeMiddle(across_);
    } else if (placement_.fit == Fit::kLetterbox) {
      wider ? down_.Shorten(across_) : across_.Shorten(down_);
    }
  }

  /// One direction of a picture: the crop, what of it is shown, and on how many elements.
  struct Side {
    std::size_t crop_begin = 0;
    std::size_t crop_length = 0;
    double begin = 0;
    double length = 0;
    std::size_t elements = 0;

    void TakeMiddle(const Side& other) {
      length = other.length * static_cast<double>(elements) / static_cast<double>(other.elements);
      begin += (static_cast<double>(crop_length) - length) / 2;
    }
    void Shorten(const Side& other) {
      const double exact = length * static_cast<double>(other.elements) / other.length;
      elements = std::clamp(static_cast<std::size_t>(exact + 0.5), std::size_t{1}, elements);
    }
    filter::Axis Axis(std::size_t pixels) const {
      const auto each = static_cast<double>(pixels);
      return {begin / each, length / each, crop_begin / pixels,
              Share(crop_begin + crop_length, pixels), elements};
    }
  };

  /// Part of plane *c* that is read; a sample covers so many pixels in each direction.
  void Cut(std::size_t c, std::size_t pixels) {
    horizontal_[c] = across_.Axis(pixels);
    vertical_[c] = down_.Axis(pixels);
  }

  void SetMatrix(YuvColor color) {
    const bool video = color == YuvColor::kBt601Video || color == YuvColor::kBt709Video;
    const bool bt601 = color == YuvColor::kBt601 || color == YuvColor::kBt601Video;
    const float red = bt601 ? 0.299F : 0.2126F;
    const float blue = bt601 ? 0.114F : 0.0722F;
    const float green = 1 - red - blue;
    const float luma = video ? 255.0F / 219.0F : 1.0F;
    const float chroma = video ? 255.0F / 224.0F : 1.0F;
    const float u_blue = 2 * (1 - blue) * chroma;
    const float v_red = 2 * (1 - red) * chroma;
    const float dark = video ? -16 * luma : 0;
    matrix_[0] = {luma, 0, v_red, dark - 128 * v_red};
    matrix_[2] = {luma, u_blue, 0, dark - 128 * u_blue};
    const float u_green = -u_blue * blue / green;
    const float v_green = -v_red * red / green;
    matrix_[1] = {luma, u_green, v_green, dark - 128 * (u_green + v_green)};
    if (format_.color == ImageColor::kGray) matrix_[0] = {luma, 0, 0, dark};
  }

  void OrderColors() {
    if (format_.color == ImageColor::kBgr) std::swap(matrix_[0], matrix_[2]);
  }

  std::ptrdiff_t ChannelStep(std::size_t c) const {
    const bool planar = format_.layout == ImageLayout::kNchw;
    return static_cast<std::ptrdiff_t>(planar ? c * format_.height * format_.width : c);
  }

  /// Destination of a row in memory when the picture is turned.
  Steps Turned() const {
    const auto pixel =
        static_cast<std::ptrdiff_t>(format_.layout == ImageLayout::kNchw ? 1 : format_.channels());
    const auto line = pixel * static_cast<std::ptrdiff_t>(format_.width);
    const std::size_t columns = horizontal_[0].elements;
    const std::size_t rows = vertical_[0].elements;
    const std::size_t width = sideways_ ? rows : columns;
    const std::size_t height = sideways_ ? columns : rows;
    const auto left = static_cast<std::ptrdiff_t>((format_.width - width) / 2) * pixel;
    const auto top = static_cast<std::ptrdiff_t>((format_.height - height) / 2) * line;
    const auto right = left + static_cast<std::ptrdiff_t>(width - 1) * pixel;
    const auto bottom = top + static_cast<std::ptrdiff_t>(height - 1) * line;
    switch (placement_.rotation) {
      case 90:
        return {top + right, line, -pixel};
      case 180:
        return {bottom + right, -pixel, -line};
      case 270:
        return {bottom + left, -line, pixel};
      default:
        return {top + left, pixel, line};
    }
  }

  /// One channel's levels, from 0 to 255, of all planes' rows, which lie one behind the other.
  void Mix(const std::array<float, 4>& weights, const float* rows, std::size_t columns,
           float* __restrict levels) const {
    const float* first = rows;
    const float* second = planes_ == 3 ? rows + columns : rows;
    const float* third = planes_ == 3 ? rows + 2 * columns : rows;
    for (std::size_t x = 0; x < columns; ++x) {
      const float level =
          weights[0] * first[x] + weights[1] * second[x] + weights[2] * third[x] + weights[3];
      levels[x] = std::min(std::max(level, 0.0F), 255.0F);
    }
  }

  template <typename T>
  T Element(std::size_t c, float level) const {
    if constexpr (std::is_same_v<T, std::uint8_t>) {
      return static_cast<std::uint8_t>(static_cast<int>(level + 0.5F));
    } else {
      const float value = (level * format_.scale - format_.mean[c]) / format_.std[c];
      if constexpr (std::is_same_v<T, Float16>) {
        return ToFloat16(value);
      } else {
        return value;
      }
    }
  }

  template <typename T>
  void WriteLevels(std::size_t c, const float* levels, std::size_t columns, T* __restrict element,
                   std::ptrdiff_t step) const {
    if (step == 1) {
      for (std::size_t x = 0; x < columns; ++x) element[x] = Element<T>(c, levels[x]);
    } else {
      for (std::size_t x = 0; x < columns; ++x) {
        element[static_cast<std::ptrdiff_t>(x) * step] = Element<T>(c, levels[x]);
      }
    }
  }

  template <typename T>
  void WriteBorder(T* elements) const {
    const std::size_t channels = format_.channels();
    const std::size_t pixels = format_.height * format_.width;
    const bool planar = format_.layout == ImageLayout::kNchw;
    for (std::size_t c = 0; c < channels; ++c) {
      const T level = Element<T>(c, static_cast<float>(placement_.border));
      T* element = elements + ChannelStep(c);
      for (std::size_t i = 0; i < pixels; ++i) element[planar ? i : i * channels] = level;
    }
  }

  ImageFormat format_;
  ImagePlacement placement_;
  bool sideways_ = false;
  Side across_{};
  Side down_{};
  std::size_t planes_ = 0;
  std::array<Plane, 3> sources_{};
  std::array<filter::Axis, 3> horizontal_{};
  std::array<filter::Axis, 3> vertical_{};
  /// By channel of the input: the planes' weights, and what is added.
  std::array<std::array<float, 4>, 3> matrix_{};
};

/// Fills an input from picture after picture. It keeps the memory that it works in, so that only
/// the first of a size allocates. Not for several threads at a time.
class ImageFiller {
 public:
  explicit ImageFiller(const ImageFormat& format) : format_(format) {}

  /// Write a Picture or YuvImage to *input*, an array of float, Float16 or std::uint8_t with the
  /// format's elements. Throws Error when that cannot be.
  template <typename Image, typename Array>
  void Fill(const Image& image, Array&& input, const ImagePlacement& placement = {}) {
    const ImageFill fill(format_, image, placement);
    if (input.size() != fill.elements()) {
      throw Error(ErrorKind::kInput,
                  "an input of " + std::to_string(input.size()) +
                      " elements, where its format has " + std::to_string(fill.elements()),
                  "Give the array of the input whose format it is.");
    }
    scratch_.resize(std::max(scratch_.size(), fill.scratch()));
    fill.Write(scratch_.data(), input.data());
  }

 private:
  ImageFormat format_;
  std::vector<float> scratch_;
};

/// Fills one input, stretched where the picture has another size.
template <typename Array>
void FillImage(const ImageFormat& format, const Picture& picture, Array&& input) {
  ImageFiller(format).Fill(picture, input);
}

}  // namespace abi1
}  // namespace adt
