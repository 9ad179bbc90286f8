// Planes of bytes in another size: the triangle filter, which takes the average of all pixels that
// an element covers when it shrinks (as Pillow's BILINEAR, or "antialias" elsewhere), and
// interpolates between two when it enlarges. What adt/image.h makes pictures into inputs with.
//
// Vertical first, on rows of bytes, in float: each loop is over neighbours in memory and has no
// carried value, so that compilers use vectors for it (-O3; clang's -O2).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace adt {
inline namespace abi1 {

/// One channel of a picture, in memory that the caller keeps.
struct Plane {
  const std::uint8_t* data = nullptr;  ///< the first pixel of the first row
  std::size_t bytes = 0;               ///< that may be read from there on
  std::size_t row_stride = 0;          ///< bytes from one row to the next
  std::size_t pixel_stride = 1;        ///< bytes from one pixel to the next
};

namespace filter {

/// Floats that are read behind the end of a row, where the weights are 0.
constexpr std::size_t kLanes = 4;

/// One axis of a plane: which pixels each element of the result comes from.
struct Axis {
  double begin = 0;          ///< where the part that is taken begins, in pixels
  double length = 1;         ///< of that part
  std::size_t lower = 0;     ///< the first pixel that may be looked at
  std::size_t upper = 1;     ///< behind the last
  std::size_t elements = 1;  ///< of the result

  double scale() const { return length / static_cast<double>(elements); }
  double support() const { return std::max(scale(), 1.0); }
  /// Weights of each element, a multiple of kLanes.
  std::size_t taps() const {
    const auto most = static_cast<std::size_t>(std::ceil(support())) * 2 + 1;
    return (std::min(most, upper - lower) + kLanes - 1) / kLanes * kLanes;
  }
  std::size_t floats() const { return elements * (taps() + 2); }
};

/// The weights of an axis, in memory of Axis::floats().
class Windows {
 public:
  Windows(const Axis& axis, float* memory)
      : taps_(axis.taps()),
        first_(memory),
        count_(memory + axis.elements),
        weights_(memory + 2 * axis.elements) {
    const double support = axis.support();
    const auto lower = static_cast<double>(axis.lower);
    const auto upper = static_cast<double>(axis.upper);
    for (std::size_t i = 0; i < axis.elements; ++i) {
      const double center = axis.begin + (static_cast<double>(i) + 0.5) * axis.scale();
      const double first = std::clamp(std::floor(center - support + 0.5), lower, upper - 1);
      const double end = std::clamp(std::floor(center + support + 0.5), first + 1, upper);
      const auto weight = [&](double pixel) {
        return std::max(0.0, 1 - std::fabs(pixel + 0.5 - center) / support);
      };
      double sum = 0;  // more than 0: a pixel is half a pixel away, or less
      for (double pixel = first; pixel < end; ++pixel) sum += weight(pixel);
      float* weights = weights_ + i * taps_;
      std::fill(weights, weights + taps_, 0.0F);
      for (double pixel = first; pixel < end; ++pixel) {
        *weights++ = static_cast<float>(weight(pixel) / sum);
      }
      first_[i] = static_cast<float>(first - lower);
      count_[i] = static_cast<float>(end - first);
    }
  }

  std::size_t taps() const { return taps_; }
  /// The first pixel of element *i*, from Axis::lower on.
  std::size_t first(std::size_t i) const { return static_cast<std::size_t>(first_[i]); }
  /// Weights of element *i* before those that only fill it up.
  std::size_t count(std::size_t i) const { return static_cast<std::size_t>(count_[i]); }
  const float* weights(std::size_t i) const { return weights_ + i * taps_; }

 private:
  std::size_t taps_;
  float* first_;  // numbers that a float has exactly, so that all memory is floats
  float* count_;
  float* weights_;
};

/// The weighted sum of kRows rows in *sum*, or added to it. *step*: a constant or the stride.
template <int kRows, bool kAdd, typename Step>
void SumRows(const std::uint8_t* row, std::size_t stride, const float* weights, std::size_t width,
             Step step, float* __restrict sum) {
  for (std::size_t x = 0; x < width; ++x) {
    float value = kAdd ? sum[x] : 0.0F;
    for (int k = 0; k < kRows; ++k) {
      value +=
          weights[k] * static_cast<float>(row[static_cast<std::size_t>(k) * stride + x * step]);
    }
    sum[x] = value;
  }
}

/// Filters any number of rows, at least one.
template <typename Step>
void SumRows(const std::uint8_t* row, std::size_t stride, const float* weights, std::size_t rows,
             std::size_t width, Step step, float* sum) {
  constexpr int kMost = 4;
  switch (rows % kMost) {
    case 1:
      SumRows<1, false>(row, stride, weights, width, step, sum);
      break;
    case 2:
      SumRows<2, false>(row, stride, weights, width, step, sum);
      break;
    case 3:
      SumRows<3, false>(row, stride, weights, width, step, sum);
      break;
    default:
      SumRows<4, false>(row, stride, weights, width, step, sum);
      break;
  }
  for (std::size_t k = rows % kMost == 0 ? kMost : rows % kMost; k < rows; k += kMost) {
    SumRows<kMost, true>(row + k * stride, stride, weights + k, width, step, sum);
  }
}

/// A plane as rows of floats, one after the other.
class Rows {
 public:
  static std::size_t Floats(const Axis& horizontal, const Axis& vertical) {
    return horizontal.floats() + vertical.floats() + Width(horizontal);
  }

  /// *memory* has Floats() elements.
  Rows(const Plane& plane, const Axis& horizontal, const Axis& vertical, float* memory)
      : plane_(plane),
        origin_(plane.data + vertical.lower * plane.row_stride +
                horizontal.lower * plane.pixel_stride),
        width_(horizontal.upper - horizontal.lower),
        elements_(horizontal.elements),
        horizontal_(horizontal, memory),
        vertical_(vertical, memory + horizontal.floats()),
        sum_(memory + horizontal.floats() + vertical.floats()) {
    std::fill(sum_ + width_, sum_ + Width(horizontal), 0.0F);
  }

  /// Write row *y* of the result.
  void Read(std::size_t y, float* row) const {
    const std::uint8_t* first = origin_ + vertical_.first(y) * plane_.row_stride;
    switch (plane_.pixel_stride) {
      case 1:
        Sum(first, y, std::integral_constant<std::size_t, 1>());
        break;
      case 2:
        Sum(first, y, std::integral_constant<std::size_t, 2>());
        break;
      case 4:
        Sum(first, y, std::integral_constant<std::size_t, 4>());
        break;
      default:
        Sum(first, y, plane_.pixel_stride);
        break;
    }
    const std::size_t taps = horizontal_.taps();
    for (std::size_t x = 0; x < elements_; ++x) {
      const float* weights = horizontal_.weights(x);
      const float* pixels = sum_ + horizontal_.first(x);
      float lanes[kLanes] = {};
      for (std::size_t k = 0; k < taps; k += kLanes) {
        for (std::size_t i = 0; i < kLanes; ++i) lanes[i] += weights[k + i] * pixels[k + i];
      }
      row[x] = (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
    }
  }

 private:
  static std::size_t Width(const Axis& horizontal) {
    return horizontal.upper - horizontal.lower + horizontal.taps();
  }

  template <typename Step>
  void Sum(const std::uint8_t* first, std::size_t y, Step step) const {
    SumRows(first, plane_.row_stride, vertical_.weights(y), vertical_.count(y), width_, step, sum_);
  }

  Plane plane_;
  const std::uint8_t* origin_;
  std::size_t width_;
  std::size_t elements_;
  Windows horizontal_;
  Windows vertical_;
  float* sum_;
};

}  // namespace filter
}  // namespace abi1
}  // namespace adt
