// The C interface: arguments checked, a Session called, exceptions turned into a status and a text.

#include "adt/adt_runner.h"

#include <tvm/ffi/dtype.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device_tensor.h"
#include "devices.h"
#include "dtype.h"
#include "error.h"
#include "executor.h"
#include "external_memory.h"
#include "memory_pools.h"
#include "parallel.h"
#include "runner_info.h"
#include "session.h"

namespace {

using adt::Error;
using adt::ErrorKind;

static_assert(ADT_ERROR_USAGE == static_cast<int>(ErrorKind::kUsage));
static_assert(ADT_ERROR_PACKAGE == static_cast<int>(ErrorKind::kPackage));
static_assert(ADT_ERROR_INPUT == static_cast<int>(ErrorKind::kInput));
static_assert(ADT_ERROR_RUN == static_cast<int>(ErrorKind::kRun));
static_assert(ADT_ERROR_MISMATCH == static_cast<int>(ErrorKind::kMismatch));
static_assert(ADT_ERROR_NO_DEVICE == static_cast<int>(ErrorKind::kNoDevice));
static_assert(ADT_ERROR_DEVICE_LOST == static_cast<int>(ErrorKind::kDeviceLost));
static_assert(ADT_ERROR_OUT_OF_MEMORY == static_cast<int>(ErrorKind::kOutOfMemory));
static_assert(ADT_ERROR_CANCELLED == static_cast<int>(ErrorKind::kCancelled));

// What adt_tensor_info points to.
struct TensorText {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::string> names;
  std::vector<const char*> symbols;
  std::int64_t element_size = 0;
  std::int64_t size = -1;
  adt_dtype_t type = 0;

  explicit TensorText(const adt::TensorSpec& spec) : name(spec.name), dtype(spec.dtype) {
    const adt::DType& element = *adt::FindDType(dtype);  // a Session takes no other
    element_size = static_cast<std::int64_t>(element.size);
    type = static_cast<adt_dtype_t>(&element - adt::kDTypes.data() + ADT_FLOAT16);
    bool symbolic = false;
    for (const adt::Dim& dim : spec.shape) {
      shape.push_back(dim.symbolic() ? -1 : dim.extent);
      names.push_back(dim.symbol);
      symbolic = symbolic || dim.symbolic();
    }
    for (const std::string& symbol : names) {
      symbols.push_back(symbol.empty() ? nullptr : symbol.c_str());
    }
    if (!symbolic) size = static_cast<std::int64_t>(adt::ByteSize(element, shape));
  }
};

struct EntryText {
  std::string name;
  std::vector<std::unique_ptr<TensorText>> inputs;  // pointers: they must not move
  std::vector<std::unique_ptr<TensorText>> outputs;
  std::atomic<bool> alone{false};  // no threads shared a loop of its last run
};

struct LastError {
  adt_status_t status = ADT_OK;
  std::string text;
  std::string remedy;
};

LastError& Last() {
  static thread_local LastError last;
  return last;
}

adt_status_t Remember(adt_status_t status, std::string_view text,
                      std::string_view remedy) noexcept {
  Last().status = status;
  try {
    Last().text = text;
    Last().remedy = remedy;
  } catch (...) {  // no memory for the text: better none than a wrong one
    Last().text.clear();
    Last().remedy.clear();
  }
  return status;
}

// *work*'s status: nothing that it throws goes on.
template <typename Work>
adt_status_t Guard(Work&& work) noexcept {
  try {
    work();
    return ADT_OK;
  } catch (const Error& error) {
    return Remember(static_cast<adt_status_t>(error.kind()), error.what(), error.remedy());
  } catch (const std::bad_alloc&) {
    return Remember(ADT_ERROR_OUT_OF_MEMORY, "out of memory",
                    "Free memory on this machine, or use a smaller model.");
  } catch (const std::exception& error) {
    return Remember(ADT_ERROR_RUN, error.what(),
                    "This is a bug in libadt_runner; report the message.");
  } catch (...) {
    return Remember(ADT_ERROR_RUN, "something was thrown that is no error",
                    "This is a bug in libadt_runner or a driver; report it with the model.");
  }
}

}  // namespace

struct adt_runner {
  adt_runner(std::shared_ptr<adt::Model> model, std::shared_ptr<adt::Executor> runs_on)
      : executor(std::move(runs_on)), session(std::move(model)) {
    for (const adt::Entry& entry : session.package().entries) {
      EntryText& text = entries.emplace_back();
      text.name = entry.name;
      for (const auto& spec : entry.inputs) {
        text.inputs.push_back(std::make_unique<TensorText>(spec));
      }
      for (const auto& spec : entry.outputs) {
        text.outputs.push_back(std::make_unique<TensorText>(spec));
      }
    }
  }

  const std::shared_ptr<adt::Executor> executor;  // does the runs; outlives the session
  mutable std::mutex mutex;                       // for the session; the rest never changes
  adt::Session session;
  std::deque<EntryText> entries;
  std::atomic<int> pending{0};  // runs that were asked for and are not over
};

namespace {

struct AsyncRun {
  std::atomic<bool> cancelled{false};
  adt::Signal over;
  adt_status_t status = ADT_OK;  // once it is over
  LastError error;               // if that is one
};

}  // namespace

struct adt_ticket {
  std::shared_ptr<AsyncRun> run;  // the executor has it, too
};

namespace {

adt::TensorSpec SpecOf(const DLTensor& tensor) {
  adt::TensorSpec spec;
  spec.dtype = std::string(tvm::ffi::DLDataTypeToString(tensor.dtype));
  for (std::int32_t i = 0; i < tensor.ndim; ++i) spec.shape.push_back({tensor.shape[i], {}});
  return spec;
}

}  // namespace

struct adt_tensor {
  explicit adt_tensor(tvm::runtime::Tensor given)
      : tensor(std::move(given)),
        device(adt::KindName(tensor->device)),
        text(SpecOf(*tensor.operator->())) {}

  adt::PoolUser pool_user;  // the first, and so the last to go
  const tvm::runtime::Tensor tensor;
  const std::string device;
  const TensorText text;
  std::atomic<std::int32_t> references{1};
};

namespace {

// *work*'s result; *none* when it throws.
template <typename Value, typename Work>
Value GuardValue(Value none, Work&& work) noexcept {
  Value value = none;
  return Guard([&] { value = work(); }) == ADT_OK ? value : none;
}

[[noreturn]] void Misuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorKind::kUsage, what, remedy);
}

template <typename T>
T& Require(T* pointer, const char* name) {
  if (pointer == nullptr) {
    Misuse(std::string(name) + " is NULL", "Give a pointer; adt_runner.h says to what.");
  }
  return *pointer;
}

// A number of the caller's, for a Session, which knows how many there are.
std::size_t Index(std::int32_t number, const char* what) {
  if (number < 0) {
    Misuse("there is no " + std::string(what) + " " + std::to_string(number),
           "Numbers begin at 0.");
  }
  return static_cast<std::size_t>(number);
}

const EntryText& EntryAt(const adt_runner_t* runner, std::int32_t entry) {
  const adt_runner& r = Require(runner, "runner");
  const std::size_t index = Index(entry, "entry");
  r.session.RequireEntry(index);
  return r.entries[index];
}

const TensorText& TensorAt(const std::vector<std::unique_ptr<TensorText>>& tensors,
                           std::int32_t number, const char* what) {
  if (Index(number, what) >= tensors.size()) {
    Misuse("the entry has no " + std::string(what) + " " + std::to_string(number),
           "It has " + std::to_string(tensors.size()) + ", numbered from 0.");
  }
  return *tensors[static_cast<std::size_t>(number)];
}

// Bytes of an array at *data*.
std::size_t ArraySize(const void* data, std::int64_t size) {
  if (size < 0 || static_cast<std::uint64_t>(size) > std::numeric_limits<std::size_t>::max()) {
    Misuse("an array of " + std::to_string(size) + " bytes",
           "Give the size of the array in bytes.");
  }
  if (size != 0) Require(static_cast<const char*>(data), "data");
  return static_cast<std::size_t>(size);
}

adt::Extents Shape(const std::int64_t* shape, std::int32_t rank) {
  if (rank < 0)
    Misuse("a shape of " + std::to_string(rank) + " extents", "Give the number of extents.");
  if (rank != 0) Require(shape, "shape");
  return {shape, static_cast<std::size_t>(rank)};
}

// An array as its caller describes it.
struct ArrayType {
  ArrayType(adt_dtype_t type, const std::int64_t* extents, std::int32_t rank) {
    const auto index = static_cast<std::size_t>(type) - ADT_FLOAT16;  // 0 is huge, too
    if (index >= adt::kDTypes.size()) {
      Misuse("there is no element type " + std::to_string(type),
             "adt_dtype_t has those there are.");
    }
    const adt::Extents given = Shape(extents, rank);
    const adt::DType& element = adt::kDTypes[index];
    const auto bytes = adt::ByteSize(element.size, given.data, given.rank);
    shape = tvm::ffi::Shape(given.data, given.data + given.rank);
    if (!bytes) {
      throw Error(ErrorKind::kInput,
                  adt::Describe(element.name, {shape.begin(), shape.end()}) +
                      " is no array that fits into memory",
                  "Give the array's own extents.");
    }
    size = *bytes;
    dtype = tvm::ffi::StringToDLDataType(tvm::ffi::String(std::string(element.name)));
  }

  tvm::ffi::Shape shape;
  DLDataType dtype{};
  std::size_t size = 0;
};

// *make*'s tensor, as the caller's first reference.
template <typename Make>
adt_status_t MakeTensor(adt_tensor_t** out, Make&& make) {
  if (out != nullptr) *out = nullptr;
  return Guard([&] {
    Require(out, "out");
    *out = std::make_unique<adt_tensor>(make()).release();
  });
}

std::function<void()> Release(adt_tensor_release_t release, void* data) {
  if (release == nullptr) return {};
  return [=] { release(data); };
}

// Sizes of structs in ABI 1's first version, which no program is below: numbers, so that no later
// field changes them.
constexpr std::size_t SizeV1(std::size_t of64, std::size_t of32) {
  return sizeof(void*) == 8 ? of64 : of32;
}
constexpr std::size_t kOptionsSizeV1 = SizeV1(56, 28);
constexpr std::size_t kSourceSizeV1 = sizeof(adt_blob_t) == 32 ? 112 : 80;
constexpr std::size_t kInfoSizeV1 = SizeV1(56, 40);
static_assert(kOptionsSizeV1 <= sizeof(adt_runner_options_t));
static_assert(kSourceSizeV1 <= sizeof(adt_package_source_t));
static_assert(kInfoSizeV1 <= sizeof(adt_tensor_info_t));

void RequireSize(std::uint32_t size, std::size_t first, const char* name) {
  if (size >= first) return;
  Misuse(std::string(name) + ".struct_size is " + std::to_string(size),
         std::string("Set it to sizeof(") + name + "_t) before the call.");
}

// *given* as far as its caller knows the struct; fields that came later keep their defaults. What
// comes after this library's fields, of a program with a newer header, must be zero: the default.
template <typename Struct>
Struct Known(const Struct& given, Struct known, std::size_t first, const char* name) {
  RequireSize(given.struct_size, first, name);
  const auto* bytes = reinterpret_cast<const std::byte*>(&given);
  if (given.struct_size > sizeof(Struct) &&
      std::any_of(bytes + sizeof(Struct), bytes + given.struct_size,
                  [](std::byte byte) { return byte != std::byte{0}; })) {
    Misuse(std::string(name) + " has a field that this library does not know, and it is set",
           "Use the library of the header that the program was compiled with, or a newer one, or "
           "leave the field zero.");
  }
  const std::size_t size = std::min<std::size_t>(given.struct_size, sizeof(Struct));
  std::memcpy(static_cast<void*>(&known), &given, size);
  return known;
}

adt_runner_options_t KnownOptions(const adt_runner_options_t* given) {
  const adt_runner_options_t none = ADT_RUNNER_OPTIONS_INIT;
  if (given == nullptr) return none;
  return Known(*given, none, kOptionsSizeV1, "adt_runner_options");
}

adt::ModelOptions Options(const adt_runner_options_t& options) {
  adt::ModelOptions model;
  if (options.device != nullptr) model.device = options.device;
  if (options.scratch != nullptr) model.scratch = options.scratch;
  model.build.threads = options.build_threads;
  if (options.build_progress != nullptr) {
    model.build.progress = [=](std::int32_t done, std::int32_t total) {
      options.build_progress(options.build_progress_data, done, total);
    };
  }
  if (options.program_cache == nullptr) {
    model.programs = adt::DefaultProgramStore();
  } else if (std::string_view(options.program_cache) != "off") {
    model.programs = {adt::ProgramStore::Kind::kDirectory, options.program_cache};
  }
  return model;
}

adt::Blob Open(const adt_blob_t& blob, const std::string& name) {
  if (blob.data != nullptr) return adt::Blob::Borrow(blob.data, ArraySize(blob.data, blob.size));
  if (blob.fd < 0) {
    Misuse("no " + name + " was given", "Give its bytes, or an open file that has them.");
  }
  return adt::Blob::MapPart(blob.fd, blob.offset, blob.size, name);
}

adt::Source OpenSource(const adt_package_source_t* given) {
  const adt_package_source_t none = ADT_PACKAGE_SOURCE_INIT;
  const adt_package_source_t parts =
      Known(Require(given, "source"), none, kSourceSizeV1, "adt_package_source");
  adt::Source source;
  source.manifest = Open(parts.manifest, source.manifest_name);
  source.params = Open(parts.params, source.params_name);
  if (parts.library_name != nullptr) {
    adt::UseLibrary(parts.library_name, &source);
  } else {
    source.library = Open(parts.library, source.library_name());
  }
  return source;
}

template <typename MakeSource>
adt_status_t Create(MakeSource&& make_source, const adt_runner_options_t* options,
                    adt_runner_t** out) {
  if (out != nullptr) *out = nullptr;
  return Guard([&] {
    Require(out, "out");
    const adt_runner_options_t known = KnownOptions(options);
    auto executor =
        known.own_executor != 0 ? std::make_shared<adt::Executor>() : adt::Executor::Shared();
    auto model = std::make_shared<adt::Model>(make_source(), Options(known));
    *out = std::make_unique<adt_runner>(std::move(model), std::move(executor)).release();
  });
}

void Fill(const TensorText& text, adt_tensor_info_t* info) {
  adt_tensor_info_t full{};
  full.struct_size = Require(info, "info").struct_size;
  full.rank = static_cast<std::int32_t>(text.shape.size());
  full.name = text.name.c_str();
  full.dtype = text.dtype.c_str();
  full.shape = text.shape.data();
  full.symbols = text.symbols.data();
  full.element_size = text.element_size;
  full.size = text.size;
  full.type = text.type;
  RequireSize(info->struct_size, kInfoSizeV1, "adt_tensor_info");
  auto* bytes = reinterpret_cast<std::byte*>(info);
  std::memset(bytes, 0, info->struct_size);  // a newer program's fields: nothing is known of them
  std::memcpy(bytes, &full, std::min<std::size_t>(full.struct_size, sizeof(full)));
}

std::int32_t Find(const std::vector<std::unique_ptr<TensorText>>& tensors, const char* name,
                  const char* what) {
  Require(name, "name");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i]->name == name) return static_cast<std::int32_t>(i);
  }
  std::string names;
  for (const auto& tensor : tensors) names += (names.empty() ? "" : ", ") + tensor->name;
  Misuse("the entry has no " + std::string(what) + " " + name, "It has: " + names + ".");
}

// *work* on the session, alone.
template <typename Work>
adt_status_t WithSession(adt_runner_t* runner, Work&& work) {
  return Guard([&] {
    const std::lock_guard<std::mutex> lock(Require(runner, "runner").mutex);
    work(runner->session);
  });
}

// *work*, which runs the entry, on the handle's executor. A model whose kernels no threads share
// needs none of what an executor has: after its first run the caller's thread runs it, which saves
// two changes of threads.
template <typename Work>
adt_status_t RunSession(adt_runner_t* runner, std::int32_t entry, Work&& work) {
  return Guard([&] {
    adt_runner& r = Require(runner, "runner");
    const std::size_t index = Index(entry, "entry");
    r.session.RequireEntry(index);
    std::atomic<bool>& alone = r.entries[index].alone;
    const auto run = [&] {
      const std::lock_guard<std::mutex> lock(r.mutex);
      const std::uint64_t loops = adt::SharedLoops();
      work(r.session, index);
      alone = r.session.model()->IsPlain() && adt::SharedLoops() == loops;
    };
    if (alone && r.pending == 0 && !adt::Executor::HasSetThreads()) {
      const adt::Alone this_thread;
      run();
    } else {
      r.executor->Run(run);
    }
  });
}

template <typename Text>
const char* TextOf(const adt_runner_t* runner, Text&& text) {
  return GuardValue<const char*>(nullptr, [&] { return text(Require(runner, "runner")).c_str(); });
}

}  // namespace

extern "C" {

std::uint32_t adt_runner_abi_version() { return ADT_RUNNER_ABI_VERSION; }

const char* adt_runner_version() { return adt::VersionLine(); }

const char* adt_last_error() { return Last().text.c_str(); }

const char* adt_last_remedy() { return Last().remedy.c_str(); }

adt_status_t adt_last_status() { return Last().status; }

adt_status_t adt_set_threads(std::int32_t count, const char* affinity) {
  return Guard([&] { adt::Executor::SetThreads(count, affinity == nullptr ? "big" : affinity); });
}

adt_status_t adt_runner_create(const char* directory, const adt_runner_options_t* options,
                               adt_runner_t** out) {
  return Create([&] { return adt::OpenDirectory(&Require(directory, "directory")); }, options, out);
}

adt_status_t adt_runner_create_from(const adt_package_source_t* source,
                                    const adt_runner_options_t* options, adt_runner_t** out) {
  return Create([&] { return OpenSource(source); }, options, out);
}

adt_status_t adt_runner_create_session(const adt_runner_t* of, adt_runner_t** out) {
  if (out != nullptr) *out = nullptr;
  return Guard([&] {
    Require(out, "out");
    const adt_runner& first = Require(of, "of");
    auto executor = adt::Executor::Shared();
    if (first.executor != executor) executor = std::make_shared<adt::Executor>();
    *out = std::make_unique<adt_runner>(first.session.model(), std::move(executor)).release();
  });
}

void adt_runner_free(adt_runner_t* runner) {
  if (runner == nullptr) return;
  runner->executor->Run([] {});  // after what was asked for and not waited for
  delete runner;
}

void adt_trim() { adt::TrimMemory(); }

const char* adt_runner_package_name(const adt_runner_t* runner) {
  return TextOf(runner, [](const adt_runner& r) -> auto& { return r.session.package().name; });
}

const char* adt_runner_manifest(const adt_runner_t* runner) {
  return TextOf(runner, [](const adt_runner& r) -> auto& { return r.session.model()->manifest(); });
}

const char* adt_runner_device(const adt_runner_t* runner) {
  return TextOf(runner, [](const adt_runner& r) -> auto& { return r.session.model()->device(); });
}

const char* adt_runner_device_name(const adt_runner_t* runner) {
  return TextOf(runner,
                [](const adt_runner& r) -> auto& { return r.session.model()->device_name(); });
}

const char* adt_runner_device_driver(const adt_runner_t* runner) {
  return TextOf(runner,
                [](const adt_runner& r) -> auto& { return r.session.model()->device_driver(); });
}

const char* adt_runner_program_cache(const adt_runner_t* runner) {
  return GuardValue<const char*>(nullptr, [&] {
    return adt::Name(Require(runner, "runner").session.model()->programs().state)
        .data();  // a literal's
  });
}

const char* adt_runner_program_cache_warning(const adt_runner_t* runner) {
  return GuardValue<const char*>(nullptr, [&] {
    return Require(runner, "runner").session.model()->programs().warning.c_str();
  });
}

std::int32_t adt_runner_entry_count(const adt_runner_t* runner) {
  return GuardValue<std::int32_t>(
      -1, [&] { return static_cast<std::int32_t>(Require(runner, "runner").entries.size()); });
}

const char* adt_runner_entry_name(const adt_runner_t* runner, std::int32_t entry) {
  return GuardValue<const char*>(nullptr, [&] { return EntryAt(runner, entry).name.c_str(); });
}

std::int32_t adt_runner_find_entry(const adt_runner_t* runner, const char* name) {
  return GuardValue<std::int32_t>(-1, [&] {
    const adt_runner& r = Require(runner, "runner");
    return static_cast<std::int32_t>(r.session.EntryIndex(&Require(name, "name")));
  });
}

std::int32_t adt_runner_input_count(const adt_runner_t* runner, std::int32_t entry) {
  return GuardValue<std::int32_t>(
      -1, [&] { return static_cast<std::int32_t>(EntryAt(runner, entry).inputs.size()); });
}

std::int32_t adt_runner_output_count(const adt_runner_t* runner, std::int32_t entry) {
  return GuardValue<std::int32_t>(
      -1, [&] { return static_cast<std::int32_t>(EntryAt(runner, entry).outputs.size()); });
}

std::int32_t adt_runner_find_input(const adt_runner_t* runner, std::int32_t entry,
                                   const char* name) {
  return GuardValue<std::int32_t>(
      -1, [&] { return Find(EntryAt(runner, entry).inputs, name, "input"); });
}

std::int32_t adt_runner_find_output(const adt_runner_t* runner, std::int32_t entry,
                                    const char* name) {
  return GuardValue<std::int32_t>(
      -1, [&] { return Find(EntryAt(runner, entry).outputs, name, "output"); });
}

adt_status_t adt_runner_input_info(const adt_runner_t* runner, std::int32_t entry,
                                   std::int32_t input, adt_tensor_info_t* info) {
  return Guard([&] { Fill(TensorAt(EntryAt(runner, entry).inputs, input, "input"), info); });
}

adt_status_t adt_runner_output_info(const adt_runner_t* runner, std::int32_t entry,
                                    std::int32_t output, adt_tensor_info_t* info) {
  return Guard([&] { Fill(TensorAt(EntryAt(runner, entry).outputs, output, "output"), info); });
}

adt_status_t adt_runner_set_input(adt_runner_t* runner, std::int32_t entry, std::int32_t input,
                                  const void* data, std::int64_t size) {
  return adt_runner_set_input_shaped(runner, entry, input, data, size, nullptr, 0);
}

adt_status_t adt_runner_set_input_shaped(adt_runner_t* runner, std::int32_t entry,
                                         std::int32_t input, const void* data, std::int64_t size,
                                         const std::int64_t* shape, std::int32_t rank) {
  return WithSession(runner, [&](adt::Session& session) {
    session.SetInput(Index(entry, "entry"), Index(input, "input"), data, ArraySize(data, size),
                     Shape(shape, rank));
  });
}

adt_status_t adt_runner_set_input_tensor(adt_runner_t* runner, std::int32_t entry,
                                         std::int32_t input, adt_tensor_t* tensor) {
  return WithSession(runner, [&](adt::Session& session) {
    session.SetInputTensor(Index(entry, "entry"), Index(input, "input"),
                           Require(tensor, "tensor").tensor);
  });
}

adt_status_t adt_runner_input_tensor(adt_runner_t* runner, std::int32_t entry, std::int32_t input,
                                     const std::int64_t* shape, std::int32_t rank,
                                     adt_tensor_t** out) {
  return MakeTensor(out, [&] {
    const std::lock_guard<std::mutex> lock(Require(runner, "runner").mutex);
    return runner->session.InputTensor(Index(entry, "entry"), Index(input, "input"),
                                       Shape(shape, rank));
  });
}

std::int64_t adt_runner_alignment(const adt_runner_t* runner) {
  return GuardValue<std::int64_t>(
      -1, [&] { return Require(runner, "runner").session.package().alignment; });
}

adt_status_t adt_runner_run(adt_runner_t* runner, std::int32_t entry) {
  return RunSession(runner, entry, [&](adt::Session& session, std::size_t index) {
    session.Start(index);
    session.Wait();
    session.model()->SavePrograms();
  });
}

adt_status_t adt_runner_run_async(adt_runner_t* runner, std::int32_t entry, adt_run_done_t done,
                                  void* data, adt_ticket_t** ticket) {
  if (ticket != nullptr) *ticket = nullptr;
  return Guard([&] {
    const std::size_t index = Index(entry, "entry");
    Require(runner, "runner").session.RequireEntry(index);
    const auto run = std::make_shared<AsyncRun>();
    auto own = std::make_unique<adt_ticket>(adt_ticket{run});
    ++runner->pending;
    runner->executor->Post([=] {
      run->status = Guard([&] {
        const std::lock_guard<std::mutex> lock(runner->mutex);
        runner->session.Start(index, &run->cancelled);
        runner->session.Wait();
        runner->session.model()->SavePrograms();
      });
      if (run->status != ADT_OK) Guard([&] { run->error = Last(); });
      --runner->pending;
      if (done != nullptr) done(data, run->status);
      run->over.Set();
    });
    if (ticket != nullptr) *ticket = own.release();
  });
}

adt_status_t adt_ticket_wait(adt_ticket_t* ticket) {
  AsyncRun* run = nullptr;
  const adt_status_t status = Guard([&] { run = Require(ticket, "ticket").run.get(); });
  if (status != ADT_OK) return status;
  run->over.Wait(0);
  return run->status == ADT_OK ? ADT_OK : Remember(run->status, run->error.text, run->error.remedy);
}

void adt_ticket_cancel(adt_ticket_t* ticket) {
  if (ticket != nullptr) ticket->run->cancelled = true;
}

void adt_ticket_free(adt_ticket_t* ticket) { delete ticket; }

adt_status_t adt_runner_start(adt_runner_t* runner, std::int32_t entry) {
  return RunSession(runner, entry,
                    [](adt::Session& session, std::size_t index) { session.Start(index); });
}

adt_status_t adt_runner_wait(adt_runner_t* runner) {
  return WithSession(runner, [&](adt::Session& session) {
    session.Wait();
    session.model()->SavePrograms();
  });
}

std::int32_t adt_runner_output_shape(adt_runner_t* runner, std::int32_t entry, std::int32_t output,
                                     std::int64_t* shape, std::int32_t capacity) {
  std::int32_t rank = -1;
  const adt_status_t status = WithSession(runner, [&](const adt::Session& session) {
    const auto& tensor = session.Output(Index(entry, "entry"), Index(output, "output"));
    if (capacity > 0) Require(shape, "shape");
    for (std::int32_t i = 0; i < std::min(capacity, tensor->ndim); ++i) shape[i] = tensor->shape[i];
    rank = tensor->ndim;
  });
  return status == ADT_OK ? rank : -1;
}

std::int64_t adt_runner_output_size(adt_runner_t* runner, std::int32_t entry, std::int32_t output) {
  std::int64_t size = -1;
  const adt_status_t status = WithSession(runner, [&](const adt::Session& session) {
    size = static_cast<std::int64_t>(
        session.OutputSize(Index(entry, "entry"), Index(output, "output")));
  });
  return status == ADT_OK ? size : -1;
}

adt_status_t adt_runner_get_output(adt_runner_t* runner, std::int32_t entry, std::int32_t output,
                                   void* data, std::int64_t size) {
  return WithSession(runner, [&](const adt::Session& session) {
    session.GetOutput(Index(entry, "entry"), Index(output, "output"), data, ArraySize(data, size));
  });
}

adt_status_t adt_runner_take_output(adt_runner_t* runner, std::int32_t entry, std::int32_t output,
                                    adt_tensor_t** out) {
  return MakeTensor(out, [&] {
    const std::lock_guard<std::mutex> lock(Require(runner, "runner").mutex);
    return runner->session.TakeOutput(Index(entry, "entry"), Index(output, "output"));
  });
}

adt_status_t adt_tensor_from_memory(void* data, std::int64_t size, adt_dtype_t dtype,
                                    const std::int64_t* shape, std::int32_t rank,
                                    adt_tensor_release_t release, void* release_data,
                                    adt_tensor_t** out) {
  return MakeTensor(out, [&] {
    const ArrayType array(dtype, shape, rank);
    if (ArraySize(data, size) != array.size) {
      throw Error(ErrorKind::kInput,
                  "the tensor has " + std::to_string(size) + " bytes of data, its shape takes " +
                      std::to_string(array.size),
                  "Give memory for the whole array, in C order.");
    }
    return adt::WrapMemory(data, array.shape, array.dtype, DLDevice{kDLCPU, 0},
                           Release(release, release_data));
  });
}

adt_status_t adt_tensor_from_opencl(adt_runner_t* runner, void* buffer, adt_dtype_t dtype,
                                    const std::int64_t* shape, std::int32_t rank,
                                    adt_tensor_release_t release, void* release_data,
                                    adt_tensor_t** out) {
  return MakeTensor(out, [&] {
    const DLDevice device = Require(runner, "runner").session.dl_device();
    if (device.device_type != kDLOpenCL) {
      Misuse("the runner is on " + runner->session.model()->device() + ", not on OpenCL",
             "Load the package with the device opencl, or give memory of the program's.");
    }
    Require(static_cast<const char*>(buffer), "buffer");
    const ArrayType array(dtype, shape, rank);
    return adt::WrapOpenCl(buffer, array.shape, array.dtype, device,
                           Release(release, release_data));
  });
}

adt_status_t adt_tensor_from_dlpack(DLManagedTensorVersioned* managed, adt_tensor_t** out) {
  return MakeTensor(out, [&] { return adt::WrapDlpack(&Require(managed, "managed")); });
}

adt_status_t adt_tensor_to_dlpack(adt_tensor_t* tensor, DLManagedTensorVersioned** out) {
  if (out != nullptr) *out = nullptr;
  return Guard([&] {
    Require(out, "out");
    const auto& array = Require(tensor, "tensor").tensor;
    if (array->device.device_type != kDLCPU) {
      Misuse("the tensor lies in the memory of " + tensor->device,
             "Copy it to the program's memory (adt_tensor_copy).");
    }
    auto managed = std::make_unique<DLManagedTensorVersioned>();
    managed->version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    managed->dl_tensor = *array.operator->();
    managed->manager_ctx = adt_tensor_retain(tensor);
    managed->deleter = [](DLManagedTensorVersioned* self) {
      adt_tensor_free(static_cast<adt_tensor_t*>(self->manager_ctx));
      delete self;
    };
    *out = managed.release();
  });
}

adt_tensor_t* adt_tensor_retain(adt_tensor_t* tensor) {
  if (tensor != nullptr) ++tensor->references;
  return tensor;
}

void adt_tensor_free(adt_tensor_t* tensor) {
  if (tensor != nullptr && --tensor->references == 0) delete tensor;
}

adt_status_t adt_tensor_describe(const adt_tensor_t* tensor, adt_tensor_info_t* info) {
  return Guard([&] { Fill(Require(tensor, "tensor").text, info); });
}

const char* adt_tensor_device(const adt_tensor_t* tensor) {
  return GuardValue<const char*>(nullptr, [&] { return Require(tensor, "tensor").device.c_str(); });
}

void* adt_tensor_data(adt_tensor_t* tensor) {
  return GuardValue<void*>(nullptr, [&] { return adt::DataOf(Require(tensor, "tensor").tensor); });
}

adt_status_t adt_tensor_copy(adt_tensor_t* tensor, void* data, std::int64_t size) {
  return Guard([&] {
    adt::CopyFromDevice(Require(tensor, "tensor").tensor, data, ArraySize(data, size),
                        [] { return std::string("the tensor"); });
  });
}

}  // extern "C"
