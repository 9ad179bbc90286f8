// The C interface: errors, options, and handles made and freed.

#include "c_api.h"

#include <tvm/ffi/dtype.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "adt/adt_runner.h"
#include "error.h"
#include "executor.h"
#include "memory_pools.h"
#include "runner_info.h"
#include "session.h"

namespace adt::c_api {

static_assert(ADT_ERROR_USAGE == static_cast<int>(ErrorKind::kUsage));
static_assert(ADT_ERROR_PACKAGE == static_cast<int>(ErrorKind::kPackage));
static_assert(ADT_ERROR_INPUT == static_cast<int>(ErrorKind::kInput));
static_assert(ADT_ERROR_RUN == static_cast<int>(ErrorKind::kRun));
static_assert(ADT_ERROR_MISMATCH == static_cast<int>(ErrorKind::kMismatch));
static_assert(ADT_ERROR_NO_DEVICE == static_cast<int>(ErrorKind::kNoDevice));
static_assert(ADT_ERROR_DEVICE_LOST == static_cast<int>(ErrorKind::kDeviceLost));
static_assert(ADT_ERROR_OUT_OF_MEMORY == static_cast<int>(ErrorKind::kOutOfMemory));
static_assert(ADT_ERROR_CANCELLED == static_cast<int>(ErrorKind::kCancelled));

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

TensorSpec SpecOf(const DLTensor& tensor) {
  TensorSpec spec;
  spec.dtype = std::string(tvm::ffi::DLDataTypeToString(tensor.dtype));
  for (std::int32_t i = 0; i < tensor.ndim; ++i) spec.shape.push_back({tensor.shape[i], {}});
  return spec;
}

[[noreturn]] void Misuse(const std::string& what, const std::string& remedy) {
  throw Error(ErrorKind::kUsage, what, remedy);
}

// A number of the caller's, for a Session, which knows how many there are.
std::size_t Index(std::int32_t number, const char* what) {
  if (number < 0) {
    Misuse("there is no " + std::string(what) + " " + std::to_string(number),
           "Numbers begin at 0.");
  }
  return static_cast<std::size_t>(number);
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

Extents Shape(const std::int64_t* shape, std::int32_t rank) {
  if (rank < 0)
    Misuse("a shape of " + std::to_string(rank) + " extents", "Give the number of extents.");
  if (rank != 0) Require(shape, "shape");
  return {shape, static_cast<std::size_t>(rank)};
}

void RequireSize(std::uint32_t size, std::size_t first, const char* name) {
  if (size >= first) return;
  Misuse(std::string(name) + ".struct_size is " + std::to_string(size),
         std::string("Set it to sizeof(") + name + "_t) before the call.");
}

}  // namespace adt::c_api

namespace {

using adt::c_api::ArraySize;
using adt::c_api::Guard;
using adt::c_api::Last;
using adt::c_api::Misuse;
using adt::c_api::Require;
using adt::c_api::RequireSize;
using adt::c_api::SizeV1;

constexpr std::size_t kOptionsSizeV1 = SizeV1(56, 28);
constexpr std::size_t kSourceSizeV1 = sizeof(adt_blob_t) == 32 ? 112 : 80;
static_assert(kOptionsSizeV1 <= sizeof(adt_runner_options_t));
static_assert(kSourceSizeV1 <= sizeof(adt_package_source_t));

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

}  // extern "C"
