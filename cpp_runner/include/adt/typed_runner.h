// Base of the classes that `adt generate cpp` writes for models: a Runner whose inputs
// and outputs are arrays with shapes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adt/runner.h"
#include "adt/tensor.h"

namespace adt {
inline namespace abi1 {

/// A Runner, and host memory for outputs that lie where a program cannot look.
class TypedRunner {
 public:
  TypedRunner(const std::string& directory, const Options& options) : runner_(directory, options) {}
  TypedRunner(const adt_package_source_t& source, const Options& options)
      : runner_(source, options) {}

  /// Another session of the package.
  TypedRunner CreateSession() const { return TypedRunner(runner_.CreateSession()); }

  Runner& runner() { return runner_; }
  const Runner& runner() const { return runner_; }

  /// Throw Error unless the package has this entry with so many inputs and outputs: it may be
  /// another one than the class was generated from.
  void RequireEntry(int entry, std::string_view name, int inputs, int outputs) const {
    const std::vector<std::string> entries = runner_.entries();
    const auto at = static_cast<std::size_t>(entry);
    if (at >= entries.size() || entries[at] != name) {
      throw Differs("has no entry " + std::string(name) + " as number " + std::to_string(entry));
    }
    RequireCount("inputs", adt_runner_input_count(runner_.handle(), entry), inputs);
    RequireCount("outputs", adt_runner_output_count(runner_.handle(), entry), outputs);
  }
  /// Compares one input or output; an extent is -1 where it is symbolic.
  void RequireInput(int entry, int input, std::string_view name, std::string_view dtype,
                    const std::vector<std::int64_t>& shape) const {
    RequireTensor("input", adt_runner_input_info, {entry, input}, name, dtype, shape);
  }
  void RequireOutput(int entry, int output, std::string_view name, std::string_view dtype,
                     const std::vector<std::int64_t>& shape) const {
    RequireTensor("output", adt_runner_output_info, {entry, output}, name, dtype, shape);
  }

  /// Copy the array to the input.
  template <typename T, std::size_t... Extents>
  void Set(int entry, int input, TensorView<const T, Extents...> array) {
    RequireData(entry, input, array);
    runner_.SetInput(input, array.data(), array.size(), {}, entry);
  }
  template <typename T, std::size_t Rank>
  void Set(int entry, int input, const DynamicTensorView<const T, Rank>& array) {
    RequireData(entry, input, array);
    runner_.SetInput(input, array.data(), array.size(), Extents(array), entry);
  }

  /// Let the input be the array itself, from the next run on (CPU only).
  template <typename T, std::size_t... Extents>
  void Bind(int entry, int input, TensorView<const T, Extents...> array) {
    RequireData(entry, input, array);
    BindArray(entry, input, array);
  }
  template <typename T, std::size_t Rank>
  void Bind(int entry, int input, const DynamicTensorView<const T, Rank>& array) {
    RequireData(entry, input, array);
    BindArray(entry, input, array);
  }

  /// Run with the inputs as they are. The outputs of the entry's last run are gone.
  void Run(int entry) {
    for (auto& [place, output] : outputs_) {
      if (place.first == entry) output = SharedTensor();
    }
    runner_.Run(entry);
  }

  /// The output of the entry's last run: where it lies on a CPU, else a copy that is kept here.
  template <typename View>
  View Output(int entry, int output) {
    using T = typename View::value_type;
    const Span<T> array = Elements<T>(entry, output);
    if constexpr (std::is_constructible_v<View, const T*, std::size_t>) {
      return View(array.data, array.size);
    } else {
      const std::vector<std::int64_t> extents = runner_.OutputShape(output, entry);
      std::array<std::int64_t, View::kRank> shape{};
      internal::RequireSize(extents.size(), shape.size());
      std::copy(extents.begin(), extents.end(), shape.begin());
      return View(array.data, shape);
    }
  }

 private:
  explicit TypedRunner(Runner runner) : runner_(std::move(runner)) {}

  template <typename View>
  static std::vector<std::int64_t> Extents(const View& array) {
    const auto& shape = array.shape();  // of static extents a temporary, which lives as long
    return {shape.begin(), shape.end()};
  }

  template <typename View>
  void BindArray(int entry, int input, const View& array) {
    if (!on_cpu_) {
      throw Error(ErrorKind::kUsage, "inputs on " + runner_.device() + " cannot be the program's",
                  "Copy them: set the inputs instead of binding them.");
    }
    runner_.SetInput(input, SharedTensor::FromMemory(array.data(), array.size(), Extents(array)),
                     entry);
  }

  template <typename T>
  Span<T> Elements(int entry, int output) {
    if (on_cpu_) {
      SharedTensor& tensor = outputs_[{entry, output}];
      tensor = runner_.TakeOutput(output, entry);
      return tensor.View<T>();
    }
    const std::int64_t bytes = adt_runner_output_size(runner_.handle(), entry, output);
    if (bytes < 0) Check(adt_last_status());
    const std::size_t count = static_cast<std::size_t>(bytes) / sizeof(T);
    std::vector<std::byte>& memory = copies_[{entry, output}];
    memory.resize(static_cast<std::size_t>(bytes));
    T* elements = reinterpret_cast<T*>(memory.data());
    runner_.GetOutput(output, elements, count, entry);
    return {elements, count};
  }

  Error Differs(const std::string& how) const {
    return {ErrorKind::kMismatch,
            "the package " + runner_.package() +
                " is not the one that this class was generated from: it " + how,
            "Load that package, or generate the class again: adt generate."};
  }

  void RequireCount(const std::string& kind, std::int32_t found, std::int32_t wanted) const {
    if (found == wanted) return;
    throw Differs("has " + std::to_string(found) + " " + kind + ", not " + std::to_string(wanted));
  }

  template <typename Ask>
  void RequireTensor(const std::string& kind, Ask ask, std::pair<int, int> at,
                     std::string_view name, std::string_view dtype,
                     const std::vector<std::int64_t>& shape) const {
    const adt_tensor_info_t info = Info(ask, at.first, at.second);
    const std::vector<std::int64_t> found(info.shape, info.shape + info.rank);
    if (info.name == name && info.dtype == dtype && found == shape) return;
    throw Differs("has " + Text(info.name, info.dtype, found) + " as an " + kind + ", not " +
                  Text(name, dtype, shape));
  }

  template <typename View>
  void RequireData(int entry, int input, const View& array) const {
    if (array.data() != nullptr) return;
    const std::string name = Info(adt_runner_input_info, entry, input).name;
    throw Error(ErrorKind::kInput, "no array was given for the input " + name,
                "Set every member of the inputs.");
  }

  template <typename Ask>
  adt_tensor_info_t Info(Ask ask, int entry, int index) const {
    adt_tensor_info_t info{};
    info.struct_size = static_cast<std::uint32_t>(sizeof(info));
    Check(ask(runner_.handle(), entry, index, &info));
    return info;
  }

  static std::string Text(std::string_view name, std::string_view dtype,
                          const std::vector<std::int64_t>& shape) {
    std::string extents;
    for (const std::int64_t extent : shape) {
      extents += (extents.empty() ? "" : ", ") + (extent < 0 ? "?" : std::to_string(extent));
    }
    return std::string(name) + " " + std::string(dtype) + "[" + extents + "]";
  }

  Runner runner_;
  bool on_cpu_ = runner_.device() == "cpu";
  std::map<std::pair<int, int>, SharedTensor> outputs_;  // by entry and output: that are looked at
  std::map<std::pair<int, int>, std::vector<std::byte>> copies_;
};

}  // namespace abi1
}  // namespace adt
