// Dense arrays in C order with their shapes: what generated classes take and give. A Tensor has
// memory of its own, a TensorView shows an array that somebody else keeps; the Dynamic ones are for
// extents that are known at run time only.
//
//   adt::Tensor<float, 1, 3, 224, 224> image;  // zeros
//   image(0, 2, 10, 20) = 1.0F;
//   adt::TensorView<const float, 1, 3, 224, 224> input = image;
//   std::vector<float> pixels(3 * 224 * 224);
//   input = pixels;  // throws Error unless the sizes agree
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

#include "adt/runner.h"

namespace adt {
inline namespace abi1 {

template <typename T, std::size_t... Extents>
class TensorView;
template <typename T, std::size_t Rank>
class DynamicTensorView;
template <typename T, std::size_t... Extents>
class Tensor;
template <typename T, std::size_t Rank>
class DynamicTensor;

namespace internal {

/// Has a shape, which decides what it converts to.
template <typename>
struct HasShape : std::false_type {};
template <typename T, std::size_t... Extents>
struct HasShape<TensorView<T, Extents...>> : std::true_type {};
template <typename T, std::size_t Rank>
struct HasShape<DynamicTensorView<T, Rank>> : std::true_type {};
template <typename T, std::size_t... Extents>
struct HasShape<Tensor<T, Extents...>> : std::true_type {};
template <typename T, std::size_t Rank>
struct HasShape<DynamicTensor<T, Rank>> : std::true_type {};

template <typename Container>
using ElementOf = std::remove_pointer_t<decltype(std::data(std::declval<Container&>()))>;
/// A *Container* has its elements in one piece, of type *T* or the same without const.
template <typename Container, typename T, typename = void>
struct Holds : std::false_type {};
template <typename Container, typename T>
struct Holds<Container, T, std::void_t<ElementOf<Container>>>
    : std::bool_constant<!HasShape<std::decay_t<Container>>::value &&
                         std::is_convertible_v<ElementOf<Container> (*)[], T (*)[]>> {};

/// Number of elements of a container; 0 when that is known at run time.
template <typename>
inline constexpr std::size_t kFixedSize = 0;
template <typename T, std::size_t N>
inline constexpr std::size_t kFixedSize<T[N]> = N;
template <typename T, std::size_t N>
inline constexpr std::size_t kFixedSize<std::array<T, N>> = N;

inline void RequireSize(std::size_t found, std::size_t wanted) {
  if (found == wanted) return;
  throw Error(ErrorKind::kInput,
              "the array has " + std::to_string(found) + " elements, not " + std::to_string(wanted),
              "Give one with the elements of its shape, all of them.");
}

template <std::size_t Rank>
constexpr std::size_t Count(const std::array<std::int64_t, Rank>& shape) {
  std::size_t count = 1;
  for (std::size_t i = 0; i < Rank; ++i) count *= static_cast<std::size_t>(shape[i]);
  return count;
}

template <std::size_t Rank, typename... Index>
constexpr std::size_t Offset(const std::array<std::int64_t, Rank>& shape, Index... index) {
  static_assert(sizeof...(Index) == Rank, "one index for each dimension");
  std::size_t offset = 0;
  std::size_t axis = 0;
  ((offset = offset * static_cast<std::size_t>(shape[axis++]) + static_cast<std::size_t>(index)),
   ...);
  return offset;
}

}  // namespace internal

/// An array whose extents are all known.
template <typename T, std::size_t... Extents>
class TensorView {
 public:
  using value_type = std::remove_cv_t<T>;

  static constexpr std::size_t kRank = sizeof...(Extents);
  static constexpr std::array<std::int64_t, kRank> kShape{static_cast<std::int64_t>(Extents)...};
  /// Elements.
  static constexpr std::size_t kSize = (std::size_t{1} * ... * Extents);

  /// No array.
  constexpr TensorView() = default;
  /// The kSize elements from *data* on.
  constexpr explicit TensorView(T* data) : data_(data) {}
  /// Throws Error unless *size* is kSize.
  TensorView(T* data, std::size_t size) : data_(data) { internal::RequireSize(size, kSize); }
  /// A std::vector, std::array, C array or another container in one piece, which must stay where it
  /// is. Throws Error unless its size is kSize; where that is part of its type, the compiler says.
  template <typename Container, typename = std::enable_if_t<internal::Holds<Container, T>::value>>
  TensorView(Container&& elements)  // NOLINT(google-explicit-constructor)
      : data_(std::data(elements)) {
    constexpr std::size_t kFixed =
        internal::kFixedSize<std::remove_cv_t<std::remove_reference_t<Container>>>;
    static_assert(kFixed == 0 || kFixed == kSize, "the array has another number of elements");
    internal::RequireSize(std::size(elements), kSize);
  }
  /// Views the array, to be read only.
  template <typename U, typename = std::enable_if_t<std::is_same_v<const U, T>>>
  constexpr TensorView(const TensorView<U, Extents...>& other)  // NOLINT
      : data_(other.data()) {}

  static constexpr std::array<std::int64_t, kRank> shape() { return kShape; }
  static constexpr std::size_t size() { return kSize; }
  constexpr T* data() const { return data_; }
  constexpr T* begin() const { return data_; }
  constexpr T* end() const { return data_ + kSize; }
  /// Element *i* in C order.
  constexpr T& operator[](std::size_t i) const { return data_[i]; }
  /// The element at one index for each dimension.
  template <typename... Index>
  constexpr T& operator()(Index... index) const {
    return data_[internal::Offset(kShape, index...)];
  }

 private:
  T* data_ = nullptr;
};

/// An array with extents that only the run decides.
template <typename T, std::size_t Rank>
class DynamicTensorView {
 public:
  using value_type = std::remove_cv_t<T>;

  static constexpr std::size_t kRank = Rank;

  /// No array.
  constexpr DynamicTensorView() = default;
  /// As many elements from *data* on as *shape* has.
  constexpr DynamicTensorView(T* data, const std::array<std::int64_t, Rank>& shape)
      : data_(data), shape_(shape) {}
  /// A container in one piece, which must stay where it is. Throws Error unless it has as many
  /// elements as *shape*.
  template <typename Container, typename = std::enable_if_t<internal::Holds<Container, T>::value>>
  DynamicTensorView(Container&& elements, const std::array<std::int64_t, Rank>& shape)
      : data_(std::data(elements)), shape_(shape) {
    internal::RequireSize(std::size(elements), size());
  }
  /// Views the array, to be read only.
  template <typename U, typename = std::enable_if_t<std::is_same_v<const U, T>>>
  constexpr DynamicTensorView(const DynamicTensorView<U, Rank>& other)  // NOLINT
      : data_(other.data()), shape_(other.shape()) {}

  constexpr const std::array<std::int64_t, Rank>& shape() const { return shape_; }
  constexpr std::size_t size() const { return internal::Count(shape_); }
  constexpr T* data() const { return data_; }
  constexpr T* begin() const { return data_; }
  constexpr T* end() const { return data_ + size(); }
  /// Element *i* in C order.
  constexpr T& operator[](std::size_t i) const { return data_[i]; }
  /// The element at one index for each dimension.
  template <typename... Index>
  constexpr T& operator()(Index... index) const {
    return data_[internal::Offset(shape_, index...)];
  }

 private:
  T* data_ = nullptr;
  std::array<std::int64_t, Rank> shape_{};
};

/// Bytes that the memory of a Tensor is aligned to: enough to bind it as an input.
inline constexpr std::size_t kTensorAlignment = 64;

namespace internal {

struct AlignedDelete {
  void operator()(void* memory) const {
    ::operator delete(memory, std::align_val_t{kTensorAlignment});
  }
};
/// Elements of arrays, which need no destructor.
template <typename T>
using Memory = std::unique_ptr<T[], AlignedDelete>;

/// *count* zeros.
template <typename T>
Memory<T> Allocate(std::size_t count) {
  static_assert(std::is_trivially_destructible_v<T> && !std::is_const_v<T>);
  void* memory = ::operator new(count * sizeof(T), std::align_val_t{kTensorAlignment});
  T* elements = static_cast<T*>(memory);
  std::uninitialized_value_construct_n(elements, count);
  return Memory<T>(elements);
}

}  // namespace internal

/// An array with memory of its own, at first zeros. It can be moved, not copied.
template <typename T, std::size_t... Extents>
class Tensor {
 public:
  using View = TensorView<T, Extents...>;
  using ConstView = TensorView<const T, Extents...>;

  Tensor() : memory_(internal::Allocate<T>(View::kSize)) {}

  View view() { return View(memory_.get()); }
  ConstView view() const { return ConstView(memory_.get()); }
  operator View() { return view(); }             // NOLINT(google-explicit-constructor)
  operator ConstView() const { return view(); }  // NOLINT(google-explicit-constructor)

  static constexpr auto shape() { return View::shape(); }
  static constexpr std::size_t size() { return View::kSize; }
  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }
  T* begin() { return view().begin(); }
  T* end() { return view().end(); }
  const T* begin() const { return view().begin(); }
  const T* end() const { return view().end(); }
  T& operator[](std::size_t i) { return memory_[i]; }
  const T& operator[](std::size_t i) const { return memory_[i]; }
  template <typename... Index>
  T& operator()(Index... index) {
    return view()(index...);
  }
  template <typename... Index>
  const T& operator()(Index... index) const {
    return view()(index...);
  }

 private:
  internal::Memory<T> memory_;
};

/// Tensor with extents that are known at run time.
template <typename T, std::size_t Rank>
class DynamicTensor {
 public:
  using View = DynamicTensorView<T, Rank>;
  using ConstView = DynamicTensorView<const T, Rank>;

  explicit DynamicTensor(const std::array<std::int64_t, Rank>& shape)
      : shape_(shape), memory_(internal::Allocate<T>(internal::Count(shape))) {}

  View view() { return {memory_.get(), shape_}; }
  ConstView view() const { return {memory_.get(), shape_}; }
  operator View() { return view(); }             // NOLINT(google-explicit-constructor)
  operator ConstView() const { return view(); }  // NOLINT(google-explicit-constructor)

  const std::array<std::int64_t, Rank>& shape() const { return shape_; }
  std::size_t size() const { return internal::Count(shape_); }
  T* data() { return memory_.get(); }
  const T* data() const { return memory_.get(); }
  T* begin() { return view().begin(); }
  T* end() { return view().end(); }
  const T* begin() const { return view().begin(); }
  const T* end() const { return view().end(); }
  T& operator[](std::size_t i) { return memory_[i]; }
  const T& operator[](std::size_t i) const { return memory_[i]; }
  template <typename... Index>
  T& operator()(Index... index) {
    return view()(index...);
  }
  template <typename... Index>
  const T& operator()(Index... index) const {
    return view()(index...);
  }

 private:
  std::array<std::int64_t, Rank> shape_;
  internal::Memory<T> memory_;
};

}  // namespace abi1
}  // namespace adt
