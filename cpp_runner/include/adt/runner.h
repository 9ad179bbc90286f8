// Run a ModelPackage from C++17. All of this is inline over the C interface, so that it fits the
// program's own compiler and C++ library.
//
//   adt::Runner runner("/data/local/tmp/model");
//   runner.SetInput("image", pixels);                            // std::vector<float>
//   runner.Run();
//   std::vector<float> scores = runner.Output<float>("scores");
//
// adt_runner.h says what each function does, what it costs, and what may be done from several
// threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "adt/adt_runner.h"

namespace adt {
inline namespace abi1 {

/// Description of the error.
enum class ErrorKind {
  kUsage = ADT_ERROR_USAGE,                ///< the caller asked for something that does not exist
  kPackage = ADT_ERROR_PACKAGE,            ///< the package is damaged, or a file of it is missing
  kInput = ADT_ERROR_INPUT,                ///< input or output data does not fit the entry
  kRun = ADT_ERROR_RUN,                    ///< the model was loaded and failed
  kMismatch = ADT_ERROR_MISMATCH,          ///< the package is for another runner, machine or device
  kNoDevice = ADT_ERROR_NO_DEVICE,         ///< this machine has no such device
  kDeviceLost = ADT_ERROR_DEVICE_LOST,     ///< the device does nothing more
  kOutOfMemory = ADT_ERROR_OUT_OF_MEMORY,  ///< this machine's memory, or the device's
  kCancelled = ADT_ERROR_CANCELLED,        ///< Ticket::Cancel() ended the run
};

/// The only exception of a Runner, besides std::bad_alloc.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& what, std::string remedy)
      : std::runtime_error(what), kind_(kind), remedy_(std::move(remedy)) {}

  ErrorKind kind() const noexcept { return kind_; }
  /// Remedy of the error.
  const std::string& remedy() const noexcept { return remedy_; }

 private:
  ErrorKind kind_;
  std::string remedy_;
};

/// One IEEE half-precision number, as its bits.
struct Float16 {
  std::uint16_t bits = 0;
};

/// Throw the thread's last error unless *status* is ADT_OK.
inline void Check(adt_status_t status) {
  if (status == ADT_OK) return;
  throw abi1::Error(static_cast<ErrorKind>(status), adt_last_error(), adt_last_remedy());
}

/// The element type *T*; 0 for a type that no array has.
template <typename T>
constexpr adt_dtype_t DTypeOf() {
  using Value = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<Value, Float16>) return ADT_FLOAT16;
  if constexpr (std::is_same_v<Value, float>) return ADT_FLOAT32;
  if constexpr (std::is_same_v<Value, double>) return ADT_FLOAT64;
  if constexpr (std::is_same_v<Value, bool>) return ADT_BOOL;
  if constexpr (std::is_integral_v<Value> && !std::is_same_v<Value, bool>) {
    constexpr bool kSigned = std::is_signed_v<Value>;
    switch (sizeof(Value)) {
      case 1:
        return kSigned ? ADT_INT8 : ADT_UINT8;
      case 2:
        return kSigned ? ADT_INT16 : ADT_UINT16;
      case 4:
        return kSigned ? ADT_INT32 : ADT_UINT32;
      case 8:
        return kSigned ? ADT_INT64 : ADT_UINT64;
    }
  }
  return 0;
}

/// mod.json's name of the element type *T*; empty for a type that no array has.
template <typename T>
constexpr std::string_view DTypeName() {
  constexpr std::string_view kNames[] = {"",       "float16", "float32", "float64", "int8",
                                         "int16",  "int32",   "int64",   "uint8",   "uint16",
                                         "uint32", "uint64",  "bool"};
  return kNames[DTypeOf<T>()];
}

/// An input or output as mod.json describes it, or a tensor.
struct TensorInfo {
  TensorInfo() = default;
  explicit TensorInfo(const adt_tensor_info_t& raw)
      : name(raw.name),
        dtype(raw.dtype),
        shape(raw.shape, raw.shape + raw.rank),
        element_size(raw.element_size),
        size(raw.size) {
    for (std::int32_t i = 0; i < raw.rank; ++i) {
      symbols.emplace_back(raw.symbols[i] == nullptr ? "" : raw.symbols[i]);
    }
  }

  std::string name;
  std::string dtype;
  /// -1 where the extent is symbolic.
  std::vector<std::int64_t> shape;
  /// Names of the symbolic extents; empty where the extent is a number.
  std::vector<std::string> symbols;
  /// Bytes of one element.
  std::int64_t element_size = 0;
  /// Bytes of the array; -1 when an extent is symbolic.
  std::int64_t size = 0;
};

/// An array that somebody else keeps.
template <typename T>
struct Span {
  const T* data = nullptr;
  std::size_t size = 0;  ///< elements

  const T* begin() const { return data; }
  const T* end() const { return data + size; }
  const T& operator[](std::size_t i) const { return data[i]; }
};

namespace internal {

template <typename T>
void RequireType(const adt_tensor_info_t& info) {
  static_assert(!DTypeName<T>().empty(), "no array has elements of this type");
  if (DTypeOf<T>() == info.type) return;
  throw abi1::Error(ErrorKind::kInput,
                    std::string(*info.name == '\0' ? "the tensor" : info.name) +
                        " has elements of type " + info.dtype + ", not " +
                        std::string(DTypeName<T>()),
                    "Convert the array.");
}

}  // namespace internal

/// A reference to an array in the memory of a device, or of the program; copies are references to
/// the same array, which outlives the Runner that it comes from. From any thread.
class SharedTensor {
 public:
  SharedTensor() = default;
  /// The reference is this object's from now on.
  explicit SharedTensor(adt_tensor_t* handle) : handle_(handle, adt_tensor_free) {}

  /// The program's array of *count* elements. *release*, which must not throw, is called when
  /// nobody uses it any more.
  template <typename T>
  static SharedTensor FromMemory(T* data, std::size_t count, const std::vector<std::int64_t>& shape,
                                 std::function<void()> release = {}) {
    static_assert(!DTypeName<T>().empty(), "no array has elements of this type");
    using Release = std::function<void()>;
    const auto call = [](void* given) noexcept {
      const std::unique_ptr<Release> owned(static_cast<Release*>(given));
      (*owned)();
    };
    auto owned = release ? std::make_unique<Release>(std::move(release)) : nullptr;
    adt_tensor_t* handle = nullptr;
    Check(adt_tensor_from_memory(const_cast<std::remove_cv_t<T>*>(data),
                                 static_cast<std::int64_t>(count * sizeof(T)), DTypeOf<T>(),
                                 shape.data(), static_cast<std::int32_t>(shape.size()),
                                 owned ? +call : nullptr, owned.get(), &handle));
    static_cast<void>(owned.release());
    return SharedTensor(handle);
  }

  /// nullptr when there is none. It stays this object's.
  adt_tensor_t* handle() const { return handle_.get(); }
  TensorInfo info() const { return TensorInfo(Raw()); }
  /// "cpu", "opencl" or "cuda".
  std::string device() const {
    const char* name = adt_tensor_device(handle());
    if (name == nullptr) Check(adt_last_status());
    return name;
  }
  /// The first element, on a CPU.
  template <typename T>
  T* Data() const {
    internal::RequireType<T>(Raw());
    if (device() != "cpu") {
      throw abi1::Error(ErrorKind::kUsage, "the tensor does not lie in the program's memory",
                        "Copy it.");
    }
    return static_cast<T*>(adt_tensor_data(handle()));
  }
  /// All elements, on a CPU.
  template <typename T>
  Span<T> View() const {
    return {Data<T>(), static_cast<std::size_t>(Raw().size) / sizeof(T)};
  }
  /// Copy the array to *count* elements at *data*, after the runs that were started.
  template <typename T>
  void CopyTo(T* data, std::size_t count) const {
    internal::RequireType<T>(Raw());
    Check(adt_tensor_copy(handle(), data, static_cast<std::int64_t>(count * sizeof(T))));
  }

 private:
  adt_tensor_info_t Raw() const {
    adt_tensor_info_t raw{};
    raw.struct_size = static_cast<std::uint32_t>(sizeof(raw));
    Check(adt_tensor_describe(handle(), &raw));
    return raw;
  }

  std::shared_ptr<adt_tensor_t> handle_;
};

/// Options of loading a package; an empty one has its default.
struct Options {
  std::string device;
  std::string program_cache;
  std::string scratch;
  /// Threads that build OpenCL programs; -1: each is built when its kernel is first called.
  std::int32_t build_threads = 0;
  /// Called by the loading thread while OpenCL programs are built. Must not throw.
  std::function<void(std::int32_t done, std::int32_t total)> build_progress;
  /// Runs have a thread and workers of their own, beside those of other runners.
  bool own_executor = false;
};

/// Threads that work on kernels, and their cores: adt_set_threads.
inline void SetThreads(std::int32_t count, const std::string& affinity = "big") {
  Check(adt_set_threads(count, affinity.c_str()));
}
/// Give back memory that is kept for later runs: adt_trim.
inline void Trim() { adt_trim(); }

/// An input, an output or an entry: its number, or its name.
class Id {
 public:
  Id(int number) : number_(number) {}                   // NOLINT(google-explicit-constructor)
  Id(const char* name) : name_(name) {}                 // NOLINT(google-explicit-constructor)
  Id(const std::string& name) : name_(name.c_str()) {}  // NOLINT(google-explicit-constructor)

  /// nullptr when it is a number.
  const char* name() const { return name_; }
  int number() const { return number_; }

 private:
  const char* name_ = nullptr;
  int number_ = 0;
};

/// A run that was asked for. It can be moved, not copied; a run whose ticket is gone goes on.
class Ticket {
 public:
  explicit Ticket(adt_ticket_t* handle) : handle_(handle) {}

  /// Return when the run is over; throw what Runner::Run() would have thrown.
  void Wait() const { Check(adt_ticket_wait(handle_.get())); }
  /// End it before its next kernel, unless it is over by then.
  void Cancel() const { adt_ticket_cancel(handle_.get()); }

 private:
  struct Free {
    void operator()(adt_ticket_t* handle) const { adt_ticket_free(handle); }
  };
  std::unique_ptr<adt_ticket_t, Free> handle_;
};

/// A loaded package on one device. It can be moved, not copied.
class Runner {
 public:
  explicit Runner(const std::string& directory, const Options& options = {}) {
    const adt_runner_options_t raw = Raw(options);
    adt_runner_t* handle = nullptr;
    Check(adt_runner_create(directory.c_str(), &raw, &handle));
    handle_.reset(handle);
  }
  explicit Runner(const adt_package_source_t& source, const Options& options = {}) {
    const adt_runner_options_t raw = Raw(options);
    adt_runner_t* handle = nullptr;
    Check(adt_runner_create_from(&source, &raw, &handle));
    handle_.reset(handle);
  }

  /// Another session of the package: weights and code are shared; inputs, outputs and state are its
  /// own.
  Runner CreateSession() const {
    adt_runner_t* handle = nullptr;
    Check(adt_runner_create_session(this->handle(), &handle));
    return Runner(handle);
  }

  /// For functions that this class does not have. It stays the Runner's.
  adt_runner_t* handle() const { return handle_.get(); }

  std::string package() const { return Text(adt_runner_package_name(handle())); }
  std::string manifest() const { return Text(adt_runner_manifest(handle())); }
  std::string device() const { return Text(adt_runner_device(handle())); }
  std::string device_name() const { return Text(adt_runner_device_name(handle())); }
  std::string device_driver() const { return Text(adt_runner_device_driver(handle())); }
  std::string program_cache() const { return Text(adt_runner_program_cache(handle())); }
  /// Bytes that memory must be aligned to in order to be used in place.
  std::int64_t alignment() const { return Number(adt_runner_alignment(handle())); }

  /// Names of the entries, in order; most packages have one, "main".
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    const std::int32_t count = Number(adt_runner_entry_count(handle()));
    for (std::int32_t i = 0; i < count; ++i)
      names.push_back(Text(adt_runner_entry_name(handle(), i)));
    return names;
  }
  std::vector<TensorInfo> inputs(Id entry = 0) const {
    return Infos(Entry(entry), adt_runner_input_count, adt_runner_input_info);
  }
  std::vector<TensorInfo> outputs(Id entry = 0) const {
    return Infos(Entry(entry), adt_runner_output_count, adt_runner_output_info);
  }

  /// Copy *count* elements. An input with symbolic extents needs its *shape*.
  template <typename T>
  void SetInput(Id input, const T* data, std::size_t count,
                const std::vector<std::int64_t>& shape = {}, Id entry = 0) {
    const Place at = TypedInput<T>(input, entry);
    Check(adt_runner_set_input_shaped(handle(), at.entry, at.index, data, Bytes<T>(count),
                                      shape.empty() ? nullptr : shape.data(),
                                      static_cast<std::int32_t>(shape.size())));
  }
  template <typename T>
  void SetInput(Id input, const std::vector<T>& values, const std::vector<std::int64_t>& shape = {},
                Id entry = 0) {
    static_assert(!std::is_same_v<T, bool>, "std::vector<bool> is no array; use data and count");
    SetInput(input, values.data(), values.size(), shape, entry);
  }
  /// Use the tensor where it lies, without a copy.
  void SetInput(Id input, const SharedTensor& tensor, Id entry = 0) {
    const Place at = InputPlace(input, entry);
    Check(adt_runner_set_input_tensor(handle(), at.entry, at.index, tensor.handle()));
  }
  /// Memory of the device, set as the input: write there before a run.
  SharedTensor InputTensor(Id input, const std::vector<std::int64_t>& shape = {}, Id entry = 0) {
    const Place at = InputPlace(input, entry);
    adt_tensor_t* tensor = nullptr;
    Check(adt_runner_input_tensor(handle(), at.entry, at.index,
                                  shape.empty() ? nullptr : shape.data(),
                                  static_cast<std::int32_t>(shape.size()), &tensor));
    return SharedTensor(tensor);
  }

  void Run(Id entry = 0) { Check(adt_runner_run(handle(), Entry(entry))); }
  void Start(Id entry = 0) { Check(adt_runner_start(handle(), Entry(entry))); }
  void Wait() { Check(adt_runner_wait(handle())); }
  /// Ask for a run and return. The executor calls *done*, which must not throw, when it is over.
  Ticket RunAsync(Id entry = 0, std::function<void(adt_status_t)> done = {}) {
    using Done = std::function<void(adt_status_t)>;
    const auto call = [](void* data, adt_status_t status) noexcept {
      const std::unique_ptr<Done> owned(static_cast<Done*>(data));
      (*owned)(status);
    };
    auto owned = done ? std::make_unique<Done>(std::move(done)) : nullptr;
    adt_ticket_t* ticket = nullptr;
    Check(adt_runner_run_async(handle(), Entry(entry), owned ? +call : nullptr, owned.get(),
                               &ticket));
    static_cast<void>(owned.release());  // it may be gone by now
    return Ticket(ticket);
  }

  std::vector<std::int64_t> OutputShape(Id output, Id entry = 0) const {
    const Place at = OutputPlace(output, entry);
    std::vector<std::int64_t> shape(8);
    while (true) {
      const std::int32_t rank = Number(adt_runner_output_shape(
          handle(), at.entry, at.index, shape.data(), static_cast<std::int32_t>(shape.size())));
      const bool complete = static_cast<std::size_t>(rank) <= shape.size();
      shape.resize(static_cast<std::size_t>(rank));
      if (complete) return shape;
    }
  }
  /// A copy of the array.
  template <typename T>
  std::vector<T> Output(Id output, Id entry = 0) const {
    static_assert(!std::is_same_v<T, bool>, "std::vector<bool> is no array; use GetOutput");
    const Place at = TypedOutput<T>(output, entry);
    const std::int64_t size = Number(adt_runner_output_size(handle(), at.entry, at.index));
    std::vector<T> values(static_cast<std::size_t>(size) / sizeof(T));
    Check(adt_runner_get_output(handle(), at.entry, at.index, values.data(), size));
    return values;
  }
  /// Copy the array to *count* elements at *data*.
  template <typename T>
  void GetOutput(Id output, T* data, std::size_t count, Id entry = 0) const {
    const Place at = TypedOutput<T>(output, entry);
    Check(adt_runner_get_output(handle(), at.entry, at.index, data, Bytes<T>(count)));
  }
  /// The array itself: the next run uses other memory, while anybody has it.
  SharedTensor TakeOutput(Id output, Id entry = 0) {
    const Place at = OutputPlace(output, entry);
    adt_tensor_t* tensor = nullptr;
    Check(adt_runner_take_output(handle(), at.entry, at.index, &tensor));
    return SharedTensor(tensor);
  }

 private:
  explicit Runner(adt_runner_t* handle) : handle_(handle) {}

  struct Free {
    void operator()(adt_runner_t* handle) const { adt_runner_free(handle); }
  };
  struct Place {
    std::int32_t entry;
    std::int32_t index;
  };

  static adt_runner_options_t Raw(const Options& options) {
    adt_runner_options_t raw = ADT_RUNNER_OPTIONS_INIT;
    if (!options.device.empty()) raw.device = options.device.c_str();
    if (!options.program_cache.empty()) raw.program_cache = options.program_cache.c_str();
    if (!options.scratch.empty()) raw.scratch = options.scratch.c_str();
    raw.build_threads = options.build_threads;
    raw.own_executor = options.own_executor ? 1 : 0;
    if (options.build_progress) {
      raw.build_progress = [](void* data, std::int32_t done, std::int32_t total) noexcept {
        static_cast<const Options*>(data)->build_progress(done, total);
      };
      raw.build_progress_data = const_cast<Options*>(&options);
    }
    return raw;
  }
  // Functions that return a value tell an error by NULL or -1.
  static std::string Text(const char* text) {
    if (text == nullptr) Check(adt_last_status());
    return text;
  }
  template <typename T>
  static T Number(T value) {
    if (value < 0) Check(adt_last_status());
    return value;
  }
  template <typename T>
  static std::int64_t Bytes(std::size_t count) {
    return static_cast<std::int64_t>(count * sizeof(T));
  }
  std::int32_t Entry(Id entry) const {
    if (entry.name() == nullptr) return entry.number();
    return Number(adt_runner_find_entry(handle(), entry.name()));
  }
  Place InputPlace(Id input, Id entry) const {
    const std::int32_t at = Entry(entry);
    if (input.name() == nullptr) return {at, input.number()};
    return {at, Number(adt_runner_find_input(handle(), at, input.name()))};
  }
  Place OutputPlace(Id output, Id entry) const {
    const std::int32_t at = Entry(entry);
    if (output.name() == nullptr) return {at, output.number()};
    return {at, Number(adt_runner_find_output(handle(), at, output.name()))};
  }
  template <typename T>
  Place TypedInput(Id input, Id entry) const {
    const Place at = InputPlace(input, entry);
    internal::RequireType<T>(Info(adt_runner_input_info, at));
    return at;
  }
  template <typename T>
  Place TypedOutput(Id output, Id entry) const {
    const Place at = OutputPlace(output, entry);
    internal::RequireType<T>(Info(adt_runner_output_info, at));
    return at;
  }
  template <typename Ask>
  adt_tensor_info_t Info(Ask ask, Place at) const {
    adt_tensor_info_t info{};
    info.struct_size = static_cast<std::uint32_t>(sizeof(info));
    Check(ask(handle(), at.entry, at.index, &info));
    return info;
  }
  template <typename Count, typename Ask>
  std::vector<TensorInfo> Infos(std::int32_t entry, Count count, Ask ask) const {
    std::vector<TensorInfo> infos;
    const std::int32_t total = Number(count(handle(), entry));
    for (std::int32_t i = 0; i < total; ++i) {
      infos.emplace_back(Info(ask, {entry, i}));
    }
    return infos;
  }

  std::unique_ptr<adt_runner_t, Free> handle_;
};

}  // namespace abi1
}  // namespace adt
